"""Does every parameter belong to one optimizer, and does a step go where and as far as it should?"""

import math

import pytest
import torch

from minilm.config import TrainingConfig
from minilm.model import LanguageModel, loss
from minilm.optim import (
    learning_rate_factor,
    make_optimizers,
    optimizer_tensors,
    restore_optimizers,
    set_learning_rate,
)


def small(seed: int = 0) -> LanguageModel:
    return LanguageModel(7, width=16, context=8, n_layers=2, n_heads=2, seed=seed)


def training(**chosen) -> TrainingConfig:
    return TrainingConfig(**{"steps": 100, "warmup": 10, **chosen})


def step(model, optimizers, seed: int = 0) -> None:
    tokens = torch.randint(7, (2, 9), generator=torch.Generator().manual_seed(seed))
    loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def test_learning_rate_rises_in_a_line_then_falls_to_its_end():
    settings = training(schedule="linear", final_fraction=0.1)
    factors = [learning_rate_factor(step, settings) for step in range(101)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1
    assert factors[55] == pytest.approx(0.55)
    assert factors[100] == pytest.approx(0.1)


def test_learning_rate_along_a_cosine():
    settings = training(schedule="cosine", final_fraction=0.0)
    for step_number in (10, 40, 55, 99):
        expected = (1 + math.cos(math.pi * (step_number - 10) / 90)) / 2
        assert learning_rate_factor(step_number, settings) == pytest.approx(expected)


def test_constant_learning_rate_stays():
    assert {learning_rate_factor(step, training(schedule="constant")) for step in range(10, 300)} == {1.0}


def test_learning_rate_beyond_a_run_shorter_than_its_warmup_is_the_final_one():
    short = TrainingConfig.model_construct(**{**dict(training()), "steps": 10, "warmup": 20, "final_fraction": 0.1})
    assert [learning_rate_factor(step, short) for step in (9, 20, 25, 99)] == pytest.approx([0.5, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_every_parameter_is_owned_once(optimizer):
    model = small()
    optimizers = make_optimizers(model, training(optimizer=optimizer))
    owned = [id(p) for o in optimizers for group in o.param_groups for p in group["params"]]
    assert sorted(owned) == sorted(map(id, model.parameters()))


def test_muon_has_the_matrices_of_the_blocks():
    model = small()
    muon, adamw = make_optimizers(model, training(learning_rate=0.1, muon_learning_rate=0.2))
    names = {id(p): name for name, p in model.named_parameters()}
    found = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    expected = {name for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2}
    assert found == expected
    assert len(found) == 2 * 6
    set_learning_rate([muon, adamw], 0.5)
    assert {group["lr"] for group in muon.param_groups} == {0.1}
    assert {group["lr"] for group in adamw.param_groups} == {0.05}


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_only_matrices_decay(optimizer):
    model = small()
    for o in make_optimizers(model, training(optimizer=optimizer, weight_decay=0.3)):
        for group in o.param_groups:
            assert {p.ndim for p in group["params"]} == ({2} if group["weight_decay"] else {1})


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_decay_pulls_towards_zero_by_its_share(optimizer):
    model = small()
    settings = training(
        optimizer=optimizer, weight_decay=0.5, learning_rate=0.1, muon_learning_rate=0.1, schedule="constant"
    )
    optimizers = make_optimizers(model, settings)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for o in optimizers:
        o.step()
    for name, parameter in model.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5 if parameter.ndim == 2 else 1)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


def test_muon_step_is_equally_long_in_every_direction():
    model = small()
    optimizers = make_optimizers(model, training(muon_learning_rate=1.0))
    before = model.blocks[0].attention.query.weight.detach().clone()
    step(model, optimizers)
    change = model.blocks[0].attention.query.weight.detach() - before
    lengths = torch.linalg.svdvals(change)
    # Five Newton-Schulz rounds in bfloat16 bring singular values near one, not on it.
    assert lengths.max() < 1.4
    assert lengths.median() > 0.6


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_what_optimizers_remember_can_be_given_to_others(optimizer):
    settings = training(optimizer=optimizer)
    one = small()
    optimizers = make_optimizers(one, settings)
    for number in range(3):
        step(one, optimizers, number)
    other = small()
    other.load_state_dict(one.state_dict())
    restored = make_optimizers(other, settings)
    memory = {name: tensor.clone() for name, tensor in optimizer_tensors(one, optimizers).items()}
    restore_optimizers(other, restored, memory)
    for number in range(3, 6):
        step(one, optimizers, number)
        step(other, restored, number)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    kept, found = (optimizer_tensors(*pair) for pair in ((one, optimizers), (other, restored)))
    assert kept.keys() == found.keys()
    assert all(torch.equal(kept[name], found[name]) for name in kept)


def test_the_learning_rate_can_stay_at_its_peak_before_it_falls():
    settings = training(decay=0.5, final_fraction=0.0)
    factors = [learning_rate_factor(step_number, settings) for step_number in (10, 49, 50, 75, 99, 100)]
    assert factors == pytest.approx([1, 1, 1, 0.5, 0.02, 0])
    assert learning_rate_factor(99, training(decay=0.0)) == 1
