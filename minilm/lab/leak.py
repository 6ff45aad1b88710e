"""Does the model read what it is asked to predict?

Two ways to find out. Change a character and see whether an earlier answer moves. Or hide the
future for real: give the model nothing but the prefix, and see whether it is still as good.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from minilm.model import LanguageModel
from minilm.modes import evaluating

PLACES = 64  # the most places per window that are changed, or scored from their prefix
TOLERANCE = 1e-5  # of the largest logit; what rounding may move
AT_ONCE = 16_384  # characters in one pass


class Leak(NamedTuple):
    """Whether a later character reaches an earlier answer."""

    leaks: bool
    largest: float  # change of a logit, as a share of the largest logit


def future_leak(model: LanguageModel, window: Tensor) -> Leak:
    """Change one character of (T) after another; does any logit before it move?

    At most 64 places, spread over the window, are changed, each into the next character of
    the vocabulary.
    """
    size = model.head.out_features
    places = spread(1, len(window) - 1)
    changed = window.repeat(len(places), 1)  # (P, T)
    rows = torch.arange(len(places))
    changed[rows, places] = (window[places] + 1) % size
    earlier = torch.arange(len(window)) < places[:, None]  # (P, T): before the change
    largest = scale = 0.0
    chunk = max(1, AT_ONCE // len(window))
    with evaluating(model), torch.no_grad():
        for part, before in zip(changed.split(chunk), earlier.split(chunk), strict=True):
            # The unchanged window goes through in the same batch shape, so that both round alike.
            usual = model(window.expand_as(part))
            moved = (model(part) - usual).abs().amax(-1)  # (P, T)
            largest = max(largest, moved[before].max().item())
            scale = max(scale, usual.abs().max().item())
    share = largest / scale if scale else largest
    return Leak(share > TOLERANCE, share)


def spread(first: int, last: int, most: int = PLACES) -> Tensor:
    """At most `most` whole numbers from `first` to `last`, evenly spread, both ends among them."""
    return torch.linspace(first, last, min(most, last - first + 1)).round().long().unique()


def honest_losses(model: LanguageModel, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log p of each target where the model holds its prefix only.

    The teacher-forced loss of a model without a mask is no measure: the answer is in the input.
    For a causal model both are the same number.

    Args:
        inputs, targets: (n, T) each.

    Returns:
        places (P), all T or 64 of them, and losses (n, P), float64.
    """
    places = spread(0, inputs.shape[1] - 1)
    losses = []
    with evaluating(model), torch.no_grad():
        for place in places.tolist():
            prefix, target = inputs[:, : place + 1], targets[:, place]
            rows = max(1, AT_ONCE // (place + 1))
            logits = torch.cat([model(part)[:, -1] for part in prefix.split(rows)])  # (n, V)
            losses.append(F.cross_entropy(logits, target, reduction="none"))
    return places, torch.stack(losses, dim=1).double()
