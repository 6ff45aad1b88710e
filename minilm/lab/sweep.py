"""How are many runs made, each of them once, wherever there are workers for them?

A run that is done has a result.json (see jobs.py), so the same command does what is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from minilm import __version__, runs
from minilm.errors import UserError
from minilm.lab.arms import Arm, changes
from minilm.lab.engines import Engine, WorkerLost
from minilm.lab.jobs import LOG, PROBES, RESULT, Job, read_result
from minilm.settings import load_config

FREE = ("training.threads",)  # may differ from what a run began with
MOST_PROBLEMS = 8


def plan(arms: list[Arm], n_seeds: int, out: Path) -> list[Job]:
    """All runs, seed by seed, so that a sweep that is stopped has whole pairs to compare."""
    jobs = []
    for number in range(n_seeds):
        for arm in arms:
            seed = arms[0].config.training.seed + number
            training = arm.config.training.model_copy(update={"seed": seed, "threads": 1})
            config = arm.config.model_copy(update={"training": training})
            jobs.append(Job(arm.name, seed, config, out / arm.name / f"seed-{seed}"))
    return jobs


def check_folders(jobs: list[Job]) -> None:
    """Refuse to go on with runs that were made otherwise than is asked now."""
    problems = [f"{job.folder}: {problem}" for job in jobs for problem in difference_from(job)]
    if problems:
        rest = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        advice = "ask for the same, choose another folder with --out, or replace these runs with --overwrite"
        raise UserError("\n".join([*problems[:MOST_PROBLEMS], *rest, advice]))


def difference_from(job: Job) -> list[str]:
    """What keeps a folder's run from being the one that is asked for."""
    if not runs.is_used(job.folder):
        return []
    try:
        version = json.loads((job.folder / "manifest.json").read_text(encoding="utf-8"))["minilm"]
        if version != __version__:
            return [f"was made by minilm {version}, and this is {__version__}"]
        began = load_config(job.folder / "config.toml")
        if job.result.exists():
            read_result(job)
    except (OSError, ValueError, LookupError, TypeError) as error:
        return [f"its manifest.json or {RESULT} cannot be read ({error})"]
    except UserError as error:
        return [f"its settings cannot be read ({error})"]
    found = [change for change in changes(job.config, began) if change.setting not in FREE]
    return [f"{change.setting} was {change.before!r}, and is asked to be {change.now!r}" for change in found]


def clear(job: Job) -> None:
    """Take away what the sweep itself wrote of a run; its other files go when it is made anew."""
    for name in (RESULT, PROBES, LOG):
        (job.folder / name).unlink(missing_ok=True)
    if runs.is_used(job.folder) and not runs.not_ours(job.folder):
        runs.clear(job.folder)


def sweep(jobs: list[Job], engine: Engine, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Do what is left of `jobs`; yields each result as it comes, the old ones first.

    A worker that is killed takes only its own run's last steps with it; the rest goes on.
    """
    yield from (read_result(job) for job in jobs if job.result.exists())
    left = [job for job in jobs if not job.result.exists()]
    while left:
        told = set()
        try:
            for result in engine.results(left):
                told.add((result["arm"], result["seed"]))
                yield result
        except WorkerLost:
            missed = [job for job in left if (job.arm, job.seed) not in told]
            yield from (read_result(job) for job in missed if job.result.exists())
            still = [job for job in missed if not job.result.exists()]
            if len(still) == len(left):
                raise UserError(
                    "a worker was killed before any run was done (is there enough memory? try fewer at a time); "
                    "what was saved stands, and the same command goes on"
                ) from None
            note(f"a worker was killed; going on with the {len(still)} runs that are left")
            left = still
        else:
            return
