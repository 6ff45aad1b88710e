"""Does TensorBoard's own reader find what was written for it?"""

from __future__ import annotations

import sys

import pytest

from minilm.runs import read_metrics

reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
WORDS = [
    *("--model.n-layers=1", "--model.n-heads=2", "--model.width=16", "--model.context=12", "--training.batch-size=4"),
    *("--training.steps=4", "--training.evaluate-every=2", "--training.evaluation-characters=60"),
    *("--training.sample-every=2", "--training.sample-length=8", "--training.device=cpu"),
]


def test_figures_samples_and_maps_are_there(train_py, tiny_text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train_py(tiny_text, "--out=run", "--log=tensorboard", *WORDS) == 0
    events = reader.EventAccumulator(str(tmp_path / "run" / "events"))
    events.Reload()
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert {event.step: event.value for event in events.Scalars("loss")} == pytest.approx(losses)
    validation = {line["step"]: line["validation"]["loss"] for line in lines if "validation" in line}
    assert {event.step: event.value for event in events.Scalars("validation/loss")} == pytest.approx(validation)
    assert set(events.Tags()["images"]) == {"attention/layer-1-head-1", "attention/layer-1-head-2"}
    image = events.Images("attention/layer-1-head-1")[-1]
    assert (image.step, image.width, image.height) == (4, 48, 48)
    (sample,) = events.Tensors("sample/text_summary")
    text = sample.tensor_proto.string_val[0].decode()
    assert text.replace("    | ", "") in (tmp_path / "run" / "samples.txt").read_text(encoding="utf-8")


def test_watching_changes_nothing(train_py, tiny_text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, more in (("plain", []), ("watched", ["--log=tensorboard"])):
        assert train_py(tiny_text, f"--out={name}", "--model.dropout=0.1", *more, *WORDS) == 0
    weights = [(tmp_path / name / "last" / "model.safetensors").read_bytes() for name in ("plain", "watched")]
    assert weights[0] == weights[1]


def test_a_missing_library_is_told_before_the_run_there_is_touched(train_py, tiny_text, tmp_path, monkeypatch, refusal):
    out = tmp_path / "run"
    train_py(tiny_text, *WORDS, "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    message = refusal(train_py, tiny_text, *WORDS, "--out", out, "--overwrite", "--log", "tensorboard")
    assert "pip install tensorboard" in message
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
