"""Why are scores divided by the square root of the key width?

The dot product of two vectors of K independent components of variance 1 has variance K. The
wider the key, the larger the scores, and a softmax of large scores is so sure of its choice
that a small change of a score changes nothing (Vaswani et al. 2017, section 3.2.1).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from minilm.attention import attention, dot_product
from minilm.lab.drawing import line, new_figure, tidy
from minilm.lab.finding import Finding, normal
from minilm.lab.measures import slope

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
ROWS, POSITIONS = 512, 64
DEAD = 1e-3  # a gradient this small, about 1/200 of the usual one, moves nothing


class Saturation(NamedTuple):
    """What a softmax over 64 positions lets through, over 512 rows of unit-variance queries and keys."""

    width: int  # K
    std: float  # of what enters the softmax
    mean: float  # norm of the gradient that arrives at what enters the softmax
    median: float
    dead: float  # share of the rows whose gradient is smaller than DEAD


@cache
def saturation(width: int, scaled: bool) -> Saturation:
    """Send a random gradient of unit variance back from the weights to the scores."""
    query, key = normal("saturation/query", ROWS, 1, width), normal("saturation/key", ROWS, POSITIONS, width)
    scale = 1 / math.sqrt(width) if scaled else 1.0
    scores: list[Tensor] = []

    def score(query: Tensor, key: Tensor) -> Tensor:
        scores.append(dot_product(query, key).requires_grad_())
        return scores[0]

    # The identity as values, so that the mixture is the weights.
    identity = torch.eye(POSITIONS, dtype=torch.float64).expand(ROWS, -1, -1)
    everything = torch.ones(1, POSITIONS, dtype=torch.bool)
    weights, _ = attention(query, key, identity, scale=scale, mask=everything, score=score)
    (arriving,) = torch.autograd.grad(weights, scores, normal("saturation/gradient", ROWS, 1, POSITIONS))
    norm = (arriving / scale).norm(dim=-1)  # undo the scale: what arrives at the softmax's own input
    std = scale * scores[0].std().item()
    return Saturation(width, std, norm.mean().item(), norm.median().item(), (norm < DEAD).double().mean().item())


def table() -> list[str]:
    """The gradient against the key width, with the scale and without."""
    lines = ["  key   std of scores    mean gradient    median gradient    share of dead rows"]
    lines += ["width  scaled     raw   scaled     raw    scaled       raw      scaled       raw"]
    for width in WIDTHS:
        with_, without = saturation(width, True), saturation(width, False)
        lines.append(
            f"{width:5}  {with_.std:6.2f}  {without.std:6.2f}   {with_.mean:6.3f}  {without.mean:6.3f}"
            f"    {with_.median:6.3f}  {without.median:8.5f}      {with_.dead:6.3f}    {without.dead:6.3f}"
        )
    return lines


def draw() -> Figure:
    """Mean and median gradient against the key width."""
    figure = new_figure()
    axes = figure.add_subplot()
    for number, (scaled, name) in enumerate(((True, "divided by sqrt(K)"), (False, "not divided"))):
        runs = [saturation(width, scaled) for width in WIDTHS]
        line(axes, WIDTHS, [r.median for r in runs], number, f"{name}, median row")
        line(axes, WIDTHS, [r.mean for r in runs], number, f"{name}, mean", linestyle="--", alpha=0.6)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(WIDTHS, [str(width) for width in WIDTHS])
    tidy(axes, "What the softmax lets through", "key width K", "gradient at the scores")
    axes.legend(frameon=False)
    return figure


def scores_grow_with_the_root_of_the_key_width() -> Finding:
    raw = [saturation(width, False).std for width in WIDTHS]
    scaled = [saturation(width, True).std for width in WIDTHS]
    off = max(abs(std / math.sqrt(width) - 1) for width, std in zip(WIDTHS, raw, strict=True))
    return Finding(
        "For large key widths the dot products grow large.",
        {
            "std at K = 2, raw": raw[0],
            "std at K = 512, raw": raw[-1],
            "exponent against K, raw": slope(WIDTHS, raw),
            "furthest from sqrt(K), as a share": off,
            "furthest from 1 when divided": max(abs(std - 1) for std in scaled),
        },
        as_stated=off < 0.05 and max(abs(std - 1) for std in scaled) < 0.05,
        core=True,
        precisely="For independent components of variance 1 their std is sqrt(K), and 1 after the division. A model "
        "starts like that; training may make them anything.",
    )


def unscaled_scores_saturate_the_softmax() -> Finding:
    at = {width: (saturation(width, True), saturation(width, False)) for width in (64, 512)}
    (narrow, narrow_raw), (wide, wide_raw) = at[64], at[512]
    lost = 1 - narrow_raw.median / narrow.median
    return Finding(
        "Large scores push the softmax to where its gradients are extremely small; the division prevents it.",
        {
            "median gradient at K = 64, divided": narrow.median,
            "median gradient at K = 64, raw": narrow_raw.median,
            "median gradient at K = 512, divided": wide.median,
            "median gradient at K = 512, raw": wide_raw.median,
            "mean gradient at K = 512, raw": wide_raw.mean,
            "share of dead rows at K = 512, divided": wide.dead,
            "share of dead rows at K = 512, raw": wide_raw.dead,
        },
        as_stated=narrow_raw.median < 0.1 * narrow.median and wide_raw.mean < 0.1 * wide.mean,
        core=wide_raw.median < 0.1 * wide.median and wide_raw.dead > 0.25 and wide.dead == 0,
        precisely="It happens row by row: some rows go dead while others, where two scores are close, still learn. So "
        f"the median falls much faster than the mean, and at K = 64 it has lost {lost:.0%}, not all.",
    )
