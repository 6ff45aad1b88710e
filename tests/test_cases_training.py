"""Do the failures that others met while training happen here?

Each name starts with the case it retells. RES-1 is in test_resume.py.
"""

import importlib.metadata
import json
import signal
import subprocess
import sys
import time
import tomllib
from itertools import pairwise

import pytest
import torch
from conftest import ROOT, command_line, environment

from minilm.config import TrainingConfig
from minilm.device import choose_device, choose_precision
from minilm.optim import learning_rate_factor
from minilm.runs import load_run, read_metrics
from minilm.session import prepare, start_run
from minilm.settings import load_config, validate


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("warmup", "steps"), [(0, 10), (10, 20), (5, 10), (1, 1), (0, 1), (10, 10), (9, 10)])
@pytest.mark.parametrize("final_fraction", [0.0, 0.01, 1.0])
def test_trn_2_learning_rate_at_its_edges(schedule, warmup, steps, final_fraction):
    training = TrainingConfig(warmup=warmup, steps=steps, schedule=schedule, final_fraction=final_fraction)
    factors = [learning_rate_factor(step, training) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) == 1
    assert all(a <= b for a, b in pairwise(factors[:warmup]))
    assert all(a >= b for a, b in pairwise(factors[warmup:]))
    for step in (steps, steps + 1, 10 * steps):
        assert learning_rate_factor(step, training) == pytest.approx(1 if schedule == "constant" else final_fraction)


def test_trn_2_a_run_shorter_than_its_warmup_only_rises():
    training = TrainingConfig(warmup=20, steps=10)
    factors = [learning_rate_factor(step, training) for step in range(10)]
    assert factors == pytest.approx([(step + 1) / 20 for step in range(10)])


@pytest.mark.parametrize("warmup", [0, 4])
def test_trn_2_first_step_moves_the_weights(on_text, train_in, tmp_path, warmup):
    config = on_text(training={"warmup": warmup})
    before = prepare(config, tmp_path / "run", resume=False, overwrite=False).model.state_dict()
    after = train_in(config, tmp_path / "again", until=1).model.state_dict()
    assert not torch.equal(before["head.weight"], after["head.weight"])
    assert not torch.equal(before["blocks.0.attention.value.weight"], after["blocks.0.attention.value.weight"])


def test_trn_2_learning_rate_goes_on_after_resume(on_text, train_in, tmp_path):
    config = on_text(training={"schedule": "cosine"})
    train_in(config, tmp_path / "run", until=3)
    train_in(config, tmp_path / "run", resume=True)
    rates = [line["learning_rate"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in line]
    peak = config.training.learning_rate
    assert rates == [peak * learning_rate_factor(step, config.training) for step in range(8)]


@pytest.fixture
def endless(tmp_path, tiny_text):
    """A run in its own process that would not end, some steps along; ends with the test."""
    settings = tmp_path / "endless.toml"
    settings.write_text(
        f"base = {json.dumps(str(ROOT / 'configs' / 'tiny.toml'))}\n"
        "[training]\nsteps = 1_000_000\nevaluate_every = 1_000_000\nsample_every = 1_000_000\n"
        f'[corpus]\nsource = "file"\npath = [{json.dumps(str(tiny_text))}]\n',
        encoding="utf-8",
    )
    words = command_line("train.py", settings, "--out", "run")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(words, cwd=tmp_path, env=environment(), encoding="utf-8", **pipes)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.read_text("utf-8").count("\n") >= 5):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT], 130), ([signal.SIGTERM], 143), ([signal.SIGINT] * 3, 130)],
    ids=["ctrl-c", "terminate", "three ctrl-c"],
)
def test_trn_3_signal_saves_and_says_how_to_go_on(endless, tmp_path, signals, code):
    began = time.monotonic()
    for number in signals:
        endless.send_signal(number)
        if len(signals) > 1:
            time.sleep(0.1)
    out, err = endless.communicate(timeout=30)
    assert time.monotonic() - began < 10
    assert endless.returncode == code, err
    assert "Traceback" not in err
    folder = tmp_path / "run"
    step = json.loads((folder / "last" / "state.json").read_text("utf-8"))["step"]
    assert out.splitlines()[-1] == (
        f"{signals[0].name}: stopped after step {step}, which is saved; the same command with --resume goes on."
    )
    assert step >= 5
    steps = [line["step"] for line in read_metrics(folder / "metrics.jsonl")]
    assert steps == list(range(1, step + 1))
    assert sorted(file.name for file in folder.iterdir()) == ["config.toml", "last", "manifest.json", "metrics.jsonl"]
    # The same command with --resume goes on; here with an end.
    tables = tomllib.loads((folder / "config.toml").read_text("utf-8"))
    tables["training"]["steps"] = step + 2
    assert start_run(validate(tables, {}), folder, resume=True) == 0
    steps = [line["step"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
    assert steps == list(range(1, step + 3))
    assert load_run(folder).step == step + 2


@pytest.mark.parametrize("name", ["gpu0x", "meta", "hpu", "cuda:x", "", "cpu:", "xla", "cuda:-1", "CPU"])
def test_env_1_device_that_is_not_there_is_refused(name, refusal):
    message = refusal(choose_device, name)
    assert message.startswith(f"device {name!r}: ")
    assert "\n" not in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device here")
def test_env_1_cuda_on_a_machine_without_is_refused(on_text, tmp_path, refusal):
    message = refusal(start_run, on_text(training={"device": "cuda"}), tmp_path / "run")
    assert message.startswith("device 'cuda': there is none here (")
    assert message.endswith("; use auto or cpu")
    assert not (tmp_path / "run").exists()


def test_env_1_auto_takes_what_is_there():
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu"
    assert choose_device("auto").type == expected
    assert choose_device("cpu").type == "cpu"


@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("fast", [True, False])
def test_env_1_precision_follows_the_device_only_where_it_may(monkeypatch, kind, fast):
    device = torch.device(kind)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: fast)
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": fast}, raising=False)
    auto = torch.bfloat16 if fast and kind != "mps" else torch.float32
    found = [choose_precision(name, device) for name in ("auto", "float32", "bfloat16")]
    assert found == [auto, torch.float32, torch.bfloat16]


def test_env_1_products_in_bfloat16_train_weights_of_float32(on_text, train_in, tmp_path):
    exact = train_in(on_text(training={"steps": 30}), tmp_path / "exact")
    rough = train_in(on_text(training={"steps": 30, "precision": "bfloat16"}), tmp_path / "rough")
    assert {p.dtype for p in rough.model.parameters()} == {torch.float32}
    assert rough.best["loss"] == pytest.approx(exact.best["loss"], abs=0.05)
    assert rough.best["loss"] != exact.best["loss"]


def test_env_1_checkpoint_names_no_device(finished):
    # Made on whatever device, it opens here: safetensors holds numbers and shapes, no place.
    head = (finished / "last" / "model.safetensors").read_bytes()[8:].partition(b"}}")[0]
    assert b"cuda" not in head
    assert b"cpu" not in head
    assert all(t.device.type == "cpu" for t in load_run(finished).model.state_dict().values())


def test_env_2_no_file_of_ours_hides_a_module():
    ours = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()} - {"minilm"}
    theirs = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    # Editable installs list our own folders as well.
    assert {name for name in ours & theirs if not name.startswith(".")} <= {"tests"}


