"""What do the runs say of what was expected?

An arm's verdict is `shown` if every claim of its [expect] holds at p < 0.01, corrected for the
number of arms; `opposite` if one of them is contradicted as surely; else `not shown`. A run that
diverged makes it `diverged`; one seed, or nothing expected, `no verdict`; a quick sweep,
`preliminary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from minilm.config import Claim
from minilm.lab.arms import Arm
from minilm.lab.figures import find, value_of
from minilm.lab.statistics import ALPHA, contradiction, difference, holds, holm, support

SHOWN, NOT_SHOWN, OPPOSITE = "shown", "not shown", "opposite"
DIVERGED, NONE, PRELIMINARY = "diverged", "no verdict", "preliminary"
DIFFERENCES = ("loss", "excess")  # told of every arm, whether or not anything is claimed of them
Result = dict[str, Any]


def judge(arms: Sequence[Arm], results: Sequence[Result], *, preliminary: bool) -> list[dict[str, Any]]:
    """One record for each arm that has a control."""
    records = [compare(arm, results) for arm in arms if arm.control is not None]
    tested = [record for record in records if record["verdict"] is None]
    corrected = holm([record["p"] for record in tested])
    contradicted = holm([record["p_opposite"] for record in tested])
    for record, p, p_opposite in zip(tested, corrected, contradicted, strict=True):
        record |= {"p": p, "p_opposite": p_opposite}
        record["verdict"] = verdict(p, p_opposite)
        if preliminary:
            met = sum(claim["holds"] == len(record["seeds"]) for claim in record["claims"] if claim["missing"] is None)
            record["verdict"] = PRELIMINARY
            record["notes"].insert(0, f"{met} of {len(record['claims'])} claims hold in every seed")
    return records


def verdict(p: float, p_opposite: float) -> str:
    return SHOWN if p < ALPHA else OPPOSITE if p_opposite < ALPHA else NOT_SHOWN


def compare(arm: Arm, results: Sequence[Result]) -> dict[str, Any]:
    """An arm beside its control; `verdict` stays None where p is to decide."""
    ours = {result["seed"]: result for result in results if result["arm"] == arm.name}
    theirs = {result["seed"]: result for result in results if result["arm"] == arm.control}
    seeds = sorted(ours.keys() & theirs.keys())
    pairs = [(ours[seed], theirs[seed]) for seed in seeds]
    record: dict[str, Any] = {
        **{"arm": arm.name, "control": arm.control, "seeds": seeds},
        **{"verdict": None, "p": None, "p_opposite": None, "notes": []},
        "formula": arm.config.expect.formula if arm.config.expect else None,
        "symptom": arm.config.expect.symptom if arm.config.expect else None,
        "differences": {name: gap for name in DIFFERENCES if (gap := gap_in(name, pairs))},
        "claims": [examine(claim, pairs) for claim in arm.claims],
    }
    judged = [claim for claim in record["claims"] if claim["missing"] is None]
    record["notes"] += [f"not judged: {c['words']}, {c['missing']}" for c in record["claims"] if c["missing"]]
    wrecked = [f"{r['arm']} seed {r['seed']}" for pair in pairs for r in pair if r["status"] == "diverged"]
    if wrecked:
        record |= {"verdict": DIVERGED, "notes": [f"diverged: {', '.join(wrecked)}"]}
    elif len(pairs) < 2:
        record |= {"verdict": NONE, "notes": ["one seed says nothing of the scatter between seeds: use two or more"]}
    elif not judged:
        record["verdict"] = NONE
        record["notes"] = record["notes"] or ["its settings file expects nothing"]
    else:
        record["p"] = max(claim["p"] for claim in judged)
        record["p_opposite"] = min(1.0, len(judged) * min(claim["p_opposite"] for claim in judged))
    return record


def columns(name: str, pairs: Sequence[tuple[Result, Result]]) -> tuple[list[float], list[float]] | None:
    """A figure of all pairs, the arm's and the control's; None if a run lacks it."""
    values = [(value_of(ours, name), value_of(theirs, name)) for ours, theirs in pairs]
    if not values or any(value is None for pair in values for value in pair):
        return None
    arm, control = zip(*values, strict=True)
    return list(arm), list(control)


def gap_in(name: str, pairs: Sequence[tuple[Result, Result]]) -> dict[str, Any] | None:
    """Means of both and the mean difference, with its interval if there is more than one seed."""
    found = columns(name, pairs)
    if found is None:
        return None
    means = {"arm": float(np.mean(found[0])), "control": float(np.mean(found[1]))}
    return means | (asdict(difference(*found)) if len(pairs) > 1 else {})


def examine(claim: Claim, pairs: Sequence[tuple[Result, Result]]) -> dict[str, Any]:
    """What the runs say of one claim; `missing` says why nothing, where that is so."""
    record: dict[str, Any] = {**claim.model_dump(), "words": find(claim.figure).words, "missing": None}
    found = columns(claim.figure, pairs)
    if found is None:
        return record | {"missing": "which not all of these runs have"}
    record |= {"arm": float(np.mean(found[0])), "control": float(np.mean(found[1]))}
    try:
        record["holds"] = holds(claim, *found)
    except ValueError:  # a ratio of figures of which some are not above zero: it was claimed, and is not there
        return record | {"holds": 0, "mean": None, "low": None, "high": None, "p": 1.0, "p_opposite": 1.0}
    if len(pairs) > 1:
        record |= asdict(support(claim, *found)) | {"p_opposite": contradiction(claim, *found)}
    return record
