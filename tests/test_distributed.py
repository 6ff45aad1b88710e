"""Do two processes train the model that one does, write one set of files, and end together?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT, environment

from minilm.distributed import Team
from minilm.runs import load_run, read_metrics
from minilm.session import check_share

pytestmark = pytest.mark.skipif(os.name == "nt", reason="torchrun forks")
TINY = [
    *("--model.n-layers=2", "--model.n-heads=2", "--model.width=32", "--model.context=16"),
    *("--training.batch-size=4", "--training.accumulation=4", "--training.steps=6", "--training.warmup=2"),
    *("--training.evaluate-every=2", "--training.evaluation-characters=400", "--training.sample-every=2"),
    *("--training.sample-length=8", "--training.device=cpu", "--training.precision=float32"),
]


def torchrun(text: Path, *words: str, cwd: Path, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """`torchrun --nproc-per-node 2 train.py TEXT --out two ...` as a process.

    What it says goes into files, since a pipe that nobody reads is full after a while, and then it waits.
    """
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    with (cwd / "out").open("w", encoding="utf-8") as out, (cwd / "err").open("w", encoding="utf-8") as err:
        return subprocess.Popen(
            [*start, str(ROOT / "train.py"), str(text), "--out=two", *TINY, *words],
            cwd=cwd,
            env=environment(PYTHONPATH=str(ROOT)),
            stdout=out,
            stderr=err,
        )


def finish(process: subprocess.Popen[bytes], cwd: Path, timeout: float = 180) -> tuple[int, str, str]:
    process.wait(timeout)
    return process.returncode, *((cwd / name).read_text(encoding="utf-8") for name in ("out", "err"))


def test_ddp_1_windows_that_cannot_be_shared_evenly_are_refused(tiny, refusal):
    config = tiny(training={"batch_size": 3, "accumulation": 3})
    assert "= 9 windows cannot be shared evenly by 2 processes" in refusal(check_share, config, Team(0, 2))
    check_share(config, Team(0, 3))


def test_ddp_2_every_window_goes_to_one_process():
    windows = torch.arange(12)[:, None]
    shares = [Team(rank, 3).share(windows).flatten().tolist() for rank in range(3)]
    assert sorted(number for share in shares for number in share) == list(range(12))
    assert {len(share) for share in shares} == {4}
    assert len({Team(rank, 3).own("dropout") for rank in range(3)}) == 3
    assert Team().own("dropout") == "dropout"


@pytest.mark.slow
def test_ddp_1_to_3_two_processes_train_what_one_does(tiny_text, tmp_path, train_py, monkeypatch):
    code, out, err = finish(torchrun(tiny_text, cwd=tmp_path), tmp_path)
    assert code == 0, err
    assert out.count("best validation loss") == 1
    assert out.count("step     2 ") == 1
    monkeypatch.chdir(tmp_path)
    assert train_py(tiny_text, "--out=one", *TINY) == 0
    one, two = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for ours, theirs in zip(one, two, strict=True):
        if "loss" in ours:
            assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
        else:
            assert ours["validation"]["loss"] == pytest.approx(theirs["validation"]["loss"], abs=1e-4)
    assert one[0]["loss"] == pytest.approx(two[0]["loss"], abs=1e-6)
    assert one[0]["norm"] == pytest.approx(two[0]["norm"], rel=1e-5)
    files = [
        sorted(str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*"))
        for name in ("one", "two")
    ]
    assert files[0] == files[1]
    weights = [load_run(tmp_path / name, "last").model.state_dict() for name in ("one", "two")]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-3, rtol=1e-2)


@pytest.mark.slow
def test_ddp_3_a_refusal_is_told_once_and_ends_all(tiny_text, tmp_path):
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "config.toml").write_text("mine", encoding="utf-8")
    code, _, err = finish(torchrun(tiny_text, cwd=tmp_path), tmp_path)
    assert code != 0
    assert err.count("no run of minilm's made that") == 1
    assert (tmp_path / "two" / "config.toml").read_text(encoding="utf-8") == "mine"


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that torchrun has started."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8")
    return [int(word) for word in found.split()]


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds children in /proc")
def test_a_killed_process_takes_the_other_and_a_restart_goes_on(tiny_text, tmp_path):
    """SIGKILL to one: torchrun starts both again, which resume; then SIGTERM: both save and stop."""
    process = torchrun(tiny_text, "--training.steps=1000000", cwd=tmp_path, options=("--max-restarts=1",))
    try:
        last = tmp_path / "two" / "last" / "state.json"
        wait_for(last.exists)
        first = children(process)
        os.kill(first[-1], signal.SIGKILL)
        wait_for(lambda: len(set(children(process)) - set(first)) == 2)
        before = len(read_metrics(tmp_path / "two" / "metrics.jsonl"))
        wait_for(lambda: len(read_metrics(tmp_path / "two" / "metrics.jsonl")) > before + 5)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        code, out, _ = finish(process, tmp_path)
        assert time.monotonic() - began < 60
        assert code != 0
        assert "resumed     after step" in out
        steps = [line["step"] for line in read_metrics(tmp_path / "two" / "metrics.jsonl") if "loss" in line]
        assert steps == list(range(1, len(steps) + 1))
    finally:
        process.kill()
