"""What carried a fact forward before attention looked it up?

A recurrent network reads one character after another and keeps a state of fixed size, in which
all that it will ever need of the past has to stay. This one is a GRU (Cho et al. 2014). It
takes attention's place in the very block of the transformer, so that what is compared is the
one part and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from minilm.model import LanguageModel, feed_forward_named


@dataclass
class State:
    """What one layer carries from character to character: the cache of a recurrent model."""

    context: int  # not needed: a state takes as much room after one character as after thousands
    hidden: Tensor | None = None  # (1, B, R)


class Recurrence(nn.Module):
    """A GRU in the place of attention: (B, T, D) -> (B, T, D).

    Its state holds R = 2/3 D numbers, for then it has as many weights as attention: 3 R D + 3 R^2
    in the gates and R D on the way back are 4 D^2, like query, key, value and output.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        state = max(1, round(2 / 3 * width))
        self.gru = nn.GRU(width, state, batch_first=True)
        self.output = nn.Linear(state, width)

    def forward(self, x: Tensor, cache: State | None = None) -> Tensor:
        states, hidden = self.gru(x, cache.hidden if cache else None)  # (B, T, R), (1, B, R)
        if cache:
            cache.hidden = hidden
        return self.output(states)  # (B, T, D)


class RecurrentBlock(nn.Module):
    """Block with a recurrence for its attention; arguments and `forward` are the same."""

    def __init__(self, width: int, *, feed_forward="gelu", residual: bool = True, norm: bool = True, dropout=0.0):
        super().__init__()
        self.keep = 1.0 if residual else 0.0
        self.recurrence_norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.recurrence = Recurrence(width)
        self.feed_forward_norm = nn.LayerNorm(width) if norm and feed_forward != "none" else nn.Identity()
        self.feed_forward = feed_forward_named(feed_forward, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, padding: Tensor | None = None, cache: State | None = None) -> Tensor:
        if padding is not None:
            raise ValueError("a recurrent model reads every position: it has no way to leave padding out")
        x = self.keep * x + self.dropout(self.recurrence(self.recurrence_norm(x), cache))  # (B, T, D)
        return self.keep * x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))  # (B, T, D)


class RecurrentModel(LanguageModel):
    """A LanguageModel of recurrent blocks, with no position: a recurrence knows the order of what it read.

    Args:
        vocabulary, width, context, n_layers, seed: as in LanguageModel.
        block: the other settings of RecurrentBlock.
    """

    block = RecurrentBlock
    new_cache = State

    def __init__(self, vocabulary: int, **settings) -> None:
        super().__init__(vocabulary, position="none", **settings)
