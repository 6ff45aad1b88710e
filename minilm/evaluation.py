"""How good is the model, and how good could any model be?

The loss is measured on the same windows every time. On Riverbank the floor is known, so each
character's loss is compared with the best there is: the difference, excess, is what is left
to learn, and it is given per facet, the kind of question that a character answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minilm.corpus import Corpus, evaluation_windows
from minilm.distributed import Team
from minilm.generation import generate
from minilm.model import LanguageModel
from minilm.modes import evaluating
from minilm.riverbank import Riverbank
from minilm.streams import generator

CHARACTERS_AT_ONCE = 2048  # more take no less time, and the memory of a feed-forward part's four widths for each
SCORES_AT_ONCE = 1 << 22  # one for each character that there is, which may be many: 16 MB


@dataclass(frozen=True)
class Floor:
    """What is known of the targets: (n, T) each."""

    nats: Tensor  # float64, NaN where not known
    facets: Tensor  # index into `names`, or -1
    names: tuple[str, ...]


@dataclass(frozen=True)
class Windows:
    """The fixed windows on which a model is scored."""

    inputs: Tensor  # (n, T)
    targets: Tensor  # (n, T)
    sizes: Tensor  # (V,) bytes of each number's text
    floor: Floor | None


def make_windows(corpus: Corpus, *, context: int, max_characters: int) -> Windows:
    """The validation part, up to the cap, cut into windows."""
    inputs, targets = evaluation_windows(corpus.validation, context=context, max_characters=max_characters)
    sizes = corpus.vocabulary.sizes
    if corpus.language is None:
        return Windows(inputs, targets, sizes, None)
    texts = [corpus.vocabulary.decode(row) for row in torch.cat([inputs[:, :1], targets], dim=1)]
    return Windows(inputs, targets, sizes, floor_of(texts, corpus.language))


def floor_of(texts: list[str], language: Riverbank) -> Floor:
    """Exact -log p of every character but the first of each text, which are equally long."""
    scores = [language.score_window(text) for text in texts]
    nats = torch.from_numpy(np.stack([score.nats[1:] for score in scores]))
    facets = torch.from_numpy(np.stack([score.facets[1:] for score in scores]))
    return Floor(nats, facets, language.facets)


@torch.no_grad()
def token_losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """-log p of every target, in evaluation mode: (n, T), (n, T) -> (n, T) float64 on the CPU."""
    device = next(model.parameters()).device
    at_once = min(CHARACTERS_AT_ONCE, SCORES_AT_ONCE // (int(targets.max()) + 1))  # V is that at least
    rows = max(1, at_once // inputs.shape[1])
    losses = []
    with evaluating(model):
        for x, y in zip(inputs.split(rows), targets.split(rows), strict=True):
            logits = model(x.to(device))  # (rows, T, V)
            losses.append(F.cross_entropy(logits.flatten(0, 1).float(), y.to(device).flatten(), reduction="none"))
    return torch.cat(losses).view(targets.shape).double().cpu()


def evaluate(model: nn.Module, windows: Windows, team: Team | None = None) -> dict[str, Any]:
    """Loss in nats per character (or other unit) and in bits per byte, by which models of any unit compare.

    Where the floor is known also floor, excess and excess per facet. The processes of `team` share the work.
    """
    losses = (team or Team()).rows(partial(token_losses, model), windows.inputs, windows.targets)
    result = summarise(losses, windows.floor)
    return {**result, "bits_per_byte": bits_per_byte(result["loss"], windows.targets, windows.sizes)}


def bits_per_byte(loss: float, targets: Tensor, sizes: Tensor) -> float:
    """A mean loss in nats per target as bits per byte of the targets' text; `sizes` (V,) is in bytes."""
    return loss / math.log(2) * targets.numel() / int(sizes[targets].sum())


def summarise(losses: Tensor, floor: Floor | None) -> dict[str, Any]:
    """The means of `losses` (n, T) and, against the floor, of what lies above it."""
    result: dict[str, Any] = {"loss": losses.mean().item()}
    if floor is not None:
        known = ~floor.nats.isnan()
        excess = losses - floor.nats
        asked = {name: known & (floor.facets == index) for index, name in enumerate(floor.names)}
        if known.any():  # a context shorter than a sentence may leave nothing
            result["floor"] = floor.nats[known].mean().item()
            result["excess"] = excess[known].mean().item()
            result["facets"] = {name: excess[there].mean().item() for name, there in asked.items() if there.any()}
    return result


def share_in_language(model: LanguageModel, corpus: Corpus, *, seed: int, n_characters: int = 4000) -> float:
    """The share of whole sentences written by the model that Riverbank has."""
    if corpus.language is None:
        raise ValueError("only a model of Riverbank can be judged so")
    rows = 8
    prompt = corpus.vocabulary.encode("\n").long().expand(rows, 1)
    draws = generate(model, prompt, n_characters // rows, generator=generator(seed, "sampling/sentences"))
    texts = [corpus.vocabulary.decode(row) for row in torch.stack(list(draws), dim=1)]
    sentences = [sentence for text in texts for sentence in text.split("\n")[:-1]]
    return sum(sentence in corpus.language for sentence in sentences) / max(1, len(sentences))
