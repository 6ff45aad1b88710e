"""Does training follow its settings and nothing else, and does it stop when a number runs away?"""

import json
import math

import pytest
import torch

from minilm.corpus import batch
from minilm.model import LanguageModel
from minilm.runs import read_metrics
from minilm.session import closing, opening, prepare, start_run
from minilm.streams import generator
from minilm.training import Stop, backward, train


def losses(folder) -> list[float]:
    return [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]


def weights(run) -> list[torch.Tensor]:
    return [p.detach() for p in run.model.parameters()]


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def test_loss_falls_and_is_written_down(on_text, train_in, tmp_path):
    run = train_in(on_text(training={"steps": 40}), tmp_path / "run")
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 41))
    assert steps[0]["loss"] == pytest.approx(math.log(len(run.corpus.vocabulary)), rel=0.1)
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.5
    assert steps[0]["learning_rate"] == pytest.approx(run.config.training.learning_rate / 2)
    evaluations = [line for line in lines if "validation" in line]
    assert [line["step"] for line in evaluations] == list(range(4, 41, 4))
    assert run.best == min(
        ({"step": e["step"], "loss": e["validation"]["loss"]} for e in evaluations), key=lambda best: best["loss"]
    )


def test_evaluating_and_sampling_more_often_does_not_change_what_is_trained_on(on_text, train_in, tmp_path):
    model = {"dropout": 0.3}
    seldom = train_in(on_text(model=model, training={"evaluate_every": 100}), tmp_path / "seldom")
    often = train_in(
        on_text(model=model, training={"evaluate_every": 1, "sample_every": 1, "evaluation_characters": 50}),
        tmp_path / "often",
    )
    assert losses(tmp_path / "seldom") == losses(tmp_path / "often")
    assert same(seldom, often)
    assert (tmp_path / "often" / "samples.txt").read_text(encoding="utf-8").count("--- step") == 7


def test_seed_decides_all(on_text, train_in, tmp_path):
    model = {"dropout": 0.3}
    one = train_in(on_text(model=model), tmp_path / "one")
    torch.manual_seed(99)
    assert same(one, train_in(on_text(model=model), tmp_path / "again"))
    assert losses(tmp_path / "one") == losses(tmp_path / "again")
    assert not same(one, train_in(on_text(model=model, training={"seed": 1}), tmp_path / "other"))


def test_each_step_has_windows_and_a_dropout_of_its_own(on_text, monkeypatch, train_in, tmp_path):
    forward, windows, drops = LanguageModel.forward, set(), set()

    def watched(model, tokens, **settings):
        if model.training:
            windows.add(str(tokens.tolist()))
            drops.add(torch.rand(()).item())  # from the generator that dropout draws from
        return forward(model, tokens, **settings)

    monkeypatch.setattr(LanguageModel, "forward", watched)
    train_in(on_text(), tmp_path / "run")
    assert (len(windows), len(drops)) == (8, 8)


def test_arms_see_the_same_batches(on_text, monkeypatch, train_in, tmp_path):
    seen: dict[str, list] = {}
    for arm in ({}, {"feed_forward": "none"}, {"causal": False}, {"n_layers": 1, "dropout": 0.5}):
        name = str(arm)
        forward = LanguageModel.forward

        def watch(model, tokens, _name=name, _forward=forward, **settings):
            if model.training:
                seen.setdefault(_name, []).append(tokens.clone())
            return _forward(model, tokens, **settings)

        with monkeypatch.context() as patch:
            patch.setattr(LanguageModel, "forward", watch)
            train_in(on_text(model=arm), tmp_path / name)
    first, *others = seen.values()
    assert len(first) == 8
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_four_times_four_is_sixteen(on_text, tmp_path):
    whole = prepare(on_text(training={"batch_size": 16}), tmp_path / "whole", resume=False, overwrite=False)
    parts = prepare(
        on_text(training={"batch_size": 4, "accumulation": 4}), tmp_path / "parts", resume=False, overwrite=False
    )
    assert backward(whole) == pytest.approx(backward(parts), abs=1e-6)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-6)


def test_four_times_four_trains_as_sixteen(on_text, train_in, tmp_path):
    once = {"steps": 1, "warmup": 0, "optimizer": "adamw", "learning_rate": 1e-3}
    whole = train_in(on_text(training={**once, "batch_size": 16}), tmp_path / "whole")
    parts = train_in(on_text(training={**once, "batch_size": 4, "accumulation": 4}), tmp_path / "parts")
    assert losses(tmp_path / "whole") == pytest.approx(losses(tmp_path / "parts"), abs=1e-6)
    for one, other in zip(weights(whole), weights(parts), strict=True):
        # AdamW's first step divides a gradient by its own size, so a tiny one may turn round.
        assert ((one - other).abs() < 1e-6).float().mean() > 0.99


def test_step_loss_is_the_mean_over_the_windows_of_the_step(on_text, tmp_path):
    run = prepare(on_text(training={"accumulation": 2}), tmp_path / "run", resume=False, overwrite=False)
    draw = generator(run.config.training.seed, "batches", 0)
    x, y = batch(run.corpus.train, context=16, batch_size=8, generator=draw)
    expected = torch.nn.functional.cross_entropy(run.model(x).flatten(0, 1), y.flatten())
    assert backward(run) == pytest.approx(expected.item(), rel=1e-6)


def test_gradient_is_clipped_to_the_norm(on_text, train_in, tmp_path):
    settings = {"optimizer": "adamw", "steps": 1, "warmup": 0}
    run = train_in(on_text(training={**settings, "clip": 1e-3}), tmp_path / "run")
    memory = [state["exp_avg"] for state in run.optimizers[0].state.values()]
    # AdamW keeps a tenth of the first gradient.
    assert 10 * torch.cat([m.flatten() for m in memory]).norm().item() == pytest.approx(1e-3, rel=1e-3)
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert metrics[0]["norm"] > 0.01  # as it was before


