"""Do the failures that others met with their checkpoints happen here?

Each name starts with the case it retells.
"""

import json
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch
from test_checkpoint import bless

from minilm.checkpoint import MODEL, OPTIMIZER, read_checkpoint, write_checkpoint
from minilm.model import LanguageModel
from minilm.runs import load_run, load_weights
from minilm.sample import main
from minilm.session import prepare, start_run

WRAPPED = ("plain", "compiled", "parallel", "parallel and compiled")


def small(seed: int = 0) -> LanguageModel:
    return LanguageModel(7, width=16, context=8, n_layers=2, n_heads=2, seed=seed)


@pytest.fixture(scope="module")
def process_group(tmp_path_factory):
    """A group of one process, as a run on one machine has."""
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def wrapped(model: torch.nn.Module, how: str) -> torch.nn.Module:
    if "parallel" in how:
        model = torch.nn.parallel.DistributedDataParallel(model)
    # The back end that compiles nothing: only the wrapper's names are of interest.
    return torch.compile(model, backend="eager") if "compiled" in how else model


@pytest.mark.parametrize("how", WRAPPED)
def test_ckpt_2_names_of_wrappers_do_not_matter(process_group, tmp_path, how):
    model = small(seed=3)
    state = {"step": 1, "config": {}, "vocabulary": "abcdefg"}
    write_checkpoint(tmp_path / "last", wrapped(model, how).state_dict(), {}, state)
    found = read_checkpoint(tmp_path / "last").weights
    assert found.keys() == model.state_dict().keys()
    for other in WRAPPED:
        into = small()
        wrapped(into, other)
        load_weights(into, found, "here")
        assert all(torch.equal(t, model.state_dict()[name]) for name, t in into.state_dict().items())


def test_ckpt_2_prefixes_are_taken_off_however_many(tmp_path):
    weights = {f"module._orig_mod.{name}": t for name, t in small().state_dict().items()}
    write_checkpoint(tmp_path / "last", weights, {}, {"step": 1, "config": {}, "vocabulary": "abcdefg"})
    assert read_checkpoint(tmp_path / "last").weights.keys() == small().state_dict().keys()


def test_ckpt_2_missing_extra_and_misshapen_weights_are_named_and_nothing_is_loaded(refusal):
    model = small()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    weights = small(seed=3).state_dict()
    weights["stranger"] = weights.pop("blocks.1.feed_forward.up.bias")
    weights["head.weight"] = torch.zeros(8, 16)
    assert refusal(load_weights, model, weights, "here").split("\n") == [
        "here: has head.weight of shape (8, 16), wanted (7, 16)",
        "here: has stranger, which the model lacks",
        "here: lacks blocks.1.feed_forward.up.bias",
    ]
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_ckpt_3_best_keeps_the_lowest_and_last_the_latest(tiny, train_in, tmp_path):
    # A text of two parts that have little to do with each other: what is learned by heart hurts.
    text = tmp_path / "text.txt"
    text.write_text("abcdefgh\n" * 100 + "hgfedcba\n" * 12, encoding="utf-8")
    config = tiny(
        corpus={"source": "file", "path": (str(text),)},
        training={"steps": 30, "evaluate_every": 3, "schedule": "constant"},
    )
    run = train_in(config, tmp_path / "run")
    states = {
        name: json.loads((tmp_path / "run" / name / "state.json").read_text("utf-8")) for name in ("best", "last")
    }
    assert states["last"]["step"] == 30
    assert states["best"]["step"] < 30
    assert states["best"]["loss"] < states["last"]["loss"]
    assert states["last"]["best"] == {key: states["best"][key] for key in ("step", "loss")} == run.best
    assert load_run(tmp_path / "run").step == states["best"]["step"]
    resumed = prepare(config, tmp_path / "run", resume=True, overwrite=False)
    assert resumed.best == run.best


def test_ckpt_3_run_shorter_than_its_interval_is_saved(on_text, tmp_path, capsys):
    assert start_run(on_text(training={"steps": 7, "evaluate_every": 100}), tmp_path / "run") == 0
    for name in ("last", "best"):
        assert json.loads((tmp_path / "run" / name / "state.json").read_text("utf-8"))["step"] == 7
    capsys.readouterr()
    assert main([str(tmp_path / "run"), "--length", "5"]) == 0
    assert len(capsys.readouterr().out) == 6


class Hostile:
    """What unpickles to a call."""

    def __init__(self, file) -> None:
        self.file = file

    def __reduce__(self):
        return (open, (str(self.file), "w"))


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER])
@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_ckpt_4_pickle_under_our_name_is_refused(copied, on_text, refusal, tmp_path, name, form):
    trap = tmp_path / "sprung"
    file = copied / "last" / name
    if form == "pickle":
        file.write_bytes(pickle.dumps(Hostile(trap)))
    else:
        torch.save({"a": Hostile(trap)}, file)
        assert zipfile.is_zipfile(file)
    bless(copied / "last")
    message = refusal(prepare, on_text(), copied, resume=True, overwrite=False)
    assert message.startswith(f"{file}: is not a safetensors file: ")
    assert "\n" not in message
    assert not trap.exists()


def test_ckpt_4_checkpoint_is_read_without_our_package(finished, tmp_path):
    script = tmp_path / "read.py"
    script.write_text(
        "import json, sys, pathlib\n"
        "from safetensors.numpy import load_file\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "state = json.loads((folder / 'state.json').read_text('utf-8'))\n"
        "print(len(load_file(folder / 'model.safetensors')), state['step'], 'minilm' in sys.modules)\n",
        encoding="utf-8",
    )
    words = [sys.executable, str(script), str(finished / "last")]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False, cwd=tmp_path)
    assert done.stdout.split() == [str(len(load_run(finished).model.state_dict())), "8", "False"], done.stderr
