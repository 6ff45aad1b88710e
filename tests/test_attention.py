"""Is the lookup the one that it says it is, whichever back end computes it?"""

import importlib
import inspect
import math
from itertools import product

import pytest
import torch
from torch import nn

from minilm.attention import MultiHeadAttention, attention, backend_named, explicit, visible

module = importlib.import_module("minilm.attention")
BACKENDS = ("explicit", "fused", "auto", "tiled")
PADDING = torch.tensor([[False, False, True, True, True], [True, True, True, True, True], [True] * 4 + [False]])


def inputs(n_query: int, n_key: int, dtype=torch.float64, k: int = 4) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(n_query + 10 * n_key)
    shapes = [(3, 2, n_query, k), (3, 2, n_key, k), (3, 2, n_key, k)]
    return [torch.randn(shape, generator=draw, dtype=dtype).requires_grad_() for shape in shapes]


def answer(backend: str, given: list[torch.Tensor], **settings) -> list[torch.Tensor]:
    """The mixture and the gradients of a loss that tells every element apart."""
    mixture = backend_named(backend)(*given, scale=0.5, **settings)
    weight = torch.arange(mixture.numel(), dtype=torch.float64).sin().reshape(mixture.shape).to(mixture.dtype)
    return [mixture.detach(), *torch.autograd.grad((weight * mixture).sum(), given)]


def test_attention_is_the_formula():
    query, key, value = (t[0, 0].detach() for t in inputs(3, 5))
    mixture, weights = attention(query, key, value, scale=0.5, mask=torch.ones(3, 5, dtype=torch.bool))
    for t in range(3):
        scores = [0.5 * sum(float(query[t, i] * key[s, i]) for i in range(4)) for s in range(5)]
        total = sum(map(math.exp, scores))
        expected = [math.exp(score) / total for score in scores]
        assert weights[t].tolist() == pytest.approx(expected, abs=1e-12)
        for i in range(4):
            assert float(mixture[t, i]) == pytest.approx(sum(w * float(value[s, i]) for s, w in enumerate(expected)))


def test_attention_is_at_most_twelve_lines():
    body = inspect.getsource(attention).split('"""')[2]
    signature = inspect.getsource(attention).split('"""')[0]
    code = [line for line in (signature + body).splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 12


def test_explicit_back_end_is_made_of_that_function(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "attention", lambda *a, **k: calls.append(k) or attention(*a, **k))
    MultiHeadAttention(8, 2, backend="explicit")(torch.randn(1, 3, 8))
    assert len(calls) == 1


@pytest.mark.parametrize("n_query", range(1, 6))
def test_weights_sum_to_one_and_hide_the_future(n_query):
    query, key, value = inputs(n_query, 5)
    mask = visible(n_query, 5, causal=True, padding=None, device=query.device)
    _, weights = attention(query, key, value, scale=0.5, mask=mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, n_query, dtype=torch.float64))
    for t in range(n_query):
        # The queries are the last of the positions that can be read.
        assert (weights[..., t, 5 - n_query + t + 1 :] == 0).all()
        assert (weights[..., t, : 5 - n_query + t + 1] > 0).all()


