"""What does each head do with what it may read?

Figures per layer and head, averaged over the rows that have a choice: those that may read two
positions or more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from minilm.attention import Lookup, MultiHeadAttention, visible
from minilm.lab.measures import flatness
from minilm.lab.trace import attentions, lookups, trace
from minilm.model import LanguageModel

DEAD = 1 / 200  # of what passes a flat row; less than that moves nothing


class Heads(NamedTuple):
    """L lists of H numbers each."""

    flatness: list[list[float]]
    score_std: list[list[float]]
    largest_weight: list[list[float]]
    gradient: list[list[float]]
    dead_rows: list[list[float]]
    key_length: list[list[float]]


def heads(model: LanguageModel, tokens: Tensor) -> Heads:
    """Look at every head on some windows, (B, T)."""
    layers = []
    for attention, lookup in zip(attentions(model), lookups(model, trace(model, tokens)), strict=True):
        readable = can_read(attention, tokens)
        passed = passes(lookup.weights, readable.sum(-1))
        figures = (
            row_flatness(lookup.weights, readable.sum(-1)),
            score_std(attention, lookup, readable),
            largest_weight(lookup.weights, readable.sum(-1)),
            per_head(passed).median(dim=-1).values,
            per_head((passed < DEAD).float()).mean(dim=-1),
            key_length(lookup, readable),
        )
        layers.append([figure.tolist() for figure in figures])
    return Heads(*([layer[i] for layer in layers] for i in range(len(Heads._fields))))


def can_read(attention: MultiHeadAttention, tokens: Tensor) -> Tensor:
    """The mask of one layer: (T, T)."""
    size = tokens.shape[1]
    return visible(size, size, causal=attention.causal, padding=None, device=tokens.device)


def with_choice(readable: Tensor) -> Tensor:
    """The rows that may read two positions or more, given how many each may: (T) -> (T) booleans."""
    return readable > 1


def per_head(rows: Tensor) -> Tensor:
    """(B, H, T) -> (H, B T)."""
    return rows.transpose(0, 1).flatten(1)


def row_flatness(weights: Tensor, readable: Tensor) -> Tensor:
    """Entropy of the rows over the largest possible: (B, H, T, T), (T) -> (H).

    1 reads everything alike, 0 reads one position. The seed article calls a flat row attention
    that does nothing; at step 0 it is a softmax that can still learn.
    """
    rows = flatness(weights, readable)[..., with_choice(readable)]
    return per_head(rows).mean(dim=-1)


def score_std(attention: MultiHeadAttention, lookup: Lookup, readable: Tensor) -> Tensor:
    """How far apart the scores of a row are, as the softmax gets them: -> (H).

    The root of the mean variance within rows, since the softmax ignores what a row has in
    common. About 1 for unit-variance queries and keys with the scale, sqrt(K) without
    (Vaswani et al. 2017, footnote 4).
    """
    with torch.no_grad():
        scores = attention.scale * attention.score(lookup.query, lookup.key)  # (B, H, T, T)
    scores = scores.masked_fill(~readable, 0.0)
    count = readable.sum(-1)
    mean = scores.sum(-1) / count
    variance = (scores.square().sum(-1) / count - mean.square()).clamp(min=0)
    return per_head(variance[..., with_choice(count)]).mean(dim=-1).sqrt()


def largest_weight(weights: Tensor, readable: Tensor) -> Tensor:
    """The mean over rows of the largest weight: (B, H, T, T), (T) -> (H). 1 reads one position only."""
    return per_head(weights.amax(-1)[..., with_choice(readable)]).mean(dim=-1)


def passes(weights: Tensor, readable: Tensor) -> Tensor:
    """How much gradient passes the softmax of each row, against a flat row: (B, H, T, T), (T) -> (B, H, T').

    The softmax multiplies a gradient by J = diag(p) - p p^T. The norm of J says how much of a
    random gradient is left: sqrt(sum p^2 - 2 sum p^3 + (sum p^2)^2), which is sqrt(n - 1) / n
    for a flat row of n and 0 for a row that has made up its mind (Vaswani et al. 2017, 3.2.1,
    speak of "extremely small gradients"). More than 1 is a choice between a few.
    """
    second, third = weights.square().sum(-1), weights.pow(3).sum(-1)
    norm = (second - 2 * third + second.square()).clamp(min=0).sqrt()
    flat = (readable - 1).to(norm.dtype).sqrt() / readable
    return (norm / flat)[..., with_choice(readable)]


def key_length(lookup: Lookup, readable: Tensor) -> Tensor:
    """Rank correlation of a key's length with the weight that it receives: -> (H).

    The seed article's defect: a token can attract attention just by having a big key. Weight is
    counted in even shares: 1 is what a flat row gives. Keys that fewer than an eighth of all
    rows may read are left out.
    """
    shares = lookup.weights * readable.sum(-1)[:, None]  # (B, H, T, S)
    readers = readable.sum(0)  # (S)
    received = (shares.sum(-2) / readers)[..., readers >= len(readers) / 8]
    length = lookup.key.norm(dim=-1)[..., readers >= len(readers) / 8]
    pairs = zip(per_head(length), per_head(received), strict=True)
    return torch.tensor([rank_correlation(a.tolist(), b.tolist()) for a, b in pairs])


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; NaN where it is not defined: for less than three pairs, or where one side never changes."""
    from scipy.stats import spearmanr

    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return math.nan
    return float(spearmanr(x, y).statistic)
