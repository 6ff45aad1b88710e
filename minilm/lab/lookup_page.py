"""How does one lookup look on paper?

The steps of lab/example.py as text: each result with the arithmetic that leads to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from minilm.lab.example import Example, Steps, Table, by_hand, exact


def show(number: float | Decimal) -> str:
    """Three decimals; the first digit that is not zero of what is smaller; powers of ten for the rest."""
    size = abs(float(number))
    if size >= 1_000_000:
        return f"{number:.3e}"
    if size == 0 or size >= 0.0005:
        return f"{number + 0:.3f}"
    digits = -math.floor(math.log10(size))
    return f"{number:.{digits}f}" if digits <= 8 else f"{number:.0e}"


def vector(numbers: Sequence[Any]) -> str:
    return f"({', '.join(show(n) for n in numbers)})"


def add(terms: Sequence[str]) -> str:
    """A sum written out, shortened if it has more than six terms."""
    return " + ".join(terms if len(terms) <= 6 else [*terms[:3], "...", terms[-1]])


def multiply(left: Sequence[Any], right: Sequence[Any]) -> str:
    """A dot product written out: the products, then their values."""
    factors = [f"{show(a)} x {show(b)}" for a, b in zip(left, right, strict=True)]
    if len(factors) == 1:
        return factors[0]
    return f"{add(factors)} = {add([show(a * b) for a, b in zip(left, right, strict=True)])}"


def page(example: Example, steps: Steps, table: Table, pencil: list[Steps], how: dict[str, bool]) -> list[str]:
    """All that the command prints, line by line. `pencil` has the lookups of all words by hand, if wanted."""
    shown, reference = (pencil[example.place], steps) if pencil else (steps, None)
    lines = [f'"{example.words[example.place]}" looks up: {" ".join(example.words)}', *legend(shown, reference)]
    lines += Walk(example, shown, reference).lines(**how)
    if len(shown.weights) < len(example.words):
        everything = by_hand if pencil else lambda *args, **kwargs: exact(*args, **kwargs)[0]
        lines += ["", *hidden(example, everything(example, scaled=how["scaled"]), shown)]
    lines += ["", *whole_table(example, table, pencil, how["masked"])]
    return lines if how["scaled"] else [*lines, "", *eight_times(example, how["masked"])]


def legend(shown: Steps, reference: Steps | None) -> list[str]:
    """How the digits came about, and what the marks mean."""
    if reference is None:
        return ["Exact arithmetic, shown to three decimals, so the last digit of a sum may look one off."]
    lines = [
        "By hand: each result is rounded to three decimals before it is used.",
        "   * differs from exact arithmetic",
    ]
    slips = "   ! what the article prints, though other digits follow; it goes on from those it prints, and so do we"
    return [*lines, slips] if shown.slips else lines


class Walk:
    """The seven steps of one lookup. `reference` holds the exact numbers if those shown are not exact."""

    def __init__(self, example: Example, shown: Steps, reference: Steps | None) -> None:
        self.example, self.shown, self.reference = example, shown, reference
        self.words = example.words[: len(shown.weights)]
        self.indent = max(len(word) for word in (*self.words, *example.dimensions, "sum"))

    def lines(self, *, scaled: bool, masked: bool) -> list[str]:
        example, shown = self.example, self.shown
        asking = f'"{example.words[example.place]}"'
        root = f"{math.sqrt(len(example.key)):.3f}"
        lines = ["", "1. Each word has a key, which says what it offers, and a value, which is what it gives."]
        lines += self.each(lambda i: f"key {vector(shown.keys[i])}   value {vector(shown.values[i])}")
        if masked and len(self.words) < len(example.words):
            lines += [f"   hidden, as they come later: {' '.join(example.words[len(self.words) :])}"]
        lines += ["", f"2. {asking} has a query, which says what it looks for."]
        for row, number in zip(example.query, shown.query, strict=True):
            lines += [f"   {multiply(row, example.vectors[example.place])} = {show(number)}"]
        lines += ["", "3. Scores: the dot product of that query with each key."]
        lines += self.results("scores", lambda i: multiply(shown.query, shown.keys[i]))
        lines += ["", f"4. Scale: divide by the square root of the key width, sqrt({len(example.key)}) = {root}."]
        if scaled:
            lines += self.results("scaled", lambda i: f"{show(shown.scores[i])} / {root}")
        else:
            lines += ["   left out"]
        lines += ["", "5. Exponentials: every score becomes positive."]
        lines += self.results("exponentials", lambda i: f"exp({show(shown.scaled[i])})")
        lines += [self.result("sum", add([show(n) for n in shown.exponentials]), "total", 0)]
        if math.isinf(shown.total[0]):
            lines += ["   attention() subtracts the largest score first: no weight changes, and nothing overflows."]
        lines += ["", "6. Weights: divide by that sum."]
        lines += self.results("weights", lambda i: f"{show(shown.exponentials[i])} / {show(shown.total[0])}")
        lines += [self.result("sum", add([show(n) for n in shown.weights]), "whole", 0)]
        lines += ["", "7. Mixture: add up the values, each by its weight."]
        for i, name in enumerate(example.dimensions):
            lines += [self.result(name, multiply(shown.weights, [v[i] for v in shown.values]), "mixture", i)]
        went_in = vector(example.vectors[example.place])
        return [*lines, f"   {asking} went in as {went_in} and comes out as {vector(shown.mixture)}."]

    def each(self, text: Callable[[int], str]) -> list[str]:
        """A line for each word that can be read."""
        return [f"   {word:<{self.indent}}   {text(i)}" for i, word in enumerate(self.words)]

    def results(self, step: str, formula: Callable[[int], str]) -> list[str]:
        """A line with a result for each word that can be read."""
        return [self.result(word, formula(i), step, i) for i, word in enumerate(self.words)]

    def result(self, name: str, formula: str, step: str, i: int) -> str:
        """Name, arithmetic, result, and what is to be said about it."""
        digits = show(getattr(self.shown, step)[i])
        line = f"   {name:<{self.indent}}   {formula} = {digits}"
        exactly = digits if self.reference is None else show(getattr(self.reference, step)[i])
        if digits != exactly:
            line += f"   * exactly {exactly}"
        if (step, i) in self.shown.slips:
            line += f"   ! these digits give {show(self.shown.slips[step, i])}"
        return line


def hidden(example: Example, before: Steps, after: Steps) -> list[str]:
    """What hiding words does to the weights of those that are left."""
    gone = example.words[len(after.weights) :]
    lines = [f"What {' and '.join(gone)} would have had goes to the others, in proportion to what they have:"]
    for word, was, now in zip(example.words, before.weights, after.weights, strict=False):
        lines += [f"   {word}: {show(was)} -> {show(now)}"]
    return lines


def whole_table(example: Example, table: Table, pencil: list[Steps], masked: bool) -> list[str]:
    """All words ask: a row for each, with its flatness and what it leaves as."""
    words = example.words
    if pencil:
        rows = [[show(w) for w in steps.weights] for steps in pencil]
        mixtures = [vector(steps.mixture) for steps in pencil]
    else:
        weights = table.weights.tolist()
        rows = [[show(w) for w in (row[: i + 1] if masked else row)] for i, row in enumerate(weights)]
        mixtures = [vector(mixture) for mixture in table.mixtures]
    cells = [["", *words, "flatness", "mixture"]]
    for i, row in enumerate(rows):
        exactly = [show(w) for w in table.weights[i].tolist()]
        marked = [digits + "*" * (digits != other) for digits, other in zip(row, exactly, strict=False)]
        blanks = ["-"] * (len(words) - len(row))
        flat = "-" if math.isnan(table.flatness[i]) else show(table.flatness[i])
        cells.append([words[i], *marked, *blanks, flat, mixtures[i]])
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["Every word asks: a row of weights for each"]
    for first, *rest in cells:
        columns = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines += [f"   {first:<{widths[0]}}   {'   '.join(columns)}"]
    lines += [
        "Flatness is the entropy of a row over the largest it could be: 1 takes all alike, 0 takes one word only."
    ]
    favourites = {words[place] for place in table.weights.argmax(dim=-1).tolist()}
    return [*lines, f'Every row is largest on "{favourites.pop()}".'] if len(favourites) == 1 else lines


def eight_times(example: Example, masked: bool) -> list[str]:
    """What the article imagines at a key width of 64."""
    plain, _ = exact(example, scaled=False, masked=masked)
    large, table = exact(example, scaled=False, masked=masked, factor=8.0)
    return [
        "With scores eight times as large, as the article imagines them for a key width of 64:",
        f"   scores    {'   '.join(show(n) for n in large.scores)}",
        f"   weights   {'   '.join(show(n) for n in large.weights)}",
        f"   flatness  {show(table.flatness[example.place])}",
        f"Divided by sqrt(64) = 8 they would give the weights of step 6, {vector(plain.weights)}.",
    ]
