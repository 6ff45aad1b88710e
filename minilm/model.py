"""What stands around attention, and why?

Attention moves information between positions but only averages it. The feed-forward part,
applied to each position alone, is what decides. A block is one of each, both written as a
change added to a stream that runs through the whole model. A language model is an embedding,
a stack of blocks, and a score for every character that might come next.

An ablation is a value given to a constructor; `forward` reads the same for every arm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minilm.attention import Cache, MultiHeadAttention
from minilm.embedding import Embedding
from minilm.parameters import initialise


class FeedForward(nn.Module):
    """Widen, bend, narrow, at each position alone (Vaswani et al. 2017, 3.3): 8 D^2 weights, twice attention's."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.activation = activation
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))  # (B, T, D) -> (B, T, 4D) -> (B, T, D)


def squared_relu(x: Tensor) -> Tensor:
    """A bend that takes a fraction of GELU's time (So et al. 2021)."""
    return F.relu(x).square()


class Nothing(nn.Module):
    """The feed-forward part of the arm that has none: it adds zero to the stream."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def feed_forward_named(name: str, width: int) -> nn.Module:
    """`gelu`, `gelu_tanh` (GPT-2's), `squared_relu`; `linear`, two matrices with no bend between; or `none`."""
    if name == "none":
        return Nothing()
    gelus = {"gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh")}
    bends: dict[str, Callable[[Tensor], Tensor]] = {"squared_relu": squared_relu, "linear": torch.positive, **gelus}
    return FeedForward(width, bends[name])


class Block(nn.Module):
    """Attention, then feed-forward, each on a normalised copy of the stream (pre-norm).

    Args:
        width: D.
        feed_forward: see feed_forward_named.
        residual: whether each part adds to the stream or replaces it.
        norm: whether each part sees a normalised stream (layer norm, Ba et al. 2016).
        dropout: share left out, while training, of the weights and of each part's output.
        attention: the other settings of MultiHeadAttention.
    """

    def __init__(
        self, width: int, *, feed_forward="gelu", residual: bool = True, norm: bool = True, dropout=0.0, **attention
    ) -> None:
        super().__init__()
        self.keep = 1.0 if residual else 0.0
        self.attention_norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.attention = MultiHeadAttention(width, dropout=dropout, **attention)
        self.feed_forward_norm = nn.LayerNorm(width) if norm and feed_forward != "none" else nn.Identity()
        self.feed_forward = feed_forward_named(feed_forward, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *, padding: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        mixture = self.attention(self.attention_norm(x), padding=padding, cache=cache)
        x = torch.add(self.dropout(mixture), x, alpha=self.keep)  # (B, T, D): mixture + keep x, in one pass
        return torch.add(self.dropout(self.feed_forward(self.feed_forward_norm(x))), x, alpha=self.keep)


class LanguageModel(nn.Module):
    """Scores for the next character at every position: (B, T) integers -> (B, T, V) logits.

    Args:
        vocabulary, width, context: V, D and the largest T.
        n_layers: number of blocks.
        position: `learned`, `sinusoidal`, `rotary` (in attention, nothing is added) or `none`.
        seed: what the initial weights are drawn from, one stream per parameter name.
        block: the other settings of Block and MultiHeadAttention.
    """

    block: type[nn.Module] = Block  # what the stack is made of

    def __init__(
        self, vocabulary: int, *, width: int, context: int, n_layers: int, position="learned", seed: int = 0, **block
    ) -> None:
        super().__init__()
        self.context, self.causal = context, block.get("causal", True)
        block |= {"rotary": True} if position == "rotary" else {}
        self.embedding = Embedding(vocabulary, width, context, position)
        self.dropout = nn.Dropout(block.get("dropout", 0.0))
        self.blocks = nn.ModuleList(self.block(width, **block) for _ in range(n_layers))
        self.final_norm = nn.LayerNorm(width) if block.get("norm", True) else nn.Identity()
        self.head = nn.Linear(width, vocabulary, bias=False)
        initialise(self, seed)

    def forward(
        self, tokens: Tensor, *, padding: Tensor | None = None, caches: Sequence[Cache | None] = (), start: int = 0
    ) -> Tensor:
        """(B, T) -> (B, T, V).

        `padding` (B, T) is True at real tokens. `caches`, one per block, hold the `start`
        positions that come before `tokens`.
        """
        x = self.dropout(self.embedding(tokens, start))  # (B, T, D)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, padding=padding, cache=cache)  # (B, T, D)
        return self.head(self.final_norm(x))  # (B, T, V)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -log p(target) in nats: (B, T, V), (B, T) -> ()."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