@pytest.mark.parametrize(
    ("settings", "bad_step", "what"),
    [
        # The loss of the next step is no number: nothing was evaluated in between.
        (
            {"evaluate_every": 100, "sample_every": 100},
            2,
            "the loss is nan and the gradient's norm is nan, at learning",
        ),
        # The evaluation, or the sample, meets it first.
        ({"evaluate_every": 1, "sample_every": 100}, 1, "the validation loss is nan, at learning rate 1e+38"),
        ({"evaluate_every": 100, "sample_every": 1}, 1, "some of the model's scores are infinite or no numbers"),
    ],
)
def test_exploded_weights_stop_the_run(on_text, tmp_path, capsys, settings, bad_step, what):
    explosive = {"learning_rate": 1e38, "muon_learning_rate": 1e38, "warmup": 0, "clip": 1e30, "schedule": "constant"}
    assert start_run(on_text(training={**explosive, **settings}), tmp_path / "run") == 1
    out, err = capsys.readouterr()
    message = err.splitlines()[-2:]
    assert message[0].startswith(f"stopped at step {bad_step}: {what}")
    assert message[1].startswith("No checkpoint had been saved yet. Try smaller learning rates")
    assert not (tmp_path / "run" / "last").exists()
    assert not (tmp_path / "run" / "best").exists()
    assert "write more" not in out


def test_stop_names_the_last_good_checkpoint_and_leaves_it_good(on_text, tmp_path, capsys, monkeypatch):
    forward = LanguageModel.forward

    def poisoned(model, tokens, **settings):
        logits = forward(model, tokens, **settings)
        return logits * math.nan if model.training and not torch.is_inference_mode_enabled() and count() > 6 else logits

    calls = iter(range(1, 1000))

    def count() -> int:
        return next(calls)

    monkeypatch.setattr(LanguageModel, "forward", poisoned)
    folder = tmp_path / "run"
    assert start_run(on_text(), folder) == 1
    message = capsys.readouterr().err.splitlines()[-2:]
    assert message[0].startswith("stopped at step 7: the loss is nan and the gradient's norm is nan, at learning rate ")
    assert message[1].startswith(f"The last good checkpoint is {folder / 'last'}.")
    state = json.loads((folder / "last" / "state.json").read_text(encoding="utf-8"))
    assert (state["step"], math.isfinite(state["loss"])) == (4, True)
    monkeypatch.undo()
    assert start_run(on_text(), folder, resume=True) == 0
    assert len(losses(folder)) == 8


def test_signal_during_a_step_lets_it_finish_and_saves_it(on_text, train_in, tmp_path):
    run = train_in(on_text(), tmp_path / "run", until=3)
    state = json.loads((tmp_path / "run" / "last" / "state.json").read_text(encoding="utf-8"))
    assert run.step == state["step"] == len(losses(tmp_path / "run")) == 3
    assert not (tmp_path / "run" / "best").exists()


def test_signal_right_after_a_save_leaves_it_with_its_loss(on_text, train_in, tmp_path):
    train_in(on_text(), tmp_path / "run", until=4)
    file = tmp_path / "run" / "last" / "state.json"
    before = file.read_bytes()
    assert "loss" in json.loads(before)
    train_in(on_text(), tmp_path / "run", resume=True, until=4)
    assert file.read_bytes() == before


def test_handlers_are_put_back():
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGTERM  # the first one counts
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_opening_tells_what_is_about_to_happen(on_text, tmp_path):
    run = prepare(on_text(training={"seed": 5}), tmp_path / "run", resume=False, overwrite=False)
    text = opening(run)
    n = sum(p.numel() for p in run.model.parameters())
    assert f"{n:,} parameters" in text
    assert f"seed 5, cpu ({torch.get_num_threads()} threads), products in float32, torch {torch.__version__}" in text
    assert f"uniform {math.log(len(run.corpus.vocabulary)):.3f}" in text
    for name in ("unigram", "bigram", "1,800 characters"):
        assert name in text
    assert "floor" not in text


def test_riverbank_run_shows_the_floor_and_what_it_writes(tiny, tmp_path, capsys):
    config = tiny(corpus={"characters": 5000}, training={"steps": 2, "sample_length": 5})
    assert start_run(config, tmp_path / "run") == 0
    out = capsys.readouterr().out
    assert "; floor 0." in out
    assert "of the sentences that the model writes are in the language" in out
    assert "best validation loss " in out
    assert "excess" in out


def test_sample_of_a_run_is_kept_as_it_is_shown(on_text, train_in, tmp_path):
    run = train_in(on_text(training={"sample_every": 3}), tmp_path / "run")
    shown = closing(run)
    kept = (tmp_path / "run" / "samples.txt").read_text(encoding="utf-8")
    assert kept.count("--- step") == 3  # after steps 3 and 6, and at the end
    assert all(f"    | {line}" in shown for line in kept.rpartition("--- step 8\n")[2].removesuffix("\n").split("\n"))


def test_training_that_is_finished_has_nothing_to_do(on_text, train_in, tmp_path):
    train_in(on_text(), tmp_path / "run")
    run = prepare(on_text(), tmp_path / "run", resume=True, overwrite=False)
    before = [w.clone() for w in weights(run)]
    train(run, Stop())
    assert all(torch.equal(a, b) for a, b in zip(before, weights(run), strict=True))
    assert len(losses(tmp_path / "run")) == 8
