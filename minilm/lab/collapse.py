"""What becomes of a stack of nothing but attention?

Each layer averages, so the positions grow alike. Without residual and without mask what sets
them apart shrinks to about its third power with every layer: doubly exponentially in depth
(Dong et al. 2021, "Attention is not all you need").
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minilm.attention import MultiHeadAttention
from minilm.lab.drawing import line, new_figure, tidy
from minilm.lab.finding import Finding, draw_weights, normal
from minilm.lab.measures import residual, slope
from minilm.model import FeedForward

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEPTH, LENGTH, WIDTH, HEADS, SEEDS = 12, 32, 64, 4, 3
STACKS = {  # name: (residual, feed-forward, causal)
    "attention alone": (False, False, False),
    "with feed-forward": (False, True, False),
    "with residual": (True, False, False),
    "with both": (True, True, False),
    "attention alone, causal": (False, False, True),
}


def layer(stream: str, causal: bool) -> tuple[MultiHeadAttention, FeedForward]:
    """One layer with weights of its own."""
    parts = MultiHeadAttention(WIDTH, HEADS, causal=causal, backend="explicit"), FeedForward(WIDTH, nn.GELU())
    for part in parts:
        draw_weights(part, stream)
    return parts


def normed(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


@torch.no_grad()
def differences(seed: int, *, keep: bool, think: bool, causal: bool) -> list[float]:
    """What sets the positions apart, as a share, at the start and after each of the layers.

    Args:
        keep: whether each part adds to the stream (residual) or replaces it.
        think: whether there is a feed-forward part.
    """
    x = normal(f"collapse/x/{seed}", 1, LENGTH, WIDTH)
    shares = [residual(x[0])]
    for depth in range(DEPTH):
        attend, feed_forward = layer(f"collapse/{seed}/{depth}", causal)
        x = keep * x + attend(normed(x))
        x = keep * x + feed_forward(normed(x)) if think else x
        shares.append(residual(x[0]))
    return shares


@cache
def decay(name: str) -> list[float]:
    """The geometric mean of `differences` over the seeds, for one of the stacks."""
    keep, think, causal = STACKS[name]
    runs = torch.tensor([differences(seed, keep=keep, think=think, causal=causal) for seed in range(SEEDS)])
    return runs.log().mean(dim=0).exp().tolist()


@torch.no_grad()
def power(causal: bool) -> float:
    """p, if one layer of attention turns small differences r into about c r^p."""
    attend, _ = layer("collapse/power", causal)
    shared, apart = normal("collapse/shared", 1, 1, WIDTH), normal("collapse/apart", 1, LENGTH, WIDTH)
    starts = [shared + size * apart for size in (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)]
    return slope([residual(x[0]) for x in starts], [residual(attend(normed(x))[0]) for x in starts])


def table() -> list[str]:
    """What sets the positions apart, against depth."""
    lines = ["layers  " + "   ".join(STACKS)]
    for depth in range(DEPTH + 1):
        cells = [f"{decay(name)[depth]:{len(name)}.2g}" for name in STACKS]
        lines.append(f"{depth:6}  " + "   ".join(cells))
    return lines


def draw() -> Figure:
    """The same as lines."""
    figure = new_figure()
    axes = figure.add_subplot()
    for number, name in enumerate(STACKS):
        line(axes, range(DEPTH + 1), decay(name), number, name)
    axes.set_yscale("log")
    axes.axhline(2.2e-16, color="0.5", linewidth=1, linestyle=":")
    axes.text(0, 3e-16, "rounding of float64", va="bottom", color="0.4", fontsize=8)
    tidy(axes, "What still sets the positions apart", "layers", "share of the norm that is not common to all")
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.42))
    return figure


def stacked_attention_collapses_into_one_layer() -> Finding:
    """Two layers, x -> w2 (w1 x v1) v2: with the weights w frozen, and as they are."""
    first, second = (MultiHeadAttention(WIDTH, 1, causal=False, backend="explicit") for _ in range(2))
    draw_weights(first, "stack/first")
    draw_weights(second, "stack/second")
    x, y = normal("stack/x", 1, LENGTH, WIDTH), normal("stack/y", 1, LENGTH, WIDTH)
    with torch.no_grad():
        middle = first(x)
        stacked = second(middle)
        w1, w2 = first.lookup(x).weights[:, 0], second.lookup(middle).weights[:, 0]  # each (1, T, T)
        v1, v2 = (part.value.weight.T @ part.output.weight.T for part in (first, second))  # each (D, D)
        frozen = (w2 @ w1) @ x @ (v1 @ v2)  # one set of weights, one matrix
        changed = (w2 @ w1) @ y @ (v1 @ v2)
        scale = stacked.abs().max().item()
        off_frozen = (stacked - frozen).abs().max().item() / scale
        off_input = (second(first(y)) - changed).abs().max().item() / scale
        off_sum = (second(first(x + y)) - stacked - second(first(y))).abs().max().item() / scale
    return Finding(
        "Averaging is linear, so a stack of attention layers collapses into one, as linear layers do.",
        {
            "two layers against one matrix, weights frozen (relative)": off_frozen,
            "the same matrix on another input (relative)": off_input,
            "f(x + y) against f(x) + f(y) (relative)": off_sum,
        },
        as_stated=off_input < 1e-9 and off_sum < 1e-9,
        core=off_frozen < 1e-9,
        precisely="Exactly so for weights that are frozen. But the weights depend on the input, so the stack is no "
        "linear map: the one matrix is another for each input.",
    )


def something_non_linear_must_stand_beside_attention() -> Finding:
    at = 6
    alone, think, keep, both = (decay(name)[at] for name in list(STACKS)[:4])
    causal = decay("attention alone, causal")
    return Finding(
        "It takes something non-linear beside attention to keep a stack from collapsing.",
        {
            f"what sets positions apart after {at} layers, attention alone": alone,
            "with feed-forward": think,
            "with residual": keep,
            "with both": both,
            "attention alone, causal": causal[at],
            "power by which one layer shrinks small differences": power(causal=False),
            "the same, causal": power(causal=True),
        },
        as_stated=alone < 1e-9 and think > 0.1,
        core=alone < 1e-9 and abs(power(causal=False) - 3) < 0.1 and keep > 0.3 and both > 0.3,
        precisely="The collapse is real: all positions become one, doubly exponentially in depth. But it is the "
        "residual that prevents it; a feed-forward part alone does not. With the causal mask the fall is merely "
        "exponential, as positions then average over different pasts. What needs the non-linear part is deciding.",
    )
