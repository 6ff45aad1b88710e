"""What the bench times is the real loop, in turns, and what it counts is what torch counts."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from minilm.lab.effort import operations_per_token
from minilm.lab.spread import Spread, in_columns, spread, take_turns, told
from minilm.lab.timed import WARM_UP, Until, random_corpus, start, tokens_per_second, without_end
from minilm.model import loss
from minilm.runs import build_model
from minilm.training import train

# Turns and spread.


def test_every_second_round_goes_backwards():
    asked = []

    def work(name):
        return lambda: asked.append(name) or len(asked)

    figures = take_turns({name: work(name) for name in "abc"}, 3)
    assert "".join(asked) == "abccbaabc"
    assert figures == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


def test_a_spread_is_told_with_its_ends():
    assert spread([3.0, 1.0, 2.0, 10.0]) == Spread(2.5, 1.0, 10.0)
    assert told(Spread(2500.0, 1000.4, 10000.0), ",.0f") == "2,500 (1,000..10,000)"
    assert in_columns([("name", "n"), ("a", "100")]) == ["name    n", "a     100"]


# Operations.


@pytest.mark.parametrize("feed_forward", ["gelu", "none"])
def test_operations_are_those_that_torch_counts(tiny, feed_forward):
    config = tiny(model={"causal": False, "backend": "explicit", "feed_forward": feed_forward})
    model = build_model(config, 7)
    tokens = torch.randint(7, (3, 16), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        loss(model(tokens), tokens).backward()
    assert counter.get_total_flops() == tokens.numel() * operations_per_token(config.model, 7)


def test_hidden_pairs_are_not_counted(tiny):
    causal, full = (operations_per_token(tiny(model={"causal": c}).model, 7) for c in (True, False))
    # Scores and mixtures of 2 layers of width 32: of 16 keys, a position sees 8.5 in the mean.
    assert full - causal == 3 * 2 * 2 * 2 * 32 * (16 - 8.5)


# The real loop.


def test_the_steps_that_are_timed_are_those_of_training(tiny, tmp_path):
    """As many steps as counted, with the weights that training has after them, and nothing saved."""
    config = without_end(tiny())
    run = start(config, random_corpus(9, 16), tmp_path / "run")
    assert tokens_per_second(run, 1e-9) > 0
    assert run.step == WARM_UP + 1
    tokens_per_second(run, 0.05)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["metrics.jsonl"]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, run.step + 1))
    again = start(config, random_corpus(9, 16), tmp_path / "again")
    train(again, Until(lambda: again.step == run.step))  # in one go, it is the same training
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), again.model.parameters(), strict=True))


def test_a_loss_that_runs_away_has_no_speed(tiny, tmp_path, refusal):
    config = without_end(tiny(training={"learning_rate": 1e30, "muon_learning_rate": 1e30, "warmup": 0}))
    run = start(config, random_corpus(9, 16), tmp_path)
    assert "smaller learning rates" in refusal(tokens_per_second, run, 60)
