"""Which figures of a sweep are told in words, and how?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minilm.config import Claim
from minilm.lab.arms import changes
from minilm.lab.predictions import sentence
from minilm.lab.probes_page import COURSE
from minilm.lab.report_data import Sweep
from minilm.lab.table import CAVEAT, number, probability, spread, without_floor
from minilm.settings import to_toml

# Figures of the probes at the end of training, with what they mean.
AT_THE_END = {
    "loss": "loss as trained, on the windows of the next line",
    "honest_loss": "loss of the same characters, each scored from its prefix only",
    "excess": "the first, above the floor",
    "honest_excess": "the second, above the floor",
    "leak": "largest change of an earlier score by a later character, as a share of the largest score",
    "order": "nats lost when all but the asking character is shuffled",
    "effect": "rank correlation of a position's weight with what hiding it changes",
    "effect_top": "share of answers for which the most read position is the one that matters most",
    "in_language": "share of written sentences that the language has",
}
MANIFEST = ("minilm", "git_commit", "torch", "python", "platform", "device", "precision", "threads", "corpus")


def notes(sweep: Sweep) -> list[str]:
    """What to know before reading on: what is preliminary, missing, or not tried."""
    lines = []
    if sweep.preliminary:
        lines.append("Preliminary: fewer seeds and steps than a verdict takes.")
    if len(sweep.seeds) == 1:
        lines.append("One seed: it says nothing of the scatter between seeds, so there is no verdict.")
    for run in sweep.runs:
        if run.diverged:
            lines.append(f"Diverged: {run.arm}, seed {run.seed}: {run.result.get('note') or 'no longer numbers'}.")
    finished = [run.result for run in sweep.runs if not run.diverged]
    no_floor = without_floor(finished) if finished else None
    return [*lines, *([no_floor] if no_floor else []), *sweep.missing, CAVEAT]


def verdicts(sweep: Sweep) -> list[dict[str, Any]]:
    """One row for each arm that was judged, with its claims."""
    return [
        {
            **record,
            "kind": record["verdict"].replace(" ", "-"),
            "p": probability(record["p"]),
            "changed": changed(sweep, record["arm"], record["control"]),
            "parameters": [parameters(sweep, name) for name in (record["arm"], record["control"])],
            "differences": [
                {"name": name, "arm": number(gap["arm"]), "control": number(gap["control"]), "spread": spread(gap)}
                for name, gap in record["differences"].items()
            ],
            "claims": [claim_row(claim, record) for claim in record["claims"]],
        }
        for record in sweep.records
    ]


def claim_row(claim: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """One expectation and what came of it."""
    said = sentence(Claim(**{key: claim[key] for key in Claim.model_fields}), record["control"])
    return {
        "expected": said,
        "missing": claim["missing"],
        "arm": number(claim.get("arm")),
        "control": number(claim.get("control")),
        "measured": spread(claim),
        "p": probability(claim.get("p")),
        "holds": f"{claim.get('holds', '-')} of {len(record['seeds'])}",
    }


def changed(sweep: Sweep, arm: str, control: str) -> str:
    """In which settings the arm differs from its control, as far as their settings are there."""
    ours, theirs = (next((run.config for run in sweep.of(name) if run.config), None) for name in (arm, control))
    if ours is None or theirs is None:
        return "settings are missing"
    return ", ".join(str(change) for change in changes(ours, theirs) if change.setting != "training.seed") or "nothing"


def parameters(sweep: Sweep, arm: str) -> str:
    counts = {run.manifest["parameters"] for run in sweep.of(arm) if "parameters" in run.manifest}
    return " or ".join(f"{count:,}" for count in sorted(counts)) or "-"


def probes(sweep: Sweep) -> list[dict[str, Any]]:
    """A row for each figure, a cell for each arm: the mean over its seeds, at step 0 where that says something."""
    rows = []
    for name, meaning in [*COURSE.items(), *AT_THE_END.items()]:
        now = [over_seeds(sweep, arm, name) for arm in sweep.arms]
        cells = now
        if name in COURSE:
            before = [over_seeds(sweep, arm, f"{name}_start") for arm in sweep.arms]
            cells = [arrow(*figures) for figures in zip(before, now, strict=True)]
        if name == "leak":
            cells = [f"{leaks(sweep, arm)}{cell}" for arm, cell in zip(sweep.arms, now, strict=True)]
        if set(cells) != {"-"}:
            rows.append({"name": name.replace("_", " "), "meaning": meaning, "cells": cells})
    return rows


def arrow(before: str, now: str) -> str:
    return "-" if now == "-" else f"{before} \N{RIGHTWARDS ARROW} {now}"


def flatness(sweep: Sweep) -> list[dict[str, Any]]:
    """Row flatness of each head, the mean over seeds at step 0 and at the end: a row for each arm."""
    rows = []
    for arm in sweep.arms:
        found = [run.probes for run in sweep.of(arm) if run.probes.get("heads")]
        if found:
            before, now = (
                np.array([probe[when]["flatness"] for probe in found], dtype=float).mean(axis=0)  # (L, H)
                for when in ("heads_start", "heads")
            )
            names = [f"{layer + 1}.{head + 1}" for layer, head in np.ndindex(before.shape)]
            figures = [arrow(number(a), number(b)) for a, b in zip(before.flat, now.flat, strict=True)]
            cells = [{"head": name, "figure": figure} for name, figure in zip(names, figures, strict=True)]
            rows.append({"arm": arm, "cells": cells})
    return rows


def values(sweep: Sweep, arm: str, name: str) -> list[float]:
    """A figure of the probes in all seeds that have it."""
    return [run.probes[name] for run in sweep.of(arm) if run.probes.get(name) is not None]


def over_seeds(sweep: Sweep, arm: str, name: str) -> str:
    found = values(sweep, arm, name)
    return number(float(np.mean(found))) if found else "-"


def leaks(sweep: Sweep, arm: str) -> str:
    """The word before the figure."""
    found = values(sweep, arm, "leaks")
    return "" if not found else "LEAKS, " if any(found) else "none, "


def settings(sweep: Sweep) -> dict[str, Any]:
    """All that it takes to repeat the sweep."""
    made = {key: distinct([run.manifest.get(key) for run in sweep.runs]) for key in MANIFEST}
    first = next((run for run in sweep.runs if run.config), None)
    return {
        "made": {key.replace("_", " "): ", ".join(found) for key, found in made.items() if found},
        "first": first and f"{first.arm}, seed {first.seed}",
        "toml": to_toml(first.config) if first and first.config else None,
        "runs": [
            {
                "arm": run.arm,
                "seed": run.seed,
                "status": run.result["status"],
                "steps": run.result.get("steps", "-"),
                "seconds": run.result.get("seconds", "-"),
                "text": run.manifest.get("corpus_sha256", "-"),
                "weights": run.hashes.get("model.safetensors", "-"),
            }
            for run in sweep.runs
        ],
    }


def distinct(found: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in found if value is not None))
