"""Do attention's rivals compute what they say, and are they language models like any other?"""

import math
import sys

import pytest
import torch
from conftest import ROOT, tiny_config
from torch import nn

from minilm.attention import AdditiveScore, MultiHeadAttention
from minilm.config import ATTENTION_ONLY
from minilm.generation import generate
from minilm.lab.rivals import Recurrence, RecurrentModel
from minilm.model import LanguageModel, loss
from minilm.optim import optimizer_tensors
from minilm.parameters import parameter_table
from minilm.runs import build_model, load_run
from minilm.sample import main as sample
from minilm.settings import load_config
from minilm.streams import generator

V, D, T = 7, 24, 8


def shaken(model: nn.Module) -> nn.Module:
    """Large random values in every parameter, so that no part can hide."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.5, generator=generator(0, name))
    return model


def recurrent(**settings) -> RecurrentModel:
    return RecurrentModel(V, **{"width": D, "context": T, "n_layers": 2, "seed": 1, **settings})


def additive(**settings) -> LanguageModel:
    shape = {"width": D, "context": T, "n_layers": 2, "n_heads": 2, "seed": 1, "score": "additive"}
    return LanguageModel(V, **{**shape, **settings})


RIVALS = pytest.mark.parametrize("make", [recurrent, additive])


def random_tokens(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(V, (rows, columns), generator=torch.Generator().manual_seed(0))


def matrices(part: nn.Module) -> int:
    return sum(p.numel() for p in part.parameters() if p.ndim == 2)


# The additive score


def test_additive_score_is_the_formula():
    score = shaken(AdditiveScore(3)).double()
    query, key = torch.randn(2, 4, 3, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    found = score(query, key)
    assert found.shape == (2, 4, 5)
    w, u, v = (parameter.detach() for parameter in (score.query.weight, score.key.weight, score.direction))
    for b, t, s in torch.cartesian_prod(torch.arange(2), torch.arange(4), torch.arange(5)):
        inside = [math.tanh(sum(w[k, i] * query[b, t, i] + u[k, i] * key[b, s, i] for i in range(3))) for k in range(3)]
        assert found[b, t, s].item() == pytest.approx(sum(v[k].item() * inside[k] for k in range(3)), abs=1e-12)


@pytest.mark.parametrize("width", [8, 48, 256])
def test_additive_scores_start_at_the_same_size_for_any_key_width(width):
    stds = []
    for seed in range(20):
        model = additive(width=width, n_heads=1, n_layers=1, seed=seed)
        draw = torch.Generator().manual_seed(seed)
        query, key = (torch.randn(64, width, generator=draw) for _ in range(2))
        stds.append(model.blocks[0].attention.score(query, key).std().item())
    assert sum(stds) / 20 == pytest.approx(0.7, abs=0.07)


def test_no_key_however_long_gets_more_than_the_sum_of_v():
    score = shaken(AdditiveScore(8))
    query, key = torch.randn(4, 8), torch.randn(6, 8)
    most = score.direction.abs().sum().item() + 1e-5
    for length in (1, 100, 1e6):
        assert score(query, length * key).abs().max().item() <= most


def test_attention_with_the_additive_score_is_not_divided_and_shows_its_own_weights():
    layer = shaken(MultiHeadAttention(D, 2, score="additive"))
    assert layer.scale == 1
    x = torch.randn(2, T, D)
    found = layer.lookup(x)
    scores = layer.score(found.query, found.key).masked_fill(~torch.ones(T, T).tril().bool(), -math.inf)
    torch.testing.assert_close(found.weights, scores.softmax(-1))
    torch.testing.assert_close(layer(x), layer.output(found.mixture.transpose(1, 2).flatten(-2)))


def test_additive_score_adds_two_matrices_and_a_vector_to_each_layer():
    def size(model):
        return sum(p.numel() for p in model.parameters())

    key_width = D // 2
    assert size(additive()) - size(additive(score="dot")) == 2 * (2 * key_width**2 + key_width)


@pytest.mark.parametrize(("score", "backend"), [("additive", "fused"), ("additive", "tiled"), ("cosine", "auto")])
def test_score_that_a_back_end_cannot_compute_is_refused(score, backend):
    with pytest.raises(ValueError, match=f"score '{score}' .* back end '{backend}'"):
        MultiHeadAttention(D, 2, score=score, backend=backend)


# The recurrent model


@pytest.mark.parametrize("width", [6, 48, 96, 300])
def test_recurrence_has_as_many_weights_as_attention(width):
    assert matrices(Recurrence(width)) == matrices(MultiHeadAttention(width, 1)) == 4 * width**2


def test_whole_models_differ_by_places_and_a_bias_a_layer():
    base, rival = (load_config(ROOT / "configs" / name) for name in ("base.toml", "recurrent.toml"))
    attention, recurrence = (sum(p.numel() for p in build_model(c, 30).parameters()) for c in (base, rival))
    shape = base.model
    assert attention - recurrence == shape.context * shape.width - shape.n_layers * shape.width
    assert recurrence > 0.95 * attention


def test_parameter_table_names_recurrence_and_sums_to_the_whole():
    model = recurrent()
    table = {part.name: part for part in parameter_table(model)}
    state = D * 2 // 3
    assert table["recurrence"] == ("recurrence", 2 * 4 * D**2, 2 * (2 * 3 * state + D))
    assert table["attention"] == ("attention", 0, 0)
    assert sum(part.weights + part.biases for part in table.values()) == sum(p.numel() for p in model.parameters())


def test_initial_weights_come_from_the_seed_and_biases_are_zero():
    global_before = torch.random.get_rng_state()
    one = recurrent(seed=5)
    torch.random.set_rng_state(global_before)
    torch.rand(3)
    other = recurrent(seed=5)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
    for name, parameter in one.named_parameters():
        assert ("bias" in name) == bool((parameter == 0).all()), name
    gates = one.blocks[0].recurrence.gru.weight_hh_l0
    assert gates.std().item() == pytest.approx(1 / math.sqrt(gates.shape[1]), rel=0.1)


def test_recurrent_model_knows_the_order_without_places():
    model = shaken(recurrent()).eval()
    tokens = torch.tensor([[0, 1, 2, 3]])
    with torch.no_grad():
        moved = (model(tokens)[:, -1] - model(tokens[:, [1, 0, 2, 3]])[:, -1]).abs().max()
    assert moved > 1e-3


def test_padding_is_refused_and_too_long_a_text_too():
    model, tokens = recurrent(), random_tokens(1, T)
    with pytest.raises(ValueError, match="no way to leave padding out"):
        model(tokens, padding=torch.ones(1, T, dtype=torch.bool))
    with pytest.raises(ValueError, match="do not fit"):
        model(random_tokens(1, T + 1))


# Both


@RIVALS
def test_no_position_sees_what_comes_after_it(make):
    model = shaken(make()).eval()
    tokens = random_tokens(2, T)
    with torch.no_grad():
        before = model(tokens)
        for t in range(T - 1):
            changed = tokens.clone()
            changed[:, t + 1 :] = (changed[:, t + 1 :] + 1) % V
            after = model(changed)
            torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], rtol=0, atol=1e-6)
            assert (after[:, t + 1 :] - before[:, t + 1 :]).abs().max() > 1e-3


@RIVALS
@pytest.mark.parametrize("length", [1, 5, T, T + 1, 3 * T])
def test_cached_is_uncached_character_for_character(make, length):
    model = shaken(make())
    texts = []
    for cached in (True, False):
        draw = generator(0, "sampling")
        draws = generate(model, random_tokens(2, length), 3 * T, generator=draw, cached=cached)
        texts.append(torch.stack(list(draws)))
    assert torch.equal(*texts)
    assert len(texts[0].unique()) > 1


@RIVALS
def test_starts_near_the_uniform_loss_and_can_learn_one_batch(make):
    model, tokens = make(), random_tokens(4, T + 1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    assert loss(model(inputs), targets).item() == pytest.approx(math.log(V), abs=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
    assert loss(model(inputs), targets).item() < 0.05
    assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in model.parameters())


RIVAL_SETTINGS = pytest.mark.parametrize("settings", [{"architecture": "recurrent"}, {"score": "additive"}])


@RIVAL_SETTINGS
def test_resumed_run_is_the_uninterrupted_one(on_text, train_in, tmp_path, settings):
    config = on_text(model={"dropout": 0.1, **settings}, training={"steps": 8})
    straight = train_in(config, tmp_path / "straight")
    train_in(config, tmp_path / "parts", until=3)
    resumed = train_in(config, tmp_path / "parts", resume=True)
    for part in (lambda run: run.model.state_dict(), lambda run: optimizer_tensors(run.model, run.optimizers)):
        expected, found = part(straight), part(resumed)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)


@RIVAL_SETTINGS
def test_trained_model_is_loaded_and_writes(on_text, train_in, tmp_path, capsys, settings):
    trained = train_in(on_text(model=settings), tmp_path / "run").model
    loaded = load_run(tmp_path / "run", "last").model
    assert type(loaded) is type(trained)
    weights = trained.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in loaded.state_dict().items())
    capsys.readouterr()
    texts = []
    for more in ((), ("--no-cache",)):
        assert sample([str(tmp_path / "run"), "--prompt", "the q", "--length", "40", *more]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith("the q")
    assert len(texts[0]) == 46


# Settings

CHANGED = {
    "n_heads": 4,
    "position": "none",
    "causal": False,
    "scaled": False,
    "score": "additive",
    "backend": "explicit",
}


@pytest.mark.parametrize("name", ATTENTION_ONLY)
def test_recurrent_model_refuses_a_setting_of_attention(name, refusal):
    message = refusal(tiny_config, model={"architecture": "recurrent", name: CHANGED[name]})
    assert f'architecture "recurrent" has no {name}, which are attention\'s: leave them out' in message


def test_recurrent_model_has_no_heads_for_its_width_to_be_split_into():
    config = tiny_config(model={"architecture": "recurrent", "width": 31})
    assert build_model(config, 5)(random_tokens(1, 4) % 5).shape == (1, 4, 5)


@pytest.mark.parametrize("backend", ["fused", "tiled"])
def test_additive_score_refuses_the_other_back_ends(backend, refusal):
    message = refusal(tiny_config, model={"score": "additive", "backend": backend})
    assert f'backend "{backend}" has the dot product built in: score "additive" takes "explicit" or "auto"' in message
    for fitting in ("auto", "explicit"):
        assert tiny_config(model={"score": "additive", "backend": fitting}).model.backend == fitting


def test_additive_score_refuses_to_be_unscaled(refusal):
    assert "divided by nothing" in refusal(tiny_config, model={"score": "additive", "scaled": False})


def test_rival_files_change_one_value_of_the_base():
    base = load_config(ROOT / "configs/base.toml").model_dump()
    for name, key, value in (("additive", "score", "additive"), ("recurrent", "architecture", "recurrent")):
        assert base["model"][key] != value
        expected = {**base, "model": {**base["model"], key: value}}
        assert load_config(ROOT / f"configs/{name}.toml").model_dump() == expected


def test_transformer_is_built_without_the_lab(monkeypatch):
    monkeypatch.setitem(sys.modules, "minilm.lab.rivals", None)  # to import it would fail now
    assert type(build_model(tiny_config(), 5)) is LanguageModel
    with pytest.raises(ImportError):
        build_model(tiny_config(model={"architecture": "recurrent"}), 5)
