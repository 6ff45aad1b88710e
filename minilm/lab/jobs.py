"""How is one run of a sweep made, in whatever process it comes to?

It is an ordinary run folder, OUT/ARM/seed-N, made as train.py makes it. When it is trained and
probed it gets a result.json; one that has none goes on from its last checkpoint. So whatever is
killed, the same call does what is left and nothing twice.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from minilm import runs
from minilm.checkpoint import recover
from minilm.config import Config
from minilm.errors import UserError
from minilm.lab.probes import probe_run
from minilm.paths import replace_text
from minilm.session import opening, prepare
from minilm.training import Run, Stop, train

RESULT, PROBES, LOG, TICKET = "result.json", "probes.json", "log.txt", "ticket.txt"
LOOK = 1.0  # seconds between two looks at whether the sweep still wants a run
ONE_AT_A_TIME = threading.Lock()


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


def read_result(job: Job) -> dict[str, Any]:
    """What became of a run that is done."""
    result = json.loads(job.result.read_text(encoding="utf-8"))
    if (result["arm"], result["seed"]) != (job.arm, job.seed):
        raise ValueError(f"{job.result} is that of {result['arm']}, seed {result['seed']}")
    return result


def run_here(job: Job) -> dict[str, Any]:
    """`run_job` in a process of this machine, which ends with the one that asks."""
    if job.sweeper != os.getpid():
        stop_with(job.sweeper)
    return run_job(job)


def run_there(job: Job, directory: str, ticket: Path, token: str) -> dict[str, Any]:
    """`run_job` in a worker of a cluster, which has to see the same files and may outlive the one that asks.

    Args:
        directory: where the command was given, from which its paths go.
        ticket, token: a file of the sweep and what it holds for as long as the sweep wants the run.
    """
    host = socket.gethostname()
    with suppress(OSError):  # whether it is the right one, the ticket tells
        os.chdir(directory)
    if not holds(ticket, token):
        raise UserError(
            f"the worker on {host} does not see {ticket} as of now: all workers need the folder {directory}, "
            "under this name (see the README on clusters)"
        )
    if not ONE_AT_A_TIME.acquire(blocking=False):
        raise UserError(f"a worker on {host} was given two runs at a time: start workers with one thread each")
    try:
        # A worker that was lost may have come to the end of it.
        return read_result(job) if job.result.exists() else run_job(job, wanted=lambda: holds(ticket, token))
    except KeyboardInterrupt:
        raise UserError(f"{job.arm}, seed {job.seed}: stopped after a step that is saved") from None
    finally:
        ONE_AT_A_TIME.release()


def holds(ticket: Path, token: str) -> bool:
    """Whether the sweep that gave this token still goes on."""
    try:
        return ticket.read_text(encoding="utf-8") == token
    except OSError:
        return False


def run_job(job: Job, wanted: Callable[[], bool] | None = None) -> dict[str, Any]:
    """Train and probe one run, or finish it, in this process with one thread, for as long as it is `wanted`."""
    torch.set_num_threads(1)
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with (job.folder / LOG).open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
            result = finish(job, wanted)
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


@contextmanager
def stopping_unless(wanted: Callable[[], bool], stop: Stop) -> Iterator[None]:
    """Have a run stop, as by SIGTERM, once it is not wanted."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK):
            if not wanted():
                stop.ask(signal.SIGTERM, None)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def finish(job: Job, wanted: Callable[[], bool] | None) -> dict[str, Any]:
    """Train from the last checkpoint, if there is one, to the end; then probe."""
    began = time.perf_counter()
    recover(job.folder / "last")
    resume = (job.folder / "last").is_dir()
    run = prepare(job.config, job.folder, resume=resume, overwrite=not resume)
    print(opening(run))
    status, probes, note = "finished", {}, None
    with Stop() as stop, stopping_unless(wanted, stop) if wanted else nullcontext():
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
