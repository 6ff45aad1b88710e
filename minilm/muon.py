"""Which step moves a matrix equally far in every direction?

The gradient of a matrix is dominated by a few directions, so a step along it hardly moves the
rest. Muon (Jordan et al. 2024) replaces the averaged gradient by the nearest matrix that is
orthogonal: the same directions, all equally long. That matrix is found by five rounds of
products, no decomposition.

torch.optim.Muon does the same one matrix at a time; here all matrices of a shape go through
the rounds together, which on a small model takes half the time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# x -> ax + bx^3 + cx^5 brings any singular value in (0, 1] near 1 in a few rounds. Jordan et
# al. chose these to be quick at small values; the price is that 1 is met only within 0.3.
A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5


def orthogonalise(matrices: Tensor, precision: torch.dtype) -> Tensor:
    """Matrices with the same singular vectors and singular values near 1: (N, m, n) -> (N, m, n)."""
    x = matrices.to(precision)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)  # no singular value is above the norm
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, then `orthogonalise`, then a step of `lr` in every direction.

    Args:
        groups: parameters or groups of parameters, all matrices.
        lr: length of the step, for a matrix with more rows than columns times sqrt(rows/columns).
        momentum: memory of the averaged gradient, with Nesterov's look ahead.
        weight_decay: decay of the weights, times `lr`.
        precision: type in which to multiply; bfloat16 is exact enough.
    """

    def __init__(
        self,
        groups: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        precision: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.precision = precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for (rows, columns), parameters in alike.items():
                gradients = [p.grad for p in parameters]
                for p in parameters:
                    self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                memories = [self.state[p]["momentum_buffer"] for p in parameters]
                torch._foreach_lerp_(memories, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, memories, group["momentum"])
                steps = orthogonalise(torch.stack(ahead), self.precision)
                length = group["lr"] * math.sqrt(max(1.0, rows / columns))
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, list(steps.unbind()), alpha=-length)
