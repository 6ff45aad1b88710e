"""What does it take to say that a claim holds?

A figure that was measured, and a comparison that could have come out otherwise. A check is a
function without arguments that returns a Finding; its name names the claim, and its test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

HOLDS = "holds"
SHARPER = "holds only as stated more precisely"
FAILS = "does not hold as stated"


@dataclass(frozen=True)
class Finding:
    """One claim and what became of it."""

    claim: str  # what the article says, in our words
    figures: dict[str, float]  # what was measured
    as_stated: bool  # whether the figures bear out the claim, word for word
    core: bool  # whether they bear out what it is about
    precisely: str  # what does hold

    @property
    def verdict(self) -> str:
        if self.as_stated and self.core:
            return HOLDS
        return SHARPER if self.core else FAILS


def normal(stream: str, *shape: int) -> Tensor:
    """Float64 numbers from the standard normal distribution, the same on every run."""
    import torch

    from minilm.streams import generator

    return torch.randn(*shape, dtype=torch.float64, generator=generator(0, f"claims/{stream}"))


def draw_weights(part: nn.Module, stream: str) -> None:
    """Give `part` float64 matrices that keep unit variance, and no biases; the same on every run."""
    import torch

    for name, parameter in part.double().named_parameters():
        matrix = normal(f"{stream}/{name}", *parameter.shape) / parameter.shape[-1] ** 0.5
        parameter.data = matrix if parameter.dim() == 2 else torch.zeros_like(parameter)
