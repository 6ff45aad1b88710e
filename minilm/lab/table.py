"""How does a sweep read at a glance?

Markdown, for a terminal and for a page alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minilm.config import Claim
from minilm.lab.predictions import sentence

CAVEAT = (
    "Learning rates are those of the base: they were not tuned anew for any arm, and an arm may do better with others."
)


def table(records: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]], *, preliminary: bool) -> list[str]:
    """All that is to be said, verdicts first."""
    seeds = sorted({result["seed"] for result in results})
    lines = [f"{len(results)} runs, seeds {', '.join(map(str, seeds))}.", ""]
    if preliminary:
        lines += ["Preliminary: fewer seeds and steps than a verdict takes.", ""]
    lines += grid(
        ("arm", "against", "verdict", "p (Holm)", *heads(records), "notes"), [row(record) for record in records]
    )
    claims = [(record, claim) for record in records for claim in record["claims"]]
    if claims:
        lines += ["", "What was expected, and what came (mean over seeds, 95 % interval):", ""]
        heading = ("arm", "expected", "arm has", "control has", "measured", "p", "seeds where it holds")
        lines += grid(heading, [claim_row(record, claim) for record, claim in claims])
    missing = without_floor(results)
    return [*lines, "", *([missing, ""] if missing else []), CAVEAT]


def heads(records: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of differences that there are."""
    names = {name: None for record in records for name in record["differences"]}
    return [f"{name} {what}" for name in names for what in ("", "- control's")]


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """One arm."""
    gaps = []
    for gap in record["differences"].values():
        gaps += [number(gap["arm"]), spread(gap)]
    return (
        record["arm"],
        record["control"],
        record["verdict"],
        probability(record["p"]),
        *gaps,
        "; ".join(record["notes"]),
    )


def claim_row(record: dict[str, Any], claim: dict[str, Any]) -> tuple[str, ...]:
    """One claim."""
    said = sentence(Claim(**{key: claim[key] for key in Claim.model_fields}), record["control"])
    if claim["missing"]:
        return record["arm"], said, "-", "-", claim["missing"], "-", "-"
    count = len(record["seeds"])
    return (
        record["arm"],
        said,
        number(claim["arm"]),
        number(claim["control"]),
        spread(claim),
        probability(claim.get("p")),
        f"{claim['holds']} of {count}",
    )


def spread(found: dict[str, Any]) -> str:
    """A mean with its interval."""
    if found.get("mean") is None:
        return "-"
    return f"{number(found['mean'])} [{number(found['low'])}, {number(found['high'])}]"


def number(value: float | None) -> str:
    """Three digits that count."""
    return "-" if value is None else f"{value:.3g}"


def probability(p: float | None) -> str:
    return "-" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def without_floor(results: Sequence[dict[str, Any]]) -> str | None:
    """What is not known of a text that is not Riverbank's."""
    if any("excess" in result["validation"] for result in results):
        return None
    return "Of this text no floor is known, so there is no excess, no facet, and no share of right sentences."


def grid(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with columns as wide as they need to be."""
    widths = [max(len(cell) for cell in column) for column in zip(heading, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    return [
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) + " |"
        for cells in (heading, rule, *rows)
    ]
