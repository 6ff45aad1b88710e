"""The measures of a head, each on rows whose answer is known."""

import math

import pytest
import torch

from minilm.attention import Lookup, MultiHeadAttention
from minilm.lab.heads import key_length, largest_weight, passes, row_flatness, score_std


def lookup_of(weights: torch.Tensor, key: torch.Tensor | None = None, query: torch.Tensor | None = None) -> Lookup:
    key = torch.randn(*weights.shape[:3], 4) if key is None else key
    return Lookup(key if query is None else query, key, key, weights, key)


CAUSAL = torch.ones(8, 8, dtype=torch.bool).tril()
READABLE = CAUSAL.sum(-1)


def flat_rows() -> torch.Tensor:
    return (CAUSAL / READABLE[:, None])[None, None]


def one_hot_rows() -> torch.Tensor:
    return torch.eye(8)[None, None]


def test_flatness_is_one_for_flat_rows_and_zero_for_one_position():
    assert row_flatness(flat_rows(), READABLE).item() == pytest.approx(1)
    assert row_flatness(one_hot_rows(), READABLE).item() == 0


def test_the_largest_weight_of_flat_rows_is_an_even_share():
    rows = [1 / n for n in range(2, 9)]  # the first row has no choice
    assert largest_weight(flat_rows(), READABLE).item() == pytest.approx(sum(rows) / 7)
    assert largest_weight(one_hot_rows(), READABLE).item() == 1


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_what_passes_the_softmax_is_the_norm_of_its_jacobian(spread):
    scores = spread * torch.randn(8, generator=torch.Generator().manual_seed(0)).double()
    norm = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores).norm()
    flat = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), torch.zeros(8).double()).norm()
    weights = scores.softmax(-1)[None, None, None]
    assert passes(weights, torch.tensor([8])).item() == pytest.approx((norm / flat).item())


def test_nothing_passes_a_row_that_has_made_up_its_mind():
    assert passes(one_hot_rows(), READABLE).max() == 0
    assert torch.allclose(passes(flat_rows(), READABLE), torch.ones(7))


def test_the_spread_of_scores_is_theirs_within_a_row():
    attention = MultiHeadAttention(4, 1, scaled=False)
    key = torch.tensor([1.0, -1.0] * 4)[None, None, :, None] * torch.tensor([3.0, 0, 0, 0])
    query = torch.ones(1, 1, 8, 4)
    everything = torch.ones(8, 8, dtype=torch.bool)
    assert score_std(attention, lookup_of(flat_rows(), key, query), everything).item() == pytest.approx(3)
    # What all keys have in common moves no weight.
    assert score_std(attention, lookup_of(flat_rows(), key + 100, query), everything).item() == pytest.approx(
        3, abs=0.01
    )


def test_a_long_key_that_is_read_more_is_found():
    lengths = torch.arange(1.0, 9)
    key = lengths[None, None, :, None].expand(3, 1, -1, 4)
    everything = torch.ones(8, 8, dtype=torch.bool)
    rows = lengths.softmax(-1).expand(3, 1, 8, -1)
    assert key_length(lookup_of(rows, key), everything).item() == pytest.approx(1)
    assert key_length(lookup_of(rows.flip(-1), key), everything).item() == pytest.approx(-1)


def test_early_keys_are_not_taken_for_long_ones():
    """Under the mask early keys have more readers; counted in even shares a flat head prefers none."""
    key = torch.linspace(9, 1, 8)[None, None, :, None].expand(1, 1, -1, 4)
    assert math.isnan(key_length(lookup_of(flat_rows().expand(1, 1, 8, 8), key), CAUSAL).item())
