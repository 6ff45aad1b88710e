"""How does a position find, among the positions it may read, what it needs?

It asks a query, compares it with every key, turns the scores into weights that sum to one,
and takes the weighted mixture of the values (Vaswani et al. 2017, equation 1):

    attention(Q, K, V) = softmax(Q K^T / sqrt(K)) V

`attention` is that formula and nothing else. `MultiHeadAttention` is the plumbing around it:
project, split into heads, look up, join. An ablation is a value given to its constructor.

Shape legend, used in the whole package:

    B  batch            T  time (positions that ask)     S  positions that can be read
    D  model width      H  heads                         K  key width of one head, D / H
    V  vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minilm.rotary import rotate


def dot_product(query: Tensor, key: Tensor) -> Tensor:
    """Score every key against every query: (..., T, K), (..., S, K) -> (..., T, S)."""
    return query @ key.transpose(-2, -1)


class AdditiveScore(nn.Module):
    """v . tanh(W q + U k) (Bahdanau et al. 2015, A.1.2): (..., T, K), (..., S, K) -> (..., T, S), by T S K numbers.

    Nothing divides it: v starts with std 1/sqrt(K), so scores start with std 0.7 at any K, and none is
    ever larger than the sum of |v|, however long the key. The heads share W, U and v.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)  # W
        self.key = nn.Linear(width, width, bias=False)  # U
        self.direction = nn.Parameter(torch.randn(width) / math.sqrt(width))  # v

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        pairs = self.query(query)[..., :, None, :] + self.key(key)[..., None, :, :]  # (..., T, S, K)
        return pairs.tanh() @ self.direction


def attention(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, mask: Tensor, score=dot_product, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Look up `query` among `key` and mix `value` accordingly.

    Args:
        query, key, value: (..., T, K), (..., S, K), (..., S, K).
        scale: factor on the scores; 1/sqrt(K) keeps them at unit variance.
        mask: boolean, broadcastable to (..., T, S); True where a position may be read.
        score: how queries and keys are compared.
        dropout: share of the weights that is left out of the mixture.

    Returns:
        mixture (..., T, K), and the weights before dropout (..., T, S), whose rows sum to one.
        A row that may read nothing gets zeros in both.
    """
    scores = scale * score(query, key)  # (..., T, S)
    # The lowest finite number rather than -inf: its exponential is zero as well, and a row
    # that is hidden whole stays finite in the backward pass. The second fill empties that row.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def visible(n_query: int, n_key: int, *, causal: bool, padding: Tensor | None, device: torch.device) -> Tensor:
    """The mask: True where one of T queries, the last of S positions, may read a key.

    `padding` is (B, S), True at real tokens. Returns (T, S), or (B, 1, T, S) with padding.
    """
    mask = torch.ones(n_query, n_key, dtype=torch.bool, device=device)
    mask = mask.tril(n_key - n_query) if causal else mask
    return mask if padding is None else mask & padding[:, None, None, :]


def explicit(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, padding: Tensor | None, **settings: Any
) -> Tensor:
    """The formula above as a back end: (B, H, T, K), (B, H, S, K), (B, H, S, K) -> (B, H, T, K)."""
    mask = visible(query.shape[-2], key.shape[-2], causal=causal, padding=padding, device=query.device)
    return attention(query, key, value, mask=mask, **settings)[0]


def backend_named(name: str) -> Callable[..., Tensor]:
    """`explicit`, `tiled`, `fused` or `auto` (fused). All agree in values and gradients."""
    from minilm.kernels import fused, tiled  # the one import from further down: kernels uses `visible`

    backends: dict[str, Callable[..., Tensor]] = {"explicit": explicit, "tiled": tiled, "fused": fused, "auto": fused}
    return backends[name]


class Cache(Protocol):
    """Keys and values that one layer has seen so far, `length` of each (see generation.py)."""

    length: int

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]: ...


class Lookup(NamedTuple):
    """All that one attention layer computes on the way, for whoever wants to look."""

    query: Tensor  # (B, H, T, K)
    key: Tensor  # (B, H, T, K)
    value: Tensor  # (B, H, T, K)
    weights: Tensor  # (B, H, T, T)
    mixture: Tensor  # (B, H, T, K)


class MultiHeadAttention(nn.Module):
    """H lookups side by side, each with its own query, key and value (Vaswani et al. 2017, 3.2.2).

    Args:
        width, n_heads: D and H, a divisor of D.
        causal: whether a position is kept from reading later ones.
        scaled: whether scores are divided by sqrt(K).
        dropout: share of the weights left out while training.
        score: `dot` or `additive`, which only the explicit back end computes and nothing divides.
        backend: see backend_named.
        rotary: whether queries and keys are turned by their place (see rotary.py).
    """

    def __init__(
        self, width: int, n_heads: int, causal=True, scaled=True, dropout=0.0, score="dot", backend="auto", rotary=False
    ) -> None:
        super().__init__()
        if n_heads < 1 or width % n_heads:
            raise ValueError(f"width {width} cannot be split into {n_heads} heads of equal width")
        if score not in ("dot", "additive") or (score == "additive" and backend not in ("auto", "explicit")):
            raise ValueError(f"score {score!r} is not one that the back end {backend!r} computes")
        self.n_heads, self.causal, self.rotary, self.dropout = n_heads, causal, rotary, dropout
        # K = 64: dot products of unit-variance queries and keys have std 8; divided by 8, std 1.
        self.scale = 1 / math.sqrt(width // n_heads) if scaled and score == "dot" else 1.0
        self.score = dot_product if score == "dot" else AdditiveScore(width // n_heads)
        # The other back ends have the dot product built in.
        self.backend = backend_named(backend) if score == "dot" else partial(explicit, score=self.score)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def project(self, x: Tensor, start: int = 0) -> list[Tensor]:
        """(B, T, D), the first at place `start` -> query, key, value, each (B, H, T, K)."""
        projected = (self.query(x), self.key(x), self.value(x))  # each (B, T, D)
        query, key, value = (p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for p in projected)
        return [*rotate(query, key, start=start), value] if self.rotary else [query, key, value]

    def forward(self, x: Tensor, *, padding: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); `padding` is (B, S), True at real tokens."""
        query, key, value = self.project(x, cache.length if cache else 0)  # each (B, H, T, K)
        if cache is not None:
            key, value = cache.append(key, value)  # each (B, H, S, K)
        # Functions know nothing of train() and eval(), so dropout is gated here.
        settings = {"scale": self.scale, "dropout": self.dropout if self.training else 0.0}
        mixture = self.backend(query, key, value, causal=self.causal, padding=padding, **settings)  # (B, H, T, K)
        return self.output(mixture.transpose(1, 2).flatten(-2))  # (B, T, D)

    def lookup(self, x: Tensor, *, padding: Tensor | None = None) -> Lookup:
        """The same computation with everything kept, by the explicit formula, without dropout."""
        query, key, value = self.project(x)
        mask = visible(x.shape[1], x.shape[1], causal=self.causal, padding=padding, device=x.device)
        mixture, weights = attention(query, key, value, scale=self.scale, mask=mask, score=self.score)
        return Lookup(query, key, value, weights, mixture)
