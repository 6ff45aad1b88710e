"""Do the measures of the lab say what is so, where the answer is known?"""

import math

import pytest
import torch

from minilm.lab import collapse, geometry
from minilm.lab.measures import distance_to_hull, flatness, residual
from minilm.model import Block


def test_flatness_is_one_for_all_alike_and_zero_for_one_word():
    rows = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    assert flatness(rows).tolist() == pytest.approx([1, 0, 0.5])
    readable = flatness(rows, torch.tensor([4, 1, 2]))
    assert readable[0] == readable[2] == 1
    assert readable[1].isnan()


def test_distance_to_hull_tells_inside_from_outside():
    square = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert distance_to_hull(torch.tensor([0.3, 0.9]), square) == pytest.approx(0, abs=1e-7)
    assert distance_to_hull(torch.tensor([0.3, 1.001]), square) == pytest.approx(0.001, rel=1e-3)
    assert distance_to_hull(torch.tensor([-2.0, 1.5]), square) == pytest.approx(2)


def test_residual_is_what_rows_do_not_share():
    assert residual(torch.ones(5, 3)) == 0
    assert residual(torch.tensor([[1.0], [-1.0]])) == 1


def test_a_stack_with_all_its_parts_is_the_model_s_block():
    """`differences` builds its layers by hand to be able to leave parts out; whole, they are model.py's."""
    block = Block(collapse.WIDTH, n_heads=collapse.HEADS, causal=False, backend="explicit").double()
    attend, feed_forward = collapse.layer("test", causal=False)
    block.attention.load_state_dict(attend.state_dict())
    block.feed_forward.load_state_dict(feed_forward.state_dict())
    x = torch.randn(1, 5, collapse.WIDTH, dtype=torch.float64)
    middle = x + attend(collapse.normed(x))
    torch.testing.assert_close(block(x), middle + feed_forward(collapse.normed(middle)))


def test_levelled_keys_are_equally_long():
    query, key = torch.eye(3), torch.tensor([[2.0, 0, 0], [0, 0.1, 0], [0, 0, 7.0]])
    assert geometry.against_directions(query, key).diagonal().tolist() == pytest.approx([math.sqrt(3)] * 3)
