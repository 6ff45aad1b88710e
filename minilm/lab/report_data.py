"""What is there of a sweep?

A report is made from the files of a sweep's folder alone, at any time: while the sweep runs, after
it, or from a copy of which parts are gone. What is not there is named, not guessed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minilm.checkpoint import read_state
from minilm.config import Config
from minilm.errors import UserError
from minilm.runs import read_metrics
from minilm.settings import load_config


@dataclass(frozen=True)
class Evidence:
    """What one run left behind; what is missing is empty."""

    arm: str
    seed: int
    diverged: bool
    result: dict[str, Any]  # its line of results.jsonl
    curve: list[dict[str, Any]]  # its evaluations, each with its step
    probes: dict[str, Any]
    manifest: dict[str, Any]
    hashes: dict[str, str]  # of the files of its last checkpoint
    config: Config | None


@dataclass(frozen=True)
class Sweep:
    """A sweep as far as it has come."""

    folder: Path
    preliminary: bool
    records: list[dict[str, Any]]  # one for each arm that was judged (see verdicts.py)
    runs: list[Evidence]
    missing: list[str]  # what is not there, a line each

    @property
    def arms(self) -> list[str]:
        """In the order in which they were run."""
        return list(dict.fromkeys(run.arm for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def of(self, arm: str) -> list[Evidence]:
        return [run for run in self.runs if run.arm == arm]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each arm with its control; before there are verdicts, with the first arm, which is the base."""
        judged = [(record["arm"], record["control"]) for record in self.records]
        return judged or [(arm, self.arms[0]) for arm in self.arms[1:]]


def read_sweep(folder: Path) -> Sweep:
    """All that is in a sweep's folder, or a UserError if there is none or it is damaged."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; `python -m minilm ablate` makes runs/ablation")
    results = read_lines(folder / "results.jsonl")
    missing: list[str] = []
    runs = [read_run(folder, result, missing) for result in results]
    verdicts: dict[str, Any] = {"preliminary": False, "arms": []}
    if (folder / "verdicts.json").exists():
        verdicts = read_json(folder / "verdicts.json")
    else:
        missing.append("No verdicts: the sweep has not come to its end. Each arm is shown beside the first.")
    if not isinstance(verdicts, dict) or not isinstance(verdicts.get("arms"), list):
        raise UserError(f"{folder / 'verdicts.json'}: is damaged: it holds no list of arms")
    return Sweep(folder, bool(verdicts.get("preliminary")), verdicts["arms"], runs, missing)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The finished runs, one a line."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except FileNotFoundError:
        raise UserError(f"{path}: is not there, so no run of a sweep has finished in {path.parent}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    kinds = {"arm": str, "seed": int, "status": str, "validation": dict, "probes": dict}
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or any(type(line.get(key)) is not kind for key, kind in kinds.items()):
            raise UserError(f"{path}: line {number} is not the result of a run")
    if not lines:
        raise UserError(f"{path}: is empty: no run has finished yet")
    return lines


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def read_run(folder: Path, result: dict[str, Any], missing: list[str]) -> Evidence:
    """One run's files; a line is added to `missing` for each that is not there or cannot be read."""
    arm, seed = result["arm"], result["seed"]
    place = folder / arm / f"seed-{seed}"
    diverged = result["status"] == "diverged"

    def attempt(name: str, reader: Any, otherwise: Any) -> Any:
        if not (place / name).exists():
            missing.append(f"{arm}, seed {seed}: there is no {name}.")
            return otherwise
        try:
            return reader(place / name)
        except UserError as error:
            missing.append(f"{arm}, seed {seed}: {error}.")
            return otherwise

    return Evidence(
        arm,
        seed,
        diverged,
        result,
        [line for line in attempt("metrics.jsonl", read_metrics, []) if "validation" in line],
        {} if diverged else attempt("probes.json", read_json, {}),
        attempt("manifest.json", read_json, {}),
        # A run that diverged early may never have saved.
        attempt("last", read_state, {"sha256": {}})["sha256"] if not diverged else {},
        attempt("config.toml", load_config, None),
    )
