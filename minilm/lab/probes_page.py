"""How do the probes of one model look on paper?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from minilm.lab.maps import LEGEND, terminal_map, visible_row

# Figures that are told beside what they were at step 0, with what they mean.
COURSE = {
    "flatness": "entropy of a row over the largest possible: 1 reads all alike, 0 one position",
    "score_std": "spread of a row's scores as the softmax gets them",
    "largest_weight": "largest weight of a row",
    "gradient": "what the softmax lets through, against a flat row; median",
    "dead_rows": "share of rows that let through less than 1/200 of that",
    "key_length": "rank correlation of a key's length with the weight it receives",
    "rank": "effective rank of the stream before the head",
}


def number(value: Any, digits: int = 3) -> str:
    """A figure with some decimals, or a dash where it is not defined."""
    return "-" if value is None else f"{value:.{digits}f}"


def page(name: str, result: dict[str, Any]) -> list[str]:
    """All lines; the attention map is the mean over all heads of the first text."""
    shown = result["texts"][0]
    return [
        f"{name}, step {result['step']}",
        "",
        *course(result),
        "",
        *judgements(result),
        "",
        *head_table(result["heads"]),
        "",
        *table("depth", map(str, range(len(result["ranks"]))), {"rank": result["ranks"], "apart": result["apart"]}),
        "apart: the share of the stream that positions do not have in common",
        "",
        *reading(shown),
    ]


def course(result: dict[str, Any]) -> list[str]:
    """Means over all heads, at step 0 and now."""
    width = max(map(len, COURSE))
    lines = [f"{'':{width}}  step 0     now"]
    for name, meaning in COURSE.items():
        before, now = (number(result[key]) for key in (f"{name}_start", name))
        lines.append(f"{name.replace('_', ' '):{width}}  {before:>6}  {now:>6}   {meaning}")
    return lines


def judgements(result: dict[str, Any]) -> list[str]:
    """A line for each question that is asked of the whole model."""
    leak = "LEAKS" if result["leaks"] else "none"
    loss = f"{number(result['loss'], 4)} as trained, {number(result['honest_loss'], 4)} from prefixes only"
    if result["excess"] is not None:
        loss += f"; above the floor {number(result['excess'], 4)} and {number(result['honest_excess'], 4)}"
    lines = [
        f"future leak       {leak}: a later character moves an earlier score by {result['leak']:.1e} of the largest",
        f"loss              {loss} ({result['honest_windows']} windows)",
        f"weight, effect    rank correlation {number(result['effect'])}; the most read position decides the most "
        f"in {number(result['effect_top'], 2)} of {len(result['effects'])} answers",
        "order             nats lost by a shuffle of what lies further back than "
        + ", ".join(f"{d}: {number(x)}" for d, x in zip(result["order_distances"], result["orders"], strict=True)),
    ]
    if result["facets"]:
        lines.append("excess by facet   " + ", ".join(f"{k} {number(x)}" for k, x in result["facets"].items()))
    if result["in_language"] is not None:
        lines.append(f"in the language   {result['in_language']:.1%} of the sentences that it writes")
    return lines


def head_table(heads: dict[str, list[list[float | None]]]) -> list[str]:
    """A row for each head of each layer, now."""
    names = [f"layer {i} head {j}" for i, layer in enumerate(heads["flatness"], 1) for j, _ in enumerate(layer, 1)]
    return table("", names, {name: [value for layer in layers for value in layer] for name, layers in heads.items()})


def table(name: str, rows: Iterable[str], columns: dict[str, list[float | None]]) -> list[str]:
    """A line for each of `rows`, under the names of the columns."""
    cells = [[name, *(column.replace("_", " ") for column in columns)]]
    cells += [[row, *map(number, values)] for row, *values in zip(rows, *columns.values(), strict=True)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) for row in cells]


def reading(shown: dict[str, Any]) -> list[str]:
    """Who reads whom in one text, and what its characters do to the answer."""
    text, place = shown["text"], shown["place"]
    weights = torch.tensor(shown["maps"]).mean(dim=(0, 1))
    lines = [
        f"Who reads whom: a row reads its columns, mean over all heads.   {LEGEND}",
        *terminal_map(text, weights),
    ]
    if "changes" not in shown:
        return lines
    asker, answer = visible_row(text[place]), visible_row(text[place + 1])
    lines += ["", f"What decides {answer!r} after {text[: place + 1]!r}, asked by the last: the five most read"]
    order = sorted(range(place), key=lambda i: -shown["weights"][i])[:5]
    for i in order:
        lines.append(
            f"   {visible_row(text[i]):>4} at {i:<2}  weight {shown['weights'][i]:.3f}   "
            f"hidden, {answer} loses {shown['changes'][i]:+.3f} nats"
        )
    return [*lines, f"   {asker:>4} at {place:<2}  asks, and is never hidden"]
