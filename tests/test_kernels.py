"""The tiled kernel is the explicit formula, in values, gradients, masks and dropout, without the square."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from minilm.attention import MultiHeadAttention, attention, backend_named, explicit, visible
from minilm.kernels import SHORT, Tiling, fused, tiled
from minilm.lab.kernels import allocated_peak, make_inputs, step
from minilm.lab.measures import slope
from minilm.model import LanguageModel, loss


def draw(*shape, seed=0, dtype=torch.float64):
    noise = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return noise.to(dtype).requires_grad_()


def answer_and_gradients(backend, inputs, **how):
    """The mixture, and the gradients of something that is no sum."""
    mixture = backend(*inputs, **how)
    upstream = torch.linspace(-1, 2, mixture.numel(), dtype=mixture.dtype).view_as(mixture)
    return mixture, torch.autograd.grad(mixture, inputs, upstream)


def assert_same(first, second, inputs, atol, atol_gradient, **how):
    (mixture, gradients), (other, others) = (answer_and_gradients(b, inputs, **how) for b in (first, second))
    torch.testing.assert_close(mixture, other, atol=atol, rtol=0)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(gradient, other, atol=atol_gradient, rtol=0)


def with_tile(rows, columns):
    def backend(*inputs, **how):
        return tiled(*inputs, tile=(rows, columns), **how)

    return backend


SIZES = st.integers(1, 11)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 2),
    heads=st.integers(1, 2),
    n_query=SIZES,
    n_key=SIZES,
    width=st.integers(1, 4),
    tile=st.tuples(st.integers(1, 13), st.integers(1, 13)),
    causal=st.booleans(),
    padded=st.booleans(),
    scale=st.sampled_from([1.0, 0.5, 8.0]),
    seed=st.integers(0, 99),
)
def test_tiled_equals_explicit(batch, heads, n_query, n_key, width, tile, causal, padded, scale, seed):
    inputs = [draw(batch, heads, n, width, seed=seed + i) for i, n in enumerate((n_query, n_key, n_key))]
    padding = torch.rand(batch, n_key, generator=torch.Generator().manual_seed(seed)) > 0.4 if padded else None
    how = {"scale": scale, "causal": causal, "padding": padding}
    assert_same(explicit, with_tile(*tile), inputs, 1e-10, 1e-8, **how)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["tiled", "fused", "auto"])
def test_back_ends_agree_in_float32(backend, causal):
    inputs = [draw(2, 2, 50, 16, seed=i, dtype=torch.float32) for i in range(3)]
    how = {"scale": 0.25, "causal": causal, "padding": None}
    assert_same(explicit, backend_named(backend), inputs, 1e-5, 1e-4, **how)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_tiled_gradients_are_those_of_its_values(causal, dropout):
    inputs = [draw(1, 2, n, 3, seed=i) for i, n in enumerate((5, 7, 7))]
    padding = torch.tensor([[True, True, False, True, True, True, False]])

    def attend(*inputs):
        torch.manual_seed(0)  # the same weights left out each time
        return tiled(*inputs, scale=0.6, causal=causal, padding=padding, dropout=dropout, tile=(2, 3))

    assert torch.autograd.gradcheck(attend, inputs)


def test_a_gradient_of_the_gradient_is_refused():
    inputs = [draw(1, 1, 3, 2, seed=i) for i in range(3)]
    mixture = tiled(*inputs, scale=1.0, causal=True, padding=None)
    (gradient,) = torch.autograd.grad(mixture.square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", [explicit, tiled, fused, with_tile(2, 2)])
def test_rows_with_nothing_to_read_are_zero_and_have_finite_gradients(backend, dtype):
    inputs = [draw(2, 2, 4, 8, seed=i, dtype=dtype) for i in range(3)]
    padding = torch.tensor([[False, False, True, True], [True, True, True, True]])  # left-padded, and full
    mixture, gradients = answer_and_gradients(backend, inputs, scale=0.4, causal=True, padding=padding)
    assert (mixture[0, :, :2] == 0).all()
    assert mixture.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    alone = backend(*(x[:1, :, 2:] for x in inputs), scale=0.4, causal=True, padding=None)
    torch.testing.assert_close(mixture[:1, :, 2:], alone)


def test_a_batch_that_is_hidden_whole_gives_zeros():
    inputs = [draw(1, 1, 5, 2, seed=i) for i in range(3)]
    nothing = torch.zeros(1, 5, dtype=torch.bool)
    mixture, gradients = answer_and_gradients(with_tile(2, 2), inputs, scale=1.0, causal=False, padding=nothing)
    assert not mixture.any()
    assert not any(gradient.any() for gradient in gradients)


def test_large_scores_do_not_overflow():
    inputs = [1e4 * draw(1, 1, 9, 4, seed=i, dtype=torch.float32).detach() for i in range(3)]
    how = {"scale": 1.0, "causal": True, "padding": None}
    torch.testing.assert_close(with_tile(2, 3)(*inputs, **how), explicit(*inputs, **how))


def test_a_later_key_changes_no_earlier_answer():
    query, key, value = (draw(1, 2, 12, 4, seed=i).detach() for i in range(3))
    how = {"scale": 0.5, "causal": True, "padding": None, "tile": (5, 4)}
    before = tiled(query, key, value, **how)
    after = tiled(query, key.index_fill(2, torch.tensor([7]), 9.0), value.index_fill(2, torch.tensor([7]), 9.0), **how)
    assert torch.equal(before[:, :, :7], after[:, :, :7])
    assert not torch.equal(before[:, :, 7:], after[:, :, 7:])


# Dropout: whatever is left out, it is the weights after the softmax, and the same ones in the backward pass.


def test_dropout_leaves_out_weights_of_the_formula():
    inputs = [draw(1, 2, 6, 3, seed=i) for i in range(3)]
    torch.manual_seed(5)
    mixture = tiled(*inputs, scale=0.6, causal=True, padding=None, dropout=0.3, tile=(4, 2))
    torch.manual_seed(5)
    seed = int(torch.randint(2**62, ()))
    tiling = Tiling(6, 6, (4, 2), 0.6, True, None, 0.3, seed)
    kept = torch.zeros(1, 2, 6, 6, dtype=torch.float64)
    for rows in tiling.strips():
        for columns in tiling.tiles(rows):
            kept[..., rows, columns] = tiling.drop(torch.ones_like(kept[..., rows, columns]), rows, columns)
    mask = visible(6, 6, causal=True, padding=None, device=torch.device("cpu"))
    weights = attention(*inputs, scale=0.6, mask=mask)[1]
    torch.testing.assert_close(mixture, (kept * weights) @ inputs[2])


def test_dropout_follows_the_global_seed_and_leaves_out_its_share():
    query = key = torch.zeros(1, 1, 200, 2)
    value = torch.ones(1, 1, 200, 1)
    how = {"scale": 1.0, "causal": False, "padding": None, "dropout": 0.25}
    torch.manual_seed(1)
    first = tiled(query, key, value, **how)
    second = tiled(query, key, value, **how)
    torch.manual_seed(1)
    assert torch.equal(first, tiled(query, key, value, **how))
    assert not torch.equal(first, second)
    # 40,000 weights, each kept with chance 0.75 and then divided by it: the mean is 1 +- 0.003.
    assert first.mean().item() == pytest.approx(1, abs=0.012)


def test_no_dropout_takes_no_random_number():
    inputs = [draw(1, 1, 4, 2, seed=i) for i in range(3)]
    state = torch.get_rng_state()
    tiled(*inputs, scale=1.0, causal=True, padding=None)
    assert torch.equal(state, torch.get_rng_state())


def test_dropout_acts_only_while_training():
    layer = MultiHeadAttention(8, 2, dropout=0.5, backend="tiled")
    x = draw(1, 6, 8, dtype=torch.float32)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


# In a model.


def test_the_tiled_back_end_trains_as_the_explicit_one():
    tokens = torch.randint(9, (2, 3, 17), generator=torch.Generator().manual_seed(0))
    losses = {}
    for backend in ("explicit", "tiled"):
        model = LanguageModel(9, width=16, context=16, n_layers=2, n_heads=2, backend=backend).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses[backend] = []
        for _ in range(5):
            error = loss(model(tokens[0, :, :-1]), tokens[0, :, 1:])
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            losses[backend].append(error.item())
    assert losses["tiled"] == pytest.approx(losses["explicit"], abs=1e-9)
    assert losses["tiled"][-1] < losses["tiled"][0]


def test_under_autocast_sums_stay_in_float32():
    inputs = [draw(1, 2, 40, 8, seed=i, dtype=torch.float32) for i in range(3)]
    how = {"scale": 0.35, "causal": True, "padding": None}
    expected, _ = answer_and_gradients(tiled, inputs, **how)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixture, gradients = answer_and_gradients(tiled, inputs, **how)
    assert torch.equal(mixture, expected)
    half = [x.detach().bfloat16().requires_grad_() for x in inputs]
    mixture, gradients = answer_and_gradients(tiled, half, **how)
    assert mixture.dtype == gradients[0].dtype == torch.bfloat16
    torch.testing.assert_close(mixture.float(), expected, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [64, SHORT, SHORT + 1])
def test_fused_in_bfloat16_is_the_formula_as_near_as_its_eight_bits_allow(length, causal):
    exact = [draw(1, 2, length, 16, seed=i).detach().bfloat16().double().requires_grad_() for i in range(3)]
    rough = [x.detach().bfloat16().requires_grad_() for x in exact]
    how = {"scale": 0.25, "causal": causal, "padding": None}
    mixture, gradients = answer_and_gradients(fused, rough, **how)
    expected, expected_gradients = answer_and_gradients(explicit, exact, **how)
    assert mixture.dtype == gradients[0].dtype == torch.bfloat16
    for found, wanted in zip((mixture, *gradients), (expected, *expected_gradients), strict=True):
        assert (found.double() - wanted).norm() < 0.01 * wanted.norm()


# What it is for.


class Largest(TorchDispatchMode):
    """Notes the most elements that any result has."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_no_tensor_is_ever_as_large_as_the_square():
    inputs = [draw(1, 1, 256, 4, seed=i) for i in range(3)]
    padding = torch.ones(1, 256, dtype=torch.bool)
    with Largest() as seen:
        answer_and_gradients(with_tile(32, 16), inputs, scale=0.5, causal=True, padding=padding)
    assert seen.elements == 256 * 4  # the inputs; a tile has 512
    with Largest() as seen:
        answer_and_gradients(explicit, inputs, scale=0.5, causal=True, padding=padding)
    assert seen.elements == 256 * 256


def test_memory_is_linear_in_tiles_and_quadratic_without():
    lengths = (256, 512, 1024, 2048)
    peaks = {
        backend: [allocated_peak(partial(step(backend, 64), *make_inputs(n, 32))) for n in lengths]
        for backend in ("explicit", "tiled")
    }
    assert slope(lengths, peaks["tiled"]) <= 1.1
    assert slope(lengths, peaks["explicit"]) == pytest.approx(2, abs=0.1)


def test_a_causal_strip_skips_the_tiles_it_may_not_read():
    tiling = Tiling(64, 64, (8, 8), 1.0, causal=True, padding=None, dropout=0.0, seed=0)
    tiles = sum(len(list(tiling.tiles(rows))) for rows in tiling.strips())
    assert tiles == 8 * 9 // 2
    assert math.isclose(tiles / 64, 0.5, abs_tol=0.1)