def test_env_2_folders_with_names_of_ours_and_of_libraries_do_no_harm(run_cli, tmp_path, tiny_text):
    for name in ("datasets", "data", "configs", "torch", "minilm", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong module')\n", encoding="utf-8")
    done = run_cli("train.py", ROOT / "configs" / "tiny.toml", tiny_text, "--training.steps", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / tiny_text.stem / "last").is_dir()


def test_det_3_header_and_manifest_tell_seed_threads_and_version(on_text, tmp_path, capsys):
    assert start_run(on_text(training={"steps": 2, "seed": 4}), tmp_path / "run") == 0
    assert f"seed 4, cpu (1 threads), products in float32, torch {torch.__version__}" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))
    assert (manifest["seed"], manifest["threads"], manifest["torch"]) == (4, 1, str(torch.__version__))


def test_det_3_two_runs_are_the_same_bit_for_bit(on_text, train_in, tmp_path):
    for name in ("one", "other"):
        train_in(on_text(), tmp_path / name)
    for file in ("last/model.safetensors", "last/optimizer.safetensors", "best/model.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_det_3_threads_and_batch_size_change_the_last_digits_only(finished):
    model = load_run(finished).model
    tokens = torch.randint(29, (4, 16), generator=torch.Generator().manual_seed(0))
    whole = model(tokens)
    torch.testing.assert_close(torch.cat([model(row[None]) for row in tokens]), whole, rtol=0, atol=1e-4)
    try:
        torch.set_num_threads(2)
        torch.testing.assert_close(model(tokens), whole, rtol=0, atol=1e-4)
    finally:
        torch.set_num_threads(1)


def test_det_3_arms_differ_by_the_named_key_alone(tmp_path):
    settings = tmp_path / "arm.toml"
    settings.write_text(f"base = {json.dumps(str(ROOT / 'configs/base.toml'))}\n[model]\nscaled = false\n", "utf-8")
    base, arm = load_config(ROOT / "configs/base.toml").model_dump(), load_config(settings).model_dump()
    assert arm.pop("model") == {**base.pop("model"), "scaled": False}
    assert arm == base


def test_threads_are_a_setting(on_text, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)  # two threads on a busy machine take their time
    for threads in (3, 0):  # 0 leaves the choice to torch
        assert start_run(on_text(training={"threads": threads, "steps": 2}), tmp_path / str(threads)) == 0
    assert asked == [3]
