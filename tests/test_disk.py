"""What is left of a run when the disk is full, may not be written to, or is gone, or when memory does not do?"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess

import pytest
from conftest import ROOT, command_line, environment
from test_checkpoint import rewrite_state

from minilm.checkpoint import MODEL
from minilm.runs import clear, is_used, load_run, read_metrics
from minilm.session import prepare, start_run
from minilm.training import Stop, train


@contextlib.contextmanager
def largest_file(size: int):
    """What `ulimit -f` does, for a while: writing past `size` bytes of a file fails."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_disk_that_takes_no_checkpoint_leaves_the_one_before(copied, on_text, refusal, capsys):
    with largest_file(50_000):  # the weights alone are 110 kB
        message = refusal(start_run, on_text(training={"steps": 12}), copied, resume=True)
    assert message.startswith(f"{copied / 'best'}: step 12 (0.2 MB) could not be saved: ")
    assert "File too large" in message
    assert message.endswith("; what was saved before stands. Make room or rights, then go on with --resume")
    assert not list(copied.glob(".*.new"))
    assert [load_run(copied, which).step for which in ("last", "best")] == [8, 8]
    assert start_run(on_text(training={"steps": 12}), copied, resume=True) == 0
    assert [line["step"] for line in read_metrics(copied / "metrics.jsonl") if "loss" in line] == list(range(1, 13))


def test_disk_that_takes_no_more_metrics_ends_the_run_with_advice(copied, on_text, refusal, capsys):
    file = copied / "metrics.jsonl"
    with largest_file(file.stat().st_size + 150):
        message = refusal(start_run, on_text(training={"steps": 12}), copied, resume=True)
    advice = "what was saved before stands. Make room or rights, then go on with --resume"
    assert message == f"{file}: cannot be written: File too large; {advice}"
    assert load_run(copied, "last").step == 8
    with largest_file(100):
        assert refusal(start_run, on_text(training={"steps": 12}), copied, resume=True) == message
    assert start_run(on_text(training={"steps": 12}), copied, resume=True) == 0


def test_sample_that_cannot_be_written_is_shown_and_the_run_goes_on(on_text, tmp_path, capsys):
    run = prepare(on_text(training={"sample_every": 3}), tmp_path / "run", resume=False, overwrite=False)
    (tmp_path / "run" / "samples.txt").mkdir()
    train(run, Stop())
    out, err = capsys.readouterr()
    assert run.step == 8
    assert out.count("    | ") >= 2
    assert err.count(f"note: {tmp_path / 'run' / 'samples.txt'}: cannot be written: Is a directory") == 2


class Remove(Stop):
    """Takes the folder of a run away in the middle of it."""

    def __init__(self, run, step: int) -> None:
        self.run, self.last = run, step

    @property
    def signal(self):
        if self.run.step == self.last:
            shutil.rmtree(self.run.folder, ignore_errors=True)


def test_folder_that_is_removed_while_training_is_missed_and_not_made_anew(on_text, tmp_path, refusal):
    run = prepare(on_text(training={"sample_every": 6}), tmp_path / "run", resume=False, overwrite=False)
    message = refusal(train, run, Remove(run, 5))
    assert message.startswith(f"{run.folder / 'last'}: step 8 (") or message.startswith(f"{run.folder / 'best'}: step")
    assert message.endswith(f"{run.folder} is gone, and with it what was saved before")
    assert not run.folder.exists()


