"""Which figures say something about a lookup, whatever model it comes from?

Pure functions on tensors and lists of numbers, used by the claims and by whoever probes a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def flatness(weights: Tensor, readable: Tensor | None = None) -> Tensor:
    """Entropy of each row over the largest it could be, ln n: (..., T, S) -> (..., T).

    1 is attention that takes everything alike, 0 is attention to one position. `readable`, (..., T)
    counts the positions that each row may read, S if not given. NaN for a row that has no choice.
    """
    entropy = -torch.special.xlogy(weights, weights).sum(dim=-1)
    count = torch.as_tensor(weights.shape[-1]) if readable is None else readable
    return entropy / count.to(weights.dtype).log()


def distance_to_hull(point: Tensor, corners: Tensor) -> float:
    """How far `point` (K) is from the nearest mixture of `corners` (S, K), in its worst component.

    Zero, to the 1e-7 that the solver allows itself, if weights that are positive and sum to one
    can make it. A linear programme: over weights w and a distance t, the least t for which every
    component of w @ corners is within t of the point's.
    """
    from scipy.optimize import linprog

    spots = np.asarray(corners.detach(), dtype=np.float64)
    target = np.asarray(point.detach(), dtype=np.float64)
    n, k = spots.shape
    least_t = np.append(np.zeros(n), 1.0)
    within = np.block([[spots.T, -np.ones((k, 1))], [-spots.T, -np.ones((k, 1))]])
    sums = np.append(np.ones(n), 0.0)[None]
    result = linprog(least_t, A_ub=within, b_ub=np.concatenate([target, -target]), A_eq=sums, b_eq=[1.0])
    return float(result.fun)


def residual(x: Tensor) -> float:
    """What is left of the rows (T, D) after the part they have in common, as a share of their norm.

    0 when all positions are alike, which is rank one (`res` in Dong et al. 2021, here in the
    Frobenius norm, whose best common row is the mean).
    """
    return ((x - x.mean(dim=0)).norm() / x.norm()).item()


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The power p of the best y = c x^p, by least squares on the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
