"""What does one lookup give, step by step, for words and matrices small enough to follow?

`exact` runs an example through the same `attention` that the language model trains with, and
keeps every step. `by_hand` does what a person with a pencil does, rounding each result to
three decimals before it is used.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from minilm.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Matrix = tuple[tuple[Decimal, ...], ...]
MATRICES = ("query", "key", "value")
STEPS = ("scores", "scaled", "exponentials", "total", "weights", "whole", "mixture")


@dataclass(frozen=True)
class Example:
    """Words with their vectors, the matrices that make queries, keys and values, and who asks."""

    words: tuple[str, ...]
    vectors: Matrix  # a row of D numbers for each word
    query: Matrix  # K x D
    key: Matrix  # K x D
    value: Matrix  # any number of rows x D
    place: int  # where the asking word stands, from 0
    dimensions: tuple[str, ...]  # names of the rows of `value`
    printed: dict[str, dict[str, list[Decimal]]]  # what an article prints for `plain` and `masked`

    def asked_by(self, place: int) -> Example:
        """The same words with another one asking, for which no article prints anything."""
        return self if place == self.place else replace(self, place=place, printed={})


class Steps(NamedTuple):
    """All numbers of one lookup, floats if exact and decimals if by hand. N words can be read."""

    query: Sequence[Any]  # K
    keys: Sequence[Sequence[Any]]  # N x K
    values: Sequence[Sequence[Any]]  # N x components
    scores: Sequence[Any]  # N
    scaled: Sequence[Any]  # N
    exponentials: Sequence[Any]  # N
    total: Sequence[Any]  # 1, the sum of the exponentials
    weights: Sequence[Any]  # N
    whole: Sequence[Any]  # 1, the sum of the weights
    mixture: Sequence[Any]  # components
    slips: Mapping[tuple[str, int], Decimal] = MappingProxyType({})  # by step and place: what does follow


class Table(NamedTuple):
    """The lookups of all words."""

    weights: Tensor  # N x N, a row for each word that asks
    flatness: list[float]
    mixtures: list[list[float]]


def exact(example: Example, *, scaled: bool = True, masked: bool = False, factor: float = 1.0) -> tuple[Steps, Table]:
    """One lookup in float64 by `attention`, and the table of all words.

    `factor` multiplies every score, which is what larger queries and keys would do.
    """
    import torch

    from minilm.attention import attention, dot_product, visible
    from minilm.lab.measures import flatness

    scores = []

    def score(query, key):
        scores.append(factor * dot_product(query, key))
        return scores[0]

    def tensor(rows: Matrix):
        return torch.tensor([[float(number) for number in row] for row in rows], dtype=torch.float64)

    vectors = tensor(example.vectors)
    query, key, value = (vectors @ tensor(getattr(example, name)).T for name in MATRICES)
    scale = 1 / math.sqrt(len(example.key)) if scaled else 1.0
    mask = visible(len(vectors), len(vectors), causal=masked, padding=None, device=vectors.device)
    mixture, weights = attention(query, key, value, scale=scale, mask=mask, score=score)
    if not (scores[0].isfinite().all() and mixture.isfinite().all()):
        raise UserError("these numbers are too large: scores or values overflow float64")
    row = example.place
    read = row + 1 if masked else len(vectors)
    exponentials = (scale * scores[0][row, :read]).exp()
    steps = Steps(
        query=query[row].tolist(),
        keys=key[:read].tolist(),
        values=value[:read].tolist(),
        scores=scores[0][row, :read].tolist(),
        scaled=(scale * scores[0][row, :read]).tolist(),
        exponentials=exponentials.tolist(),
        total=[exponentials.sum().item()],
        weights=weights[row, :read].tolist(),
        whole=[weights[row, :read].sum().item()],
        mixture=mixture[row].tolist(),
    )
    return steps, Table(weights, flatness(weights, mask.sum(-1)).tolist(), mixture.tolist())


def rounded(number: Decimal) -> Decimal:
    """Three decimals, a five going to the even digit; if that leaves nothing, the first digit that is not 0."""
    if number.adjusted() > 20:  # all 28 digits of a Decimal stand before the point
        return number
    short = number.quantize(Decimal("0.001"))
    return short if short or not number else number.quantize(Decimal(1).scaleb(number.adjusted()))


def dot(left: Sequence[Decimal], right: Sequence[Decimal]) -> Decimal:
    """A dot product by hand: each product is rounded, then their sum."""
    return rounded(sum((rounded(a * b) for a, b in zip(left, right, strict=True)), Decimal(0)))


def by_hand(example: Example, *, scaled: bool = True, masked: bool = False) -> Steps:
    """One lookup with every result rounded before it is used.

    Where the example says what an article prints, the next step goes on from the printed
    digits; those that do not follow from the digits before them are listed as slips.
    """
    printed = example.printed.get("masked" if masked else "plain", {}) if scaled else {}
    slips = {}

    def settle(step: str, numbers: list[Decimal]) -> list[Decimal]:
        digits = printed.get(step, numbers)
        slips.update({(step, i): n for i, (n, d) in enumerate(zip(numbers, digits, strict=True)) if n != d})
        return digits

    read = example.place + 1 if masked else len(example.words)
    query = [dot(row, example.vectors[example.place]) for row in example.query]
    keys = [[dot(row, vector) for row in example.key] for vector in example.vectors[:read]]
    values = [[dot(row, vector) for row in example.value] for vector in example.vectors[:read]]
    # The root is not rounded: 1.125 / 1.414 would give 0.796, where the article has 0.795.
    root = Decimal(len(example.key)).sqrt() if scaled else Decimal(1)
    scores = settle("scores", [dot(query, key) for key in keys])
    divided = settle("scaled", [rounded(score / root) for score in scores])
    exponentials = settle("exponentials", [rounded(score.exp()) for score in divided])
    total = settle("total", [sum(exponentials, Decimal(0))])
    weights = settle("weights", [rounded(number / total[0]) for number in exponentials])
    whole = settle("whole", [sum(weights, Decimal(0))])
    mixture = settle("mixture", [dot(weights, component) for component in zip(*values, strict=True)])
    return Steps(query, keys, values, scores, divided, exponentials, total, weights, whole, mixture, slips)


def choose(example: Example, words: str | None, word: str | None) -> Example:
    """The example with other words in another order, or another word asking.

    A word that stands in several places asks from the last, from where it can read most.
    """
    vectors = dict(zip(example.words, example.vectors, strict=True))
    chosen = tuple(w.strip() for w in words.split(",")) if words is not None else example.words
    asking = example.words[example.place] if word is None else word
    problems = [f"--words: {w!r}: no such word{suggest(w, example.words)}" for w in chosen if w not in vectors]
    can_ask = [w for w in dict.fromkeys(chosen) if w in vectors]
    if asking not in chosen and can_ask:
        given = "--word" if word is not None else "the word that asks"
        problems.append(f"{given}: {asking!r} is not among the words; --word can be {', '.join(can_ask)}")
    if problems:
        raise UserError("\n".join(problems))
    place = len(chosen) - 1 - chosen[::-1].index(asking)
    printed = example.printed if (chosen, place) == (example.words, example.place) else {}
    rows = tuple(vectors[w] for w in chosen)
    return replace(example, words=chosen, vectors=rows, place=place, printed=printed)


def suggest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
