"""Does a run that was interrupted end where it would have ended?"""

import json

import pytest
import torch

from minilm.optim import optimizer_tensors
from minilm.runs import read_metrics
from minilm.session import prepare


def what_matters(folder) -> list[dict]:
    """All that was written down, but for speed."""
    lines = read_metrics(folder / "metrics.jsonl")
    return [{key: value for key, value in line.items() if key != "characters_per_second"} for line in lines]


def assert_same(one, other) -> None:
    """Weights and optimizer memory of two runs are equal bit for bit."""
    for part in (lambda run: run.model.state_dict(), lambda run: optimizer_tensors(run.model, run.optimizers)):
        expected, found = part(one), part(other)
        assert expected.keys() == found.keys()
        assert expected
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert (one.step, one.best) == (other.step, other.best)


@pytest.mark.parametrize("until", [20, 23])
@pytest.mark.parametrize(("optimizer", "precision"), [("muon", "float32"), ("adamw", "float32"), ("muon", "bfloat16")])
def test_res_1_resumed_run_is_the_uninterrupted_one_bit_for_bit(
    on_text, train_in, tmp_path, optimizer, precision, until
):
    settings = {"optimizer": optimizer, "precision": precision, "weight_decay": 0.1}
    config = on_text(
        model={"dropout": 0.1}, training={"steps": 40, "evaluate_every": 10, "sample_every": 7, **settings}
    )
    straight = train_in(config, tmp_path / "straight")
    interrupted = train_in(config, tmp_path / "parts", until=until)
    assert interrupted.step == until
    # Whatever else was drawn in between, or is drawn before going on, does not matter.
    torch.manual_seed(1234)
    torch.rand(5)
    resumed = train_in(config, tmp_path / "parts", resume=True)
    assert_same(straight, resumed)
    assert what_matters(tmp_path / "straight") == what_matters(tmp_path / "parts")
    steps = [line["step"] for line in what_matters(tmp_path / "parts") if "loss" in line]
    assert steps == list(range(1, 41))
    for name in ("last", "best"):
        states = [json.loads((tmp_path / f / name / "state.json").read_text("utf-8")) for f in ("straight", "parts")]
        for state in states:
            assert state["config"].pop("training") == config.model_dump()["training"]
        assert states[0] == states[1]  # the hashes of weights and optimizer memory among it


def test_res_1_resumed_twice_and_after_lost_steps(on_text, train_in, tmp_path):
    config = on_text(model={"dropout": 0.1}, training={"steps": 12})
    straight = train_in(config, tmp_path / "straight")
    train_in(config, tmp_path / "parts", until=3)
    # A killed process leaves metrics of steps that no checkpoint has, the last one perhaps cut off.
    with (tmp_path / "parts" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "loss": 9.9}\n{"step": 5, "lo')
    train_in(config, tmp_path / "parts", resume=True, until=6)
    assert_same(straight, train_in(config, tmp_path / "parts", resume=True))
    assert what_matters(tmp_path / "straight") == what_matters(tmp_path / "parts")


def test_res_1_best_is_carried_over(on_text, train_in, tmp_path):
    config = on_text(training={"steps": 12, "evaluate_every": 2})
    first = train_in(config, tmp_path / "run", until=6)
    resumed = prepare(config, tmp_path / "run", resume=True, overwrite=False)
    assert resumed.best == first.best
    assert resumed.best is not None
    resumed.best["loss"] = 0.0  # so good that nothing after it is
    resumed.keep(5.0)
    assert json.loads((tmp_path / "run" / "best" / "state.json").read_text("utf-8"))["step"] == first.best["step"]


def test_longer_run_goes_on_from_a_finished_one(on_text, train_in, tmp_path):
    train_in(on_text(training={"schedule": "constant"}), tmp_path / "run")
    config = on_text(training={"schedule": "constant", "steps": 12})
    assert_same(train_in(config, tmp_path / "once"), train_in(config, tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"model": {"width": 64}}, ["model.width was 32 and is now 64"]),
        ({"training": {"seed": 3, "optimizer": "adamw"}}, ["training.optimizer was 'muon'", "training.seed was 0"]),
        ({"training": {"batch_size": 8}}, ["training.batch_size was 4 and is now 8"]),
    ],
)
def test_other_settings_are_refused(on_text, train_in, tmp_path, refusal, tables, says):
    train_in(on_text(), tmp_path / "run", until=2)
    message = refusal(prepare, on_text(**tables), tmp_path / "run", resume=True, overwrite=False)
    lines = message.split("\n")
    assert len(lines) == len(says) + 1
    for line, part in zip(sorted(lines[:-1]), says, strict=True):
        assert line.startswith(f"{tmp_path / 'run'}: cannot go on: ")
        assert part in line
    assert "--overwrite" in lines[-1]


def test_other_text_is_refused(tiny, train_in, tmp_path, refusal):
    text = tmp_path / "my.txt"
    text.write_text("abc\n" * 100, encoding="utf-8")
    config = tiny(corpus={"source": "file", "path": (str(text),)})
    train_in(config, tmp_path / "run", until=2)
    text.write_text("abc\n" * 99 + "acb\n", encoding="utf-8")
    assert "the text is not the one that the run began with" in refusal(
        prepare, config, tmp_path / "run", resume=True, overwrite=False
    )


def test_nothing_to_resume_is_refused(on_text, tmp_path, refusal):
    for folder in (tmp_path / "none", tmp_path):
        message = refusal(prepare, on_text(), folder, resume=True, overwrite=False)
        assert message == f"{folder}: there is nothing to resume: it holds no run"
    assert not (tmp_path / "none").exists()


def test_a_run_killed_before_its_first_save_is_resumed_from_its_start(on_text, train_in, tmp_path):
    config = on_text(training={"steps": 6})
    straight = train_in(config, tmp_path / "straight")
    prepare(config, tmp_path / "killed", resume=False, overwrite=False)
    assert not (tmp_path / "killed" / "last").exists()
    assert_same(straight, train_in(config, tmp_path / "killed", resume=True))
