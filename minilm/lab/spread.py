"""How far can a time be trusted?

No further than it repeats. Whatever is compared takes turns, so that a machine that gets slower
or busier does so for all alike, and each figure is given as its median with the least and the most.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tqdm import tqdm

from minilm.lab.drawing import COLOURS

Key = TypeVar("Key")
Figure = TypeVar("Figure")


class Spread(NamedTuple):
    """A figure over its repeats."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def take_turns(works: Mapping[Key, Callable[[], Figure]], repeats: int) -> dict[Key, list[Figure]]:
    """Do all works `repeats` times; each one's figures, in the order of the rounds.

    Every second round goes backwards (1 2 3 3 2 1), so that a steady drift cancels out.
    """
    figures: dict[Key, list[Figure]] = {key: [] for key in works}
    rounds = [list(works)[:: 1 if number % 2 == 0 else -1] for number in range(repeats)]
    for key in tqdm([key for turn in rounds for key in turn], desc="measuring", leave=False, disable=None):
        figures[key].append(works[key]())
    return figures


def told(figure: Spread, form: str) -> str:
    """ "12.3 (11.9..14.0)" for the form ".1f"."""
    return f"{figure.median:{form}} ({figure.low:{form}}..{figure.high:{form}})"


def in_columns(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Lines of a table whose first `words` columns hold words and the others figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < words else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def bars(axes: Any, figures: Mapping[str, Spread]) -> None:
    """A bar for each name, the first on top, with a whisker from the least to the most."""
    for place, figure in enumerate(figures.values()):
        axes.barh(place, figure.median, color=COLOURS[0], xerr=whisker([figure]), ecolor="0.2", capsize=2)
    axes.set_yticks(range(len(figures)), list(figures), parse_math=False)
    axes.invert_yaxis()
    axes.set_axisbelow(True)


def whisker(figures: Sequence[Spread]) -> list[list[float]]:
    """What matplotlib draws whiskers from: how far the least and the most are from the medians."""
    return [[f.median - f.low for f in figures], [f.high - f.median for f in figures]]
