"""Muon against torch's own, and against what it promises."""

import pytest
import torch

from minilm.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(16, 16), (12, 40), (40, 12)])
def test_singular_values_come_near_one_and_vectors_stay(shape):
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    found = orthogonalise(matrices, torch.float32)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inner = left.mT @ found @ right.mT  # diagonal if the singular vectors are the same
    torch.testing.assert_close(inner, torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_few_steps_equal_those_of_torch(weight_decay):
    """torch's multiplies in bfloat16, so ours does here as well."""
    draw = torch.Generator().manual_seed(0)
    starts = [torch.randn(*shape, generator=draw) for shape in [(16, 16), (16, 16), (8, 24), (24, 8)]]
    ours, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    our_steps = Muon(ours, 0.02, weight_decay=weight_decay, precision=torch.bfloat16)
    their_steps = torch.optim.Muon(theirs, lr=0.02, weight_decay=weight_decay, momentum=0.95, nesterov=True)
    for _ in range(5):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=draw)
            other.grad = mine.grad.clone()
        our_steps.step()
        their_steps.step()
    for mine, other, start in zip(ours, theirs, starts, strict=True):
        moved = (other - start).norm()
        assert (mine - other).norm() < 0.02 * moved  # bfloat16 has 8 bits, and sums in another order


def test_a_parameter_without_gradient_stays():
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    Muon([parameter], 0.1).step()
    assert parameter.equal(torch.ones(4, 4))
