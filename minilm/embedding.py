"""How does the model know which character stands where?

Attention compares contents and is blind to order, so order has to be in the contents: a
vector for the token plus a vector for its place. The place comes from a table that is
learned, fixed (sinusoids), or all zeros: where attention turns its queries and keys instead
(rotary.py), and in the arm without position.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LOUDNESS = 0.02  # root mean square of token and position embeddings at the start


def sinusoids(context: int, width: int) -> Tensor:
    """The fixed table of Vaswani et al. 2017, section 3.5: (T, D).

    Even columns hold sin, odd ones cos, of the place times a frequency that falls from 1 to
    1/10000 along the columns.
    """
    place = torch.arange(context, dtype=torch.float32)[:, None]  # (T, 1)
    column = torch.arange(0, width, 2, dtype=torch.float32)
    angle = place * torch.exp(-math.log(10_000) * column / width)  # (T, D/2), one more if D is odd
    table = torch.empty(context, width)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table


def quiet_sinusoids(context: int, width: int) -> Tensor:
    """The same, as loud as the token embeddings at their start, so that neither drowns the other."""
    return math.sqrt(2) * LOUDNESS * sinusoids(context, width)  # a sine's root mean square is 1/sqrt(2)


class Embedding(nn.Module):
    """Token plus position: (B, T) integers -> (B, T, D).

    Args:
        vocabulary, width, context: V, D and the largest T.
        position: `learned`, `sinusoidal`; `rotary` and `none` add nothing here.
    """

    def __init__(self, vocabulary: int, width: int, context: int, position: str = "learned") -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        if position == "learned":
            self.position_embedding = nn.Parameter(torch.empty(context, width))
        else:
            table = quiet_sinusoids(context, width) if position == "sinusoidal" else torch.zeros(context, width)
            # Not persistent: it follows from the settings, so it has no place in a checkpoint.
            self.register_buffer("position_embedding", table, persistent=False)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """`start` is the place of the first token, above zero when earlier ones are cached."""
        end = start + tokens.shape[-1]
        if end > len(self.position_embedding):
            raise ValueError(f"{end} tokens do not fit into the context of {len(self.position_embedding)}")
        return self.token_embedding(tokens) + self.position_embedding[start:end]  # (B, T, D)
