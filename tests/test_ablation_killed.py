"""What is left of a sweep that is killed or stopped, or of whose workers one is?"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ablating import lines
from conftest import ROOT, environment


def start(out: Path, files: list[str]) -> subprocess.Popen[str]:
    """A sweep of two workers, long enough to be killed, in a process group of its own."""
    words = [*files, "--seeds=2", "--jobs=2", "--training.steps=300", "--training.evaluate-every=20", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "minilm", "ablate", *words],
        cwd=ROOT,
        env=environment(),
        encoding="utf-8",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(found, process: subprocess.Popen[str], seconds: float = 60) -> None:
    """Until `found` says so; a sweep that ended before that has failed."""
    end = time.monotonic() + seconds
    while not found():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that hold a run's log open."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if path.readlink().name == "log.txt" and os.getsid(int(path.parts[2])) == process.pid:
                found.append(int(path.parts[2]))
    return found


LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")


@pytest.mark.slow
@LINUX
def test_killed_sweep_leaves_no_workers_and_goes_on(files, tmp_path):
    out = tmp_path / "sweep"
    process = start(out, files)
    wait_for(lambda: len(list(out.glob("*/seed-*/last"))) == 2, process)
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=20)  # waits for whoever else could write to its pipes
    assert not workers_of(process)
    again = start(out, files)
    assert again.wait(120) == 0, again.communicate()
    assert len(lines(out)) == 4
    assert "resumed" in (out / "base" / "seed-0" / "log.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@LINUX
def test_killed_worker_takes_only_its_last_steps_with_it(files, tmp_path):
    out = tmp_path / "sweep"
    process = start(out, files)
    wait_for(lambda: (out / "results.jsonl").exists() and workers_of(process), process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "a worker was killed; going on with" in printed
    assert len(lines(out)) == 4


@pytest.mark.slow
def test_stopped_sweep_says_how_to_go_on(files, tmp_path):
    out = tmp_path / "sweep"
    process = start(out, files)
    wait_for(lambda: len(list(out.glob("*/seed-*/last"))) == 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
