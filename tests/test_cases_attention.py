"""Do the failures that others met in attention happen here?

Each name starts with the case it retells.
"""

from itertools import product

import pytest
import torch

from minilm.attention import MultiHeadAttention, attention, backend_named, visible
from minilm.model import LanguageModel

BACKENDS = ("explicit", "fused", "tiled")


def small(**settings) -> LanguageModel:
    shape = {"width": 16, "context": 8, "n_layers": 2, "n_heads": 2, "seed": 1}
    return LanguageModel(7, **{**shape, **settings})


@pytest.mark.parametrize(("backend", "dropout", "t"), list(product(BACKENDS, [0.0, 0.1], range(7))))
def test_att_1_the_future_is_hidden_with_weights_and_without(backend, dropout, t):
    torch.manual_seed(t)
    layer = MultiHeadAttention(16, 2, dropout=dropout, backend=backend).eval()
    x = torch.randn(2, 8, 16)
    y = x.clone()
    y[:, t + 1 :] = torch.randn(2, 7 - t, 16)
    torch.testing.assert_close(layer(x)[:, : t + 1], layer(y)[:, : t + 1], rtol=0, atol=1e-6)
    found, changed = layer.lookup(x), layer.lookup(y)
    torch.testing.assert_close(found.mixture[:, :, : t + 1], changed.mixture[:, :, : t + 1], rtol=0, atol=1e-6)
    assert (found.weights.triu(1) == 0).all()
    with_weights = layer.output(found.mixture.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(with_weights, layer(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_att_3_dropout_is_off_in_evaluation(backend):
    tokens = torch.randint(7, (2, 8), generator=torch.Generator().manual_seed(0))
    model, without = small(dropout=0.5, backend=backend), small(backend=backend)
    torch.manual_seed(0)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))
    assert torch.equal(model(tokens), without(tokens))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("backend", "causal"), list(product(BACKENDS, [True, False])))
def test_att_4_row_that_may_read_nothing_gives_zeros_and_finite_gradients(backend, causal, dtype):
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(3, 2, 4, 4, generator=draw).to(dtype).requires_grad_() for _ in range(3)]
    # Left padding, no padding, and a sequence that is nothing but padding.
    padding = torch.tensor([[False, False, True, True], [True] * 4, [False] * 4])
    mixture = backend_named(backend)(*given, scale=0.5, causal=causal, padding=padding)
    mixture.square().sum().backward()
    assert (mixture[2] == 0).all()
    if causal:
        assert (mixture[0, :, :2] == 0).all()
    for tensor in (mixture, *(t.grad for t in given)):
        assert torch.isfinite(tensor).all()
    alone = backend_named(backend)(*(t[1:2] for t in given), scale=0.5, causal=causal, padding=None)
    # In bfloat16, `fused` takes one way with padding and another without, which round differently.
    assert (mixture[1:2] - alone).norm() < (0.01 if dtype == torch.bfloat16 else 1e-6) * alone.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_att_4_weights_of_such_a_row_are_zeros(dtype):
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(2, 3, 4, 4, generator=draw).to(dtype).requires_grad_() for _ in range(3)]
    mask = torch.ones(2, 3, 4, 4, dtype=torch.bool)
    mask[:, 1] = False  # a head that is hidden whole
    mask[0, 0, 2] = False  # and one row of another
    mixture, weights = attention(*given, scale=0.5, mask=mask)
    (mixture.sum() + weights.square().sum()).backward()
    assert (weights[~mask] == 0).all()
    assert (mixture[:, 1] == 0).all()
    assert (mixture[0, 0, 2] == 0).all()
    torch.testing.assert_close(weights.sum(-1)[mask.any(-1)].float(), torch.ones(15), rtol=0, atol=0.01)
    assert all(torch.isfinite(t.grad).all() for t in given)


@pytest.mark.parametrize("backend", BACKENDS)
def test_att_4_left_padded_batch_trains_and_padding_does_not_matter(backend):
    model = small(position="none", backend=backend)
    tokens = torch.tensor([[0, 0, 1, 2], [3, 4, 5, 6]])
    padding = torch.tensor([[False, False, True, True], [True] * 4])
    logits = model(tokens, padding=padding)
    logits.square().mean().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    torch.testing.assert_close(logits[0, 2:], model(torch.tensor([[1, 2]]))[0])
    torch.testing.assert_close(logits[1], model(tokens[1:])[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_att_8_weights_for_the_eye_are_those_before_dropout(backend):
    model = small(dropout=0.5, backend=backend)
    assert model.training
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    weights = model.blocks[0].attention.lookup(x).weights
    assert model.training
    assert all(module.training for module in model.modules())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 8), rtol=0, atol=1e-5)
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert (weights.triu(1) == 0).all()


def test_att_8_formula_returns_weights_before_dropout():
    query = key = value = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    mask = visible(4, 4, causal=True, padding=None, device=query.device)
    _, weights = attention(query, key, value, scale=0.5, mask=mask, dropout=0.5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4))
