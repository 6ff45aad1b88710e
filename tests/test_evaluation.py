"""Is a model measured against what is true?"""

import math
from functools import cache

import pytest
import torch
from torch import nn

from minilm.config import CorpusConfig
from minilm.corpus import Corpus, load_corpus
from minilm.evaluation import evaluate, make_windows, share_in_language, token_losses
from minilm.model import LanguageModel
from minilm.riverbank import Riverbank
from minilm.vocabulary import Vocabulary


class Oracle(nn.Module):
    """A model that knows the language: the exact probability of every next character, given the window."""

    def __init__(self, language: Riverbank, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.language, self.vocabulary = language, vocabulary
        # Not causal, so that it is always shown the whole window.
        self.context, self.causal = 10**6, False
        self.unused = nn.Parameter(torch.zeros(1))
        self.probabilities = cache(self.probabilities)

    def probabilities(self, line: str) -> list[float]:
        """Of every character after `line`, the start of a sentence; even chances where that cannot be one."""
        nats = [float(self.language.score(line + c).nats[-1]) for c in self.vocabulary.characters]
        known = not any(map(math.isnan, nats))
        return [math.exp(-n) for n in nats] if known else [1 / len(nats)] * len(nats)

    def forward(self, tokens: torch.Tensor, **_) -> torch.Tensor:
        rows = []
        for row in tokens:
            text = self.vocabulary.decode(row)
            # Up to the first newline it does not know where in a sentence it is.
            lines = [
                text[: end + 1].rpartition("\n")[2] if "\n" in text[: end + 1] else None for end in range(len(text))
            ]
            even = [1 / len(self.vocabulary)] * len(self.vocabulary)
            rows.append([even if line is None else self.probabilities(line) for line in lines])
        return torch.tensor(rows, dtype=torch.float64).log()


@pytest.fixture(scope="module")
def riverbank() -> Corpus:
    return load_corpus(CorpusConfig(characters=6000, validation_fraction=0.5), context=64, seed=0)


def test_model_that_knows_the_language_has_no_excess(riverbank):
    windows = make_windows(riverbank, context=64, max_characters=10**6)
    result = evaluate(Oracle(riverbank.language, riverbank.vocabulary), windows)
    assert result["excess"] == pytest.approx(0, abs=1e-6)
    assert set(result["facets"]) == set(riverbank.language.facets)
    assert all(value == pytest.approx(0, abs=1e-6) for value in result["facets"].values())


def test_model_that_knows_the_language_writes_it(riverbank):
    oracle = Oracle(riverbank.language, riverbank.vocabulary)
    assert share_in_language(oracle, riverbank, seed=0, n_characters=400) == 1.0


def test_floor_stands_beside_the_targets(riverbank):
    windows = make_windows(riverbank, context=64, max_characters=10**6)
    text = riverbank.vocabulary.decode(riverbank.validation)
    whole = riverbank.language.score_window(text)
    for row in range(len(windows.targets)):
        known = ~windows.floor.nats[row].isnan()
        expected = torch.from_numpy(whole.nats[row * 64 + 1 : row * 64 + 65])[known]
        torch.testing.assert_close(windows.floor.nats[row][known], expected)
        facets = torch.from_numpy(whole.facets[row * 64 + 1 : row * 64 + 65])[known]
        assert torch.equal(windows.floor.facets[row][known], facets)
        # Known from the first newline on that the window shows, its first character included.
        shown = riverbank.vocabulary.decode(torch.cat([windows.inputs[row, :1], windows.targets[row]]))
        assert known.tolist() == [("\n" in shown[: end + 1]) for end in range(64)]


def test_excess_is_what_lies_above_the_floor(riverbank):
    model = LanguageModel(len(riverbank.vocabulary), width=8, context=64, n_layers=1, n_heads=1)
    windows = make_windows(riverbank, context=64, max_characters=10**6)
    result = evaluate(model, windows)
    losses = token_losses(model, windows.inputs, windows.targets)
    known = ~windows.floor.nats.isnan()
    assert result["loss"] == pytest.approx(losses.mean().item())
    assert result["excess"] == pytest.approx(losses[known].mean().item() - result["floor"])
    answers = known & (windows.floor.facets == 0)
    assert result["facets"][windows.floor.names[0]] == pytest.approx(
        (losses - windows.floor.nats)[answers].mean().item()
    )


def test_token_losses_are_minus_log_p_and_leave_the_mode_alone(monkeypatch):
    monkeypatch.setattr("minilm.evaluation.CHARACTERS_AT_ONCE", 20)  # two windows at a time
    model = LanguageModel(7, width=8, context=8, n_layers=1, n_heads=1, dropout=0.5)
    tokens = torch.randint(7, (5, 9), generator=torch.Generator().manual_seed(0))
    found = token_losses(model, tokens[:, :-1], tokens[:, 1:])
    assert model.training
    assert found.dtype == torch.float64
    model.eval()
    expected = -model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-5)


def test_many_different_characters_are_scored_few_at_a_time():
    model = LanguageModel(64_000, width=4, context=8, n_layers=1, n_heads=1)
    rows = []
    model.register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    tokens = torch.full((70, 8), 63_999)
    token_losses(model, tokens, tokens)
    assert rows == [8] * 8 + [6]  # 8 x 8 x 64,000 scores of four bytes are 16 MB


def test_no_known_character_means_no_excess(riverbank):
    windows = make_windows(riverbank, context=1, max_characters=1)
    result = evaluate(LanguageModel(len(riverbank.vocabulary), width=8, context=1, n_layers=1, n_heads=1), windows)
    assert set(result) == {"loss", "bits_per_byte"}
