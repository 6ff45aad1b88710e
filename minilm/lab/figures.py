"""Which figures of a run can a claim be about, and where are they found?

A result (a line of results.jsonl) holds the last evaluation as `validation`, one after a third of
the steps as `early`, and what the probes measured as `probes`.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """Where a figure stands in a result, and what it is called."""

    path: tuple[str, ...]
    words: str


FIGURES = {
    "loss": Figure(("validation", "loss"), "loss"),
    "excess": Figure(("validation", "excess"), "excess over the floor"),
    "early.loss": Figure(("early", "loss"), "loss after a third of the steps"),
    "early.excess": Figure(("early", "excess"), "excess after a third of the steps"),
    "honest_loss": Figure(("probes", "honest_loss"), "loss from prefixes only"),
    "honest_excess": Figure(("probes", "honest_excess"), "excess from prefixes only"),
    "in_language": Figure(("probes", "in_language"), "share of written sentences in the language"),
    "leak": Figure(("probes", "leak"), "change of earlier scores by a later character"),
    "order": Figure(("probes", "order"), "nats lost when the past is shuffled"),
    "flatness_start": Figure(("probes", "flatness_start"), "row flatness at step 0"),
    "flatness": Figure(("probes", "flatness"), "row flatness at the end"),
    "score_std_start": Figure(("probes", "score_std_start"), "standard deviation of scores at step 0"),
    "gradient_start": Figure(("probes", "gradient_start"), "gradient through the softmax at step 0"),
    "gradient": Figure(("probes", "gradient"), "gradient through the softmax at the end"),
    "dead_rows_start": Figure(("probes", "dead_rows_start"), "share of rows without gradient at step 0"),
    "dead_rows": Figure(("probes", "dead_rows"), "share of rows without gradient at the end"),
    "rank_start": Figure(("probes", "rank_start"), "rank of the stream at step 0"),
    "rank": Figure(("probes", "rank"), "rank of the stream at the end"),
}
FACET = "facets."  # of the last evaluation, and "early.facets.": one for each facet of the language


def facet_of(name: str) -> str | None:
    """The facet that a figure is about, if it is about one."""
    head, dot, facet = name.removeprefix("early.").partition(FACET)
    return facet if dot and not head else None


def find(name: str) -> Figure:
    """The figure called `name`, or a KeyError."""
    facet = facet_of(name)
    if facet is None:
        return FIGURES[name]
    early = name.startswith("early.")
    when = " after a third of the steps" if early else ""
    return Figure(("early" if early else "validation", "facets", facet), f"excess in {facet}{when}")


def problem_with(name: str) -> str | None:
    """What to say of a name that is no figure's."""
    try:
        find(name)
    except KeyError:
        near = difflib.get_close_matches(name, FIGURES, n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIGURES)} and facets.NAME"
        return f"expect.claims: {name}: no such figure; {advice}"
    return None


def value_of(result: dict[str, Any], name: str) -> float | None:
    """The figure in one result; None if this run has none, as excess where no floor is known."""
    value: Any = result
    for key in find(name).path:
        value = value.get(key) if isinstance(value, dict) else None
    return None if value is None else float(value)
