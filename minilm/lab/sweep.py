"""How are many runs made, each of them once, on all cores?

A run of the sweep is an ordinary run folder, OUT/ARM/seed-N, made as train.py makes it. When it
is trained and probed it gets a result.json; a run that has none goes on from its last checkpoint.
So whatever is killed, the same command does what is left and nothing twice.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool

from minilm import __version__, runs
from minilm.checkpoint import recover
from minilm.config import Config
from minilm.errors import UserError
from minilm.lab.arms import Arm, changes
from minilm.lab.probes import probe_run
from minilm.paths import replace_text
from minilm.session import opening, prepare
from minilm.settings import load_config
from minilm.training import Run, Stop, train

RESULT, PROBES, LOG = "result.json", "probes.json", "log.txt"
FREE = ("training.threads",)  # may differ from what a run began with
MOST_PROBLEMS = 8


@dataclass(frozen=True)
class Job:
    """One run to be made."""

    arm: str
    seed: int
    config: Config
    folder: Path
    sweeper: int = field(default_factory=os.getpid)  # the process that asks for it

    @property
    def result(self) -> Path:
        return self.folder / RESULT


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


def read_result(job: Job) -> dict[str, Any]:
    """What became of a run that is done."""
    result = json.loads(job.result.read_text(encoding="utf-8"))
    if (result["arm"], result["seed"]) != (job.arm, job.seed):
        raise ValueError(f"{job.result} is that of {result['arm']}, seed {result['seed']}")
    return result


def sweep(jobs: list[Job], workers: int, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Do what is left of `jobs`, `workers` at a time; yields each result as it comes, the old ones first.

    A worker that is killed takes only its own run's last steps with it; the rest goes on.
    """
    yield from (read_result(job) for job in jobs if job.result.exists())
    left = [job for job in jobs if not job.result.exists()]
    while left:
        told = set()
        try:
            with parallel_config("loky", n_jobs=min(workers, len(left)), inner_max_num_threads=1):
                calls = Parallel(return_as="generator_unordered", batch_size=1)
                for result in calls(delayed(run_job)(job) for job in left):
                    told.add((result["arm"], result["seed"]))
                    yield result
        except BrokenProcessPool:
            missed = [job for job in left if (job.arm, job.seed) not in told]
            yield from (read_result(job) for job in missed if job.result.exists())
            still = [job for job in missed if not job.result.exists()]
            if len(still) == len(left):
                raise UserError(
                    "a worker was killed before any run was done (is there enough memory? try --jobs 1); "
                    "what was saved stands, and the same command goes on"
                ) from None
            note(f"a worker was killed; going on with the {len(still)} runs that are left")
            left = still
        else:
            return


def run_job(job: Job) -> dict[str, Any]:
    """Train and probe one run, or finish it, in this process with one thread."""
    if job.sweeper != os.getpid():
        stop_with(job.sweeper)
    torch.set_num_threads(1)
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / LOG).open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
            result = finish(job)
        write_json(job.result, result)
    except UserError as error:
        raise UserError(f"{job.arm}, seed {job.seed}: {error}\nthe same command goes on with what is left") from None
    except OSError as error:
        raise UserError(
            f"{job.arm}, seed {job.seed}: {error.filename or job.folder}: {error.strerror or error}; "
            "what was saved before stands, and the same command goes on"
        ) from None
    return result


def stop_with(parent: int) -> None:
    """Have this worker stop, as by SIGTERM, when the sweep is gone: the next one writes to the same folders."""

    def watch() -> None:
        while True:
            time.sleep(0.2)
            if os.getppid() != parent:
                # Once has training save and stop; once more ends the worker, which would wait for work.
                os.kill(os.getpid(), signal.SIGTERM)

    name = "stop with parent"
    if os.getppid() == parent and name not in [thread.name for thread in threading.enumerate()]:
        threading.Thread(target=watch, name=name, daemon=True).start()


def finish(job: Job) -> dict[str, Any]:
    """Train from the last checkpoint, if there is one, to the end; then probe."""
    began = time.perf_counter()
    recover(job.folder / "last")
    resume = (job.folder / "last").is_dir()
    run = prepare(job.config, job.folder, resume=resume, overwrite=not resume)
    print(opening(run))
    status, probes, note = "finished", {}, None
    with Stop() as stop:
        try:
            train(run, stop)
        except FloatingPointError as error:
            status, note = "diverged", str(error)
    if stop.signal is not None:
        raise KeyboardInterrupt
    if status == "finished":
        try:
            probes = probe(run)
        except UserError as error:  # of a model that gives no numbers, say
            note = str(error)
    seconds = round(time.perf_counter() - began, 2)
    return {
        **{"arm": job.arm, "seed": job.seed, "status": status, "note": note, "steps": run.step, "seconds": seconds},
        **evaluations(run),
        "probes": probes,
    }


def probe(run: Run) -> dict[str, Any]:
    """Write probes.json, and return what of it is a single number."""
    found = probe_run(run.folder, corpus=run.corpus)
    write_json(run.folder / PROBES, found)
    return {name: value for name, value in found.items() if not isinstance(value, list | dict | str)}


def evaluations(run: Run) -> dict[str, Any]:
    """The last evaluation, and the first after a third of the steps: early enough to see who learns slower."""
    lines = [line for line in runs.read_metrics(run.folder / "metrics.jsonl") if "validation" in line]
    third = run.config.training.steps / 3
    early: dict[str, Any] = next((line["validation"] for line in lines if line["step"] >= third), {})
    return {"early": early, "validation": lines[-1]["validation"] if lines else {}}


def write_json(path: Path, content: Any) -> None:
    """Write it whole or not at all."""
    replace_text(path, json.dumps(content, allow_nan=False, ensure_ascii=False))
