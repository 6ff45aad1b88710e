"""Is nothing lost when a run is killed at any moment, and does it end where it would have ended?

Runs of a few dozen quick steps, saved every third, are killed at random moments and resumed, as
often as it takes. Each is forked off a process that has torch imported, so a kill takes a
fraction of a second. MINILM_KILLS and MINILM_SIGNALS say how many; MINILM_SEED repeats a trial.
"""

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import pytest
from conftest import trained_run
from test_resume import what_matters
from tqdm import tqdm

from minilm.checkpoint import read_checkpoint
from minilm.errors import run_main
from minilm.runs import is_used, load_run
from minilm.session import start_run

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")]

FINISHED = 0
TRAINING = {"steps": 20, "evaluate_every": 3, "sample_every": 4, "batch_size": 2, "evaluation_characters": 16}


@pytest.fixture
def config(on_text):
    return on_text(model={"n_layers": 1, "width": 16, "context": 8, "dropout": 0.1}, training=TRAINING)


def begin(config, folder: Path, log: Path) -> int:
    """Start or resume the run in a process of its own; returns the number of the process."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        tqdm.set_lock(threading.RLock())  # its own is shared with forks, and one that is killed while it holds it...
        sys.stdout = sys.stderr = log.open("a", encoding="utf-8")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        run_main(lambda: start_run(config, folder, resume=is_used(folder)))
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def interrupt(process: int, number: int, delay: float) -> int:
    """Send the signal after a while, unless it ends by itself; returns its code, or minus a signal's number."""
    end = time.perf_counter() + delay
    while time.perf_counter() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(process, number)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def unfinished(folder: Path) -> str:
    """What a kill left behind, by which one sees where it struck."""
    left = sorted(path.name for path in folder.glob(".*")) if folder.exists() else []
    return ", ".join(left) or ("between writes" if is_used(folder) else "before the first file")


def assert_whole(folder: Path) -> None:
    """What is there can be read, with the optimizer's memory, and only what was renamed into place is taken."""
    for name in ("last", "best"):
        if (folder / name).is_dir() or (folder / f".{name}.old").is_dir():
            read_checkpoint(folder / name, optimizer=True)
    if (folder / "last").is_dir():
        load_run(folder, "last")


def trial(config, tmp_path: Path, numbers: list[int], wanted: int) -> Counter:
    """Interrupt runs `wanted` times; each that comes to its end is compared. Returns what was found after the kills."""
    seed = int(os.environ.get("MINILM_SEED", time.time_ns() % 2**32))
    print(f"MINILM_SEED={seed}")  # shown where the test fails
    draw = random.Random(seed)
    began = time.perf_counter()
    straight = tmp_path / "straight"
    trained_run(config, straight)
    length = time.perf_counter() - began
    expected = [what_matters(straight), *(read_checkpoint(straight / name).state for name in ("last", "best"))]
    found: Counter = Counter()
    runs = 0
    while found.total() < wanted:
        runs += 1
        folder, log = tmp_path / f"run-{runs}", tmp_path / f"log-{runs}"
        log.touch()  # by us, since a kill may come before the run has opened it
        code = None
        while code != FINISHED:
            number = draw.choice(numbers)
            code = interrupt(begin(config, folder, log), number, draw.uniform(0, length))
            assert code in (FINISHED, -number, 128 + number), log.read_text(encoding="utf-8")
            assert "Traceback" not in log.read_text(encoding="utf-8")
            length *= 0.85 if code == FINISHED else 1.1  # however busy the machine is, one or two kills a run
            if code != FINISHED:
                found[f"{signal.Signals(number).name}: {unfinished(folder)}"] += 1
                if draw.random() < 0.5:  # else it is the run itself that meets what is there
                    assert_whole(folder)
        ended = [what_matters(folder), *(read_checkpoint(folder / name).state for name in ("last", "best"))]
        assert ended == expected  # the hashes of weights and optimizer memory among it
        assert_whole(folder)
    print(f"{found.total()} kills, {runs} runs:", *sorted(found.items()), sep="\n    ")
    return found


def test_runs_killed_at_any_moment_end_where_they_would_have_ended(config, tmp_path):
    trial(config, tmp_path, [signal.SIGKILL], int(os.environ.get("MINILM_KILLS", 40)))


def test_runs_stopped_at_any_moment_end_where_they_would_have_ended(config, tmp_path):
    trial(config, tmp_path, [signal.SIGTERM, signal.SIGINT], int(os.environ.get("MINILM_SIGNALS", 10)))