def without_rights(words: list[str]) -> list[str]:
    """The same command, for whom rights count: root's may be taken away."""
    if os.geteuid() != 0:
        return words
    if shutil.which("setpriv") is None:
        pytest.skip("root may write anywhere, and there is no setpriv here")
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *words]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are of another kind here")
def test_folder_that_may_not_be_written_to_is_named(copied, tiny_text):
    state = json.loads((copied / "last" / "state.json").read_text("utf-8"))
    settings = copied.parent / "settings.toml"
    shutil.copyfile(copied / "config.toml", settings)
    copied.chmod(0o500)
    try:
        words = command_line("train.py", settings, "--training.steps=9", "--resume", "--out", copied)
        pipes = {"capture_output": True, "encoding": "utf-8", "check": False}
        done = subprocess.run(without_rights(words), env=environment(PYTHONPATH=str(ROOT)), **pipes)
    finally:
        copied.chmod(0o700)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: {copied / 'metrics.jsonl'}: cannot be written: Permission denied; what was saved")
    assert "Traceback" not in done.stderr
    assert json.loads((copied / "last" / "state.json").read_text("utf-8")) == state


def test_removal_of_a_run_that_is_cut_short_leaves_no_half_of_a_checkpoint(copied, monkeypatch):
    monkeypatch.setattr("minilm.runs.shutil.rmtree", lambda *_, **__: None)
    clear(copied)
    assert not is_used(copied)


def test_damaged_best_points_at_a_last_that_is_there(copied, refusal):
    (copied / "best" / MODEL).write_bytes(b"")
    message = refusal(load_run, copied)
    assert message.startswith(f"{copied / 'best' / MODEL}: is damaged")
    assert message.endswith(f"; --which last takes {copied / 'last'} instead")
    load_run(copied, "last")
    shutil.rmtree(copied / "last")
    assert "--which" not in refusal(load_run, copied)


def test_going_on_to_fewer_steps_than_are_done_is_refused(copied, on_text, refusal):
    message = refusal(prepare, on_text(training={"steps": 7}), copied, resume=True, overwrite=False)
    assert message.startswith(f"{copied}: cannot go on: 8 steps are done, and --training.steps asks for 7 in all\n")


@pytest.mark.parametrize("shape", [{"width": 65_536}, {"width": 4096, "n_layers": 1000}])
def test_model_that_no_memory_holds_is_refused_before_it_is_made(on_text, tmp_path, refusal, monkeypatch, shape):
    monkeypatch.setattr("minilm.session.physical_memory", lambda: 64e9)
    message = refusal(start_run, on_text(model=shape), tmp_path / "run")
    assert "GB at least, and this machine has 64: try a smaller --model.width" in message
    assert not (tmp_path / "run").exists()


def test_batch_that_no_memory_holds_ends_with_advice(on_text, tmp_path, refusal):
    training = {"batch_size": 10**6, "accumulation": 10**6}
    message = refusal(start_run, on_text(training=training), tmp_path / "run")
    assert message.startswith("out of memory at step 1: ")
    assert "try a smaller --training.batch-size" in message


@pytest.mark.parametrize("shape", [{"width": 65_536}, {"n_layers": 1000}, {"context": 10**6}])
def test_checkpoint_that_claims_to_be_huge_takes_no_memory(copied, refusal, monkeypatch, shape):
    state = json.loads((copied / "last" / "state.json").read_text("utf-8"))
    state["config"]["model"] |= shape
    rewrite_state(copied / "last", config=state["config"])
    monkeypatch.setattr("minilm.runs.build_model", lambda *_: pytest.fail("a model was made"))
    assert refusal(load_run, copied, "last").startswith(f"{copied / 'last'}: state.json has the settings of a larger")


def test_header_that_claims_terabytes_takes_no_memory(copied, refusal):
    claim = {"head.weight": {"dtype": "F32", "shape": [10**6, 10**7], "data_offsets": [0, 4 * 10**13]}}
    head = json.dumps(claim).encode()
    file = copied / "last" / MODEL
    file.write_bytes(len(head).to_bytes(8, "little") + head)
    assert file.stat().st_size < 200
    hashes = json.loads((copied / "last" / "state.json").read_text("utf-8"))["sha256"]
    rewrite_state(copied / "last", sha256={**hashes, MODEL: hashlib.sha256(file.read_bytes()).hexdigest()})
    message = refusal(load_run, copied, "last")
    assert message.startswith(f"{file}: is not a safetensors file: ")
    assert "\n" not in message
