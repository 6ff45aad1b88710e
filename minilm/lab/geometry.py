"""What can a lookup not see, and where can its answer not go?

A big key attracts attention. The order of the words is invisible. The answer never leaves the
region that the values span.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from minilm.attention import MultiHeadAttention, attention, dot_product
from minilm.lab.claims_lookup import article
from minilm.lab.example import choose, exact
from minilm.lab.finding import Finding, draw_weights, normal
from minilm.lab.measures import distance_to_hull
from minilm.model import LanguageModel


def against_directions(query: Tensor, key: Tensor) -> Tensor:
    """A score for which all keys are equally long, sqrt(K), as unit-variance keys are."""
    return dot_product(query, math.sqrt(key.shape[-1]) * F.normalize(key, dim=-1))


def received(query: Tensor, key: Tensor, score=dot_product) -> Tensor:
    """The weight each key receives, averaged over the queries, in even shares: (T, K), (S, K) -> (S)."""
    everything = torch.ones(len(query), len(key), dtype=torch.bool)
    _, weights = attention(query, key, key, scale=1 / math.sqrt(key.shape[-1]), mask=everything, score=score)
    return len(key) * weights.mean(dim=0)


def rows_largest_on_river(score=dot_product) -> int:
    """How many of the four words read "river" most."""
    example = article()
    vectors, query, key = (
        torch.tensor([[float(x) for x in row] for row in rows], dtype=torch.float64)
        for rows in (example.vectors, example.query, example.key)
    )
    shares = [received((query @ vector)[None], vectors @ key.T, score) for vector in vectors]
    return sum(int(share.argmax()) == example.words.index("river") for share in shares)


def a_big_key_attracts_whatever_is_asked() -> Finding:
    """64 keys in random directions, from 1/4 to 4 times as long as a unit-variance key."""
    from scipy.stats import spearmanr

    n, width = 64, 16
    lengths = torch.logspace(-2, 2, n, base=2, dtype=torch.float64)
    key = lengths[:, None] * math.sqrt(width) * F.normalize(normal("big/key", n, width), dim=-1)
    query = normal("big/query", 4096, width)
    shares, levelled = received(query, key), received(query, key, against_directions)
    away = query[dot_product(query, key[-1:])[:, 0] < 0]  # queries that point away from the longest key
    # One more key, twice as long as any, in dimensions that no query has.
    known = (torch.arange(width) < width // 2).double()
    unasked = 8 * math.sqrt(width) * F.normalize((1 - known)[None], dim=-1)
    ignored = received(query * known, torch.cat([key, unasked]))[-1].item()
    scorned = received(away, key)[-1].item()
    rank, rank_levelled = (float(spearmanr(lengths, share).statistic) for share in (shares, levelled))
    return Finding(
        "A token can attract attention just by having a big key, whatever the query wants.",
        {
            "rank correlation of key length and weight received": rank,
            "the same with all keys equally long": rank_levelled,
            "weight of the longest key, in even shares": shares[-1].item(),
            "and from queries that point away from it": scorned,
            "weight of a key twice as long that no query asks for": ignored,
            "rows of the example largest on river": rows_largest_on_river(),
            "and with all keys equally long": rows_largest_on_river(against_directions),
        },
        as_stated=scorned > 1 and ignored > 1,
        core=rank > 0.9 and abs(rank_levelled) < 0.25 and rows_largest_on_river(against_directions) == 0,
        precisely="Over many queries a longer key receives more, since a high score gains more weight than a low one "
        "loses. But queries that point away from it, or do not ask for what it has, give it less than an even share. "
        "Making all keys equally long ends the advantage.",
    )


def permuted(values: Tensor, order: Tensor) -> Tensor:
    return values[..., order, :]


def order_is_invisible() -> Finding:
    example = article()
    words, turned = exact(example)[0], exact(choose(example, "flooded,bank,river,the", None))[0]
    four = max(abs(a - b) for a, b in zip(words.weights[::-1], turned.weights, strict=True))
    x, order = normal("order/x", 1, 12, 16), torch.randperm(12, generator=torch.Generator().manual_seed(0))
    moved = {}
    for causal in (False, True):
        layer = MultiHeadAttention(16, 2, causal=causal, backend="explicit")
        draw_weights(layer, "order")
        moved[causal] = (permuted(layer(x), order) - layer(permuted(x, order))).abs().max().item()
    tokens = torch.arange(12)[None]
    past = torch.cat([tokens[:, torch.randperm(11, generator=torch.Generator().manual_seed(1))], tokens[:, -1:]], dim=1)
    last = {}
    for depth in (1, 2):
        model = LanguageModel(12, width=16, context=12, n_layers=depth, n_heads=2, position="none").double().eval()
        last[depth] = (model(tokens)[0, -1] - model(past)[0, -1]).abs().max().item()
    return Finding(
        "Attention has no idea of order: the words in any other order get the same weights.",
        {
            "change of the four words' weights, turned round": four,
            "change of answers, permuted like the words, no mask": moved[False],
            "and with the causal mask": moved[True],
            "change of the last position by the order of its past, one layer without position, masked": last[1],
            "and with two layers": last[2],
        },
        as_stated=max(four, moved[False], moved[True]) < 1e-12,
        core=max(four, moved[False], last[1]) < 1e-12 and moved[True] > 1e-3 and last[2] > 1e-9,
        precisely="Without a mask the answers move with their words and do not change. With the causal mask they "
        "change, since the place then decides who may be read. One masked layer still takes its past as a set; a "
        "second reads answers that differ by place, so order leaks in.",
    )


@torch.no_grad()
def the_answer_lies_within_the_values() -> Finding:
    """Two heads of width 4 and 24 positions, so that lying within is no matter of course."""
    layer = MultiHeadAttention(8, 2, causal=False, backend="explicit")
    draw_weights(layer, "hull")
    seen = layer.lookup(normal("hull/x", 1, 24, 8))
    values = seen.value.transpose(1, 2).flatten(-2)[0]  # (T, D)
    outputs = layer.output(seen.mixture.transpose(1, 2).flatten(-2))[0]  # (T, D)
    inside = max(distance_to_hull(point, seen.value[0, head]) for head in range(2) for point in seen.mixture[0, head])
    outside = max(distance_to_hull(point, values) for point in outputs)
    return Finding(
        "Every output is a weighted average of the values, so it lies inside the region they span.",
        {
            "furthest a mixture is from the hull of its head's values": inside,
            "furthest an output is from the hull of all values, after the output matrix": outside,
        },
        as_stated=inside < 1e-6,
        core=True,
        precisely="The mixture of each head does. The output matrix takes it elsewhere, but it is one matrix for all "
        "positions, so it decides nothing either.",
    )