def test_hidden_position_gives_its_weight_to_the_others():
    query, key, value = inputs(1, 5)
    everything = torch.ones(1, 5, dtype=torch.bool)
    _, before = attention(query, key, value, scale=0.5, mask=everything)
    _, after = attention(query, key, value, scale=0.5, mask=torch.tensor([[True, True, False, True, True]]))
    kept = [0, 1, 3, 4]
    torch.testing.assert_close(after[..., kept], before[..., kept] / (1 - before[..., [2]]))


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("causal", "padded", "n_query"), list(product([True, False], [True, False], [1, 3, 5])))
def test_back_ends_agree_in_value_and_gradient(backend, dtype, tolerance, causal, padded, n_query):
    settings = {"causal": causal, "padding": PADDING if padded else None}
    expected = answer("explicit", inputs(n_query, 5, dtype), **settings)
    found = answer(backend, inputs(n_query, 5, dtype), **settings)
    for one, other in zip(expected, found, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_gradient_is_the_slope():
    mask = visible(3, 3, causal=True, padding=torch.tensor([[False, True, True]]), device=torch.device("cpu"))
    query, key, value = [t[:1, :, :3].detach().requires_grad_() for t in inputs(3, 3)]
    assert torch.autograd.gradcheck(lambda *qkv: attention(*qkv, scale=0.5, mask=mask), (query, key, value))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_same_as_torch_multihead_attention(causal, padded, backend):
    torch.manual_seed(0)
    ours = MultiHeadAttention(12, 3, causal=causal, backend=backend).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        parts = (ours.query, ours.key, ours.value)
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    # Padding on the right, since torch gives NaN where a row may read nothing.
    padding = torch.tensor([[True] * 6, [True] * 4 + [False] * 2]) if padded else None
    expected, weights = theirs(
        *(x, x, x),
        attn_mask=torch.ones(6, 6, dtype=torch.bool).triu(1) if causal else None,
        key_padding_mask=None if padding is None else ~padding,
        average_attn_weights=False,
    )
    torch.testing.assert_close(ours(x, padding=padding), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.lookup(x, padding=padding).weights, weights, rtol=0, atol=1e-12)


def test_shapes_are_those_of_the_legend(monkeypatch):
    b, t, s, d, h = 2, 3, 5, 12, 4
    layer = MultiHeadAttention(d, h, backend="explicit")
    seen = []

    def watch(query, key, value, **settings):
        mixture = explicit(query, key, value, **settings)
        seen.extend(tuple(x.shape) for x in (query, key, value, mixture))
        return mixture

    class Before:
        length = s - t

        def append(self, key, value):
            return (torch.cat([torch.zeros(b, h, s - t, d // h), x], dim=2) for x in (key, value))

    layer.backend = watch
    assert layer(torch.randn(b, t, d), cache=Before()).shape == (b, t, d)
    assert seen == [(b, h, t, d // h), (b, h, s, d // h), (b, h, s, d // h), (b, h, t, d // h)]
    found = layer.lookup(torch.randn(b, t, d))
    assert found.query.shape == found.key.shape == found.value.shape == found.mixture.shape == (b, h, t, d // h)
    assert found.weights.shape == (b, h, t, t)


def test_lookup_is_what_the_layer_does():
    layer = MultiHeadAttention(12, 3, backend="fused")
    x = torch.randn(2, 5, 12)
    mixture = layer.lookup(x).mixture
    torch.testing.assert_close(layer.output(mixture.transpose(1, 2).flatten(-2)), layer(x))


def test_scale_is_one_over_the_root_of_the_key_width_or_one():
    assert MultiHeadAttention(64, 4).scale == 1 / 4
    assert MultiHeadAttention(64, 4, scaled=False).scale == 1.0


@pytest.mark.parametrize("n_heads", [0, -1, 5, 13])
def test_heads_must_divide_the_width(n_heads):
    with pytest.raises(ValueError, match="cannot be split"):
        MultiHeadAttention(12, n_heads)


def test_dropout_acts_on_weights_while_training_only():
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, dropout=0.5, backend="explicit")
    x = torch.randn(1, 5, 12)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_dropout_keeps_the_mean():
    query, key = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 2)
    value = torch.eye(4)[None, None]
    mask = torch.ones(4, 4, dtype=torch.bool)
    torch.manual_seed(0)
    draws = [attention(query, key, value, scale=1.0, mask=mask, dropout=0.5)[0] for _ in range(2000)]
    assert set(torch.stack(draws).unique().tolist()) == {0.0, 0.5}  # 1/4, left out or doubled
    torch.testing.assert_close(torch.stack(draws).mean(0), torch.full((1, 1, 4, 4), 0.25), atol=0.03, rtol=0)
