"""The commands tell all that they measure, with its spread and its machine. No test asks how fast it was."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from minilm.errors import UserError
from minilm.lab import bench_attention, bench_startup, bench_throughput
from minilm.lab.bench import main
from minilm.lab.kernels import Measurement

TINY = Path(__file__).resolve().parents[1] / "configs" / "tiny.toml"
LIGHT = ("throughput", "time-to-loss", "generate", "attention", "startup")


@pytest.fixture
def bench(capsys):
    """bench(WORDS) gives what the command prints, read as JSON where that was asked for."""

    def call(*words):
        capsys.readouterr()
        assert main(list(map(str, words))) == 0
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    return call


def assert_spread(figure):
    assert 0 < figure["low"] <= figure["median"] <= figure["high"] < math.inf


def assert_names_the_machine(here):
    assert here["torch"] == torch.__version__
    assert here["threads"] == torch.get_num_threads()
    assert here["processor"]
    assert here["cores"] >= 1


# The commands.

SHORT = (TINY, "--repeats", 2, "--seconds", 1e-3)


def test_throughput(bench):
    ways = ("--backends", "explicit", "fused", "--precisions", "float32", "--batch-sizes", 2, 3)
    sizes = ("--sweep", "--widths", 16, 32, "--contexts", 8, 16)
    data = bench("throughput", *SHORT, *ways, *sizes, "--json")
    assert_names_the_machine(data["machine"])
    assert len(data["variants"]) == 2 * 2 * 2
    assert {v["batch_size"] for v in data["variants"]} == {2, 3}
    for variant in data["variants"]:
        assert_spread(variant["tokens_per_second"])
        assert_spread(variant["share_of_peak"])
    assert list(data["peak_operations_per_second"]) == ["float32"]
    assert [(s["axis"], s["size"]) for s in data["sweep"]["steps"]] == [
        *(("width", width) for width in (16, 32)),
        *(("context", context) for context in (8, 16)),
    ]
    for step in data["sweep"]["steps"]:
        assert_spread(step["seconds"])
    # The first step of the sweep: 4 windows of 16.
    first = data["sweep"]["steps"][1]["operations"]
    assert first == 4 * 16 * data["operations_per_token"]
    powers = data["sweep"]["powers"]
    assert 1 < powers["width"]["operations, all"] < 2
    assert 1 < powers["context"]["operations, all"] < 2
    assert powers["width"]["operations, two largest"] == powers["width"]["operations, all"]  # there are but two


def test_throughput_for_people(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench_throughput, "operations_per_second", lambda *_: 1e10)
    ways = ("--backends", "fused", "--optimizers", "adamw", "--precisions", "float32", "--sweep")
    sizes = ("--widths", 16, 32, "--contexts", 8, 16)
    text = bench("throughput", *SHORT, *ways, *sizes, "--plot", tmp_path / "speed.svg")
    for words in ("machine", torch.__version__, "share of peak", "operations as D^", "operations as T^", "adamw"):
        assert words in text
    assert "Peak in float32: 10 (10..10) GFLOP/s" in text
    assert "<svg" in (tmp_path / "speed.svg").read_text(encoding="utf-8")


FEW = ("--training.steps", 6, "--training.evaluate-every", 100, "--every", 2, "--repeats", 2)


def test_time_to_a_loss_is_that_of_the_first_evaluation_there(bench, tiny_text, monkeypatch, tmp_path):
    """On the whole validation part, with a clock that stands still meanwhile."""
    from minilm import training

    scored = []

    def slow(model, windows, *_):
        scored.append(windows.targets.numel())
        time.sleep(0.2)
        return {"loss": 5.0 - len(scored), "bits_per_byte": 1.0}

    monkeypatch.setattr(training, "evaluate", slow)
    words = (3.0, TINY, tiny_text, *FEW, "--plot", tmp_path / "loss.svg", "--json")
    data = bench("time-to-loss", *words)
    assert_names_the_machine(data["machine"])
    first, second = data["runs"]
    assert [point["loss"] for point in first["curve"]] == [4.0, 3.0]
    assert (first["reached"]["step"], first["reached"]["tokens"]) == (4, 4 * 4 * 16)
    assert (second["seed"], second["reached"]["step"]) == (1, 2)
    assert data["tokens"] == {"median": 3 * 4 * 16, "low": 2 * 4 * 16, "high": 4 * 4 * 16}
    assert_spread(data["seconds"])
    assert first["seconds_with_evaluations"] >= first["reached"]["seconds"] + 2 * 0.2
    assert set(scored) == {(data["validation_characters"] - 1) // 16 * 16}
    assert "<svg" in (tmp_path / "loss.svg").read_text(encoding="utf-8")


def test_a_loss_that_is_not_reached_is_told(bench, tiny_text):
    text = bench("time-to-loss", 0.001, TINY, tiny_text, *FEW)
    assert text.count("not reached") == 2
    assert "2 of 2 runs did not reach it" in text
    assert "median:" not in text
    data = bench("time-to-loss", 0.001, TINY, tiny_text, *FEW, "--json")
    assert data["seconds"] == {"median": None, "low": None, "high": None}
    assert [run["curve"][-1]["step"] for run in data["runs"]] == [6, 6]


def test_a_run_without_a_loss_is_told(bench, tiny_text):
    rates = ("--training.learning-rate", 1e30, "--training.muon-learning-rate", 1e30)
    text = bench("time-to-loss", 0.001, TINY, tiny_text, *FEW, *rates)
    assert "seed 0: stopped at step" in text


def test_generate(bench, tmp_path):
    words = ("generate", TINY, "--contexts", 8, 16, "--length", 20, "--repeats", 2)
    data = bench(*words, "--json")
    assert_names_the_machine(data["machine"])
    assert [row["context"] for row in data["contexts"]] == [8, 16]
    for row in data["contexts"]:
        for name in ("cached_characters_per_second", "uncached_characters_per_second", "times_faster"):
            assert_spread(row[name])
    text = bench(*words, "--batch", 2, "--plot", tmp_path / "speed.svg")
    assert "2 x 20 characters" in text
    assert "<svg" in (tmp_path / "speed.svg").read_text(encoding="utf-8")


def test_attention_is_what_kernels_measures_several_times(bench, monkeypatch, tmp_path):
    asked = []

    def measured(backend, length, width, tile, threads):
        asked.append((length, backend))
        return Measurement(backend, length, asked.count((length, backend)) * length**2, 64 * length, 32 * length)

    monkeypatch.setattr(bench_attention, "measure_apart", measured)
    words = ("attention", "--lengths", 32, 64, "--repeats", 3)
    data = bench(*words, "--json")
    assert len(data["repeats"]) == 2 * 3 * 3
    assert {m["seconds"] / m["length"] ** 2 for m in data["measurements"]} == {2}  # the median of 1, 2 and 3
    assert data["exponents"]["seconds"]["tiled"] == pytest.approx(2)
    text = bench(*words, "--plot", tmp_path / "attention.svg")
    assert "machine" in text
    assert "1024000.0..3072000.0" not in text  # asked 3 times before: counts go on from 4
    assert "5120000.0 (4096000.0..6144000.0)" in text
    assert "<svg" in (tmp_path / "attention.svg").read_text(encoding="utf-8")


WRITER = """import sys, time
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--out") + 1])
folder.mkdir()
file = (folder / "metrics.jsonl").open("w", encoding="utf-8")
time.sleep(0.1)
print("{}", file=file, flush=True)
time.sleep(60)
"""


def test_the_first_step_is_there_when_its_line_is(tmp_path):
    script = tmp_path / "writer.py"
    script.write_text(WRITER, encoding="utf-8")
    assert 0.1 < bench_startup.seconds_to_first_step([sys.executable, str(script)]) < 60


def test_a_process_that_fails_is_told(refusal):
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    assert "no such luck" in refusal(bench_startup.seconds_of, command)
    assert "no such luck" in refusal(bench_startup.seconds_to_first_step, command)


def test_startup(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench_startup, "seconds_of", lambda command: 0.5)
    monkeypatch.setattr(bench_startup, "seconds_to_first_step", lambda command: 2.5)
    data = bench("startup", TINY, "--repeats", 2, "--json")
    assert_names_the_machine(data["machine"])
    assert data["seconds"]["train.py --help"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    text = bench("startup", "--plot", tmp_path / "startup.svg")
    assert "first step 2.50 (2.50..2.50) 2.00" in " ".join(text.split())
    assert "<svg" in (tmp_path / "startup.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_startup_of_real_processes(bench):
    data = bench("startup", TINY, "--repeats", 1, "--json")
    assert data["seconds"]["bare python"]["median"] < data["seconds"]["first step"]["median"]


# Bad input.


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (("throughput", "--repeats", 0, "--seconds", 0, "a.txt"), ("--repeats 0", "--seconds 0", "a.txt")),
        (("throughput", TINY, "--batch-sizes", 0), ("--batch-sizes 0",)),
        (("throughput", TINY, "--sweep", "--widths", 16), ("two different sizes",)),
        (("throughput", TINY, "--sweep", "--widths", 16, 17), ("--widths 17", "cannot be split")),
        (("throughput", "--plot", "speed.txt"), (".svg",)),
        (("time-to-loss", "--every", 0), ("--every 0", "give the loss to reach")),
        (("time-to-loss", "-1"), ("give the loss to reach",)),
        (("generate", TINY, "--length", 0, "--batch", 0), ("--length 0", "--batch 0")),
        (("generate", TINY, "--contexts", 0), ("--contexts 0",)),
        (("attention", "--repeats", 0), ("--repeats 0",)),
        (("attention", "--lengths", 8), ("two different lengths",)),
        (("startup", "--repeats", 0), ("--repeats 0",)),
        (("startup", "missing.toml"), ("missing.toml",)),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(words, problems, tiny_text):
    with pytest.raises(UserError) as caught:
        main(list(map(str, words)))
    assert all(problem in str(caught.value) for problem in problems)


def test_help_loads_no_torch():
    program = f"""import sys
from minilm.errors import UserError
from minilm.lab.bench import main
for words in ([], ["--help"], *([what, "--help"] for what in {LIGHT}), ["speed"]):
    try:
        main(words)
    except SystemExit:
        pass
    except UserError as error:
        print(words, error, file=sys.stderr)
assert not {{"torch", "matplotlib", "scipy"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    assert all(f"usage: python -m minilm bench {what} " in done.stdout for what in LIGHT)
    assert "['speed'] invalid choice 'speed'" in done.stderr
