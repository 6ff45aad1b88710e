"""The probes, each asked of a model whose answer is known."""

import math

import pytest
import torch
from torch import nn

from minilm.evaluation import token_losses
from minilm.lab.depth import effective_rank, ranks
from minilm.lab.effect import Effect, choose_answers, effect
from minilm.lab.heads import heads
from minilm.lab.leak import future_leak, honest_losses
from minilm.lab.order import distances, order_sensitivity
from minilm.lab.trace import lookups, trace
from minilm.model import LanguageModel
from minilm.modes import evaluating


def model_of(**settings) -> LanguageModel:
    """12 characters, 16 wide, two heads, two layers, with a head that is loud enough to see a change."""
    made = {"width": 16, "context": 12, "n_layers": 2, "n_heads": 2, **settings}
    model = LanguageModel(12, **made)
    with torch.no_grad():
        model.head.weight.mul_(50)
        model.embedding.token_embedding.weight.mul_(50)
        model.embedding.position_embedding.mul_(50)
    return model


def windows(n: int = 6, length: int = 12) -> torch.Tensor:
    return torch.randint(12, (n, length), generator=torch.Generator().manual_seed(3))


# Watching a model


def test_what_is_seen_is_what_the_model_does():
    model, tokens = model_of(), windows()
    seen = trace(model, tokens)
    assert torch.equal(seen.logits, model(tokens))
    assert [stream.shape for stream in seen.streams] == [(6, 12, 16)] * 3
    assert torch.allclose(model.head(model.final_norm(seen.streams[-1])), seen.logits)
    for block, before, after, lookup in zip(
        model.blocks, seen.streams[:-1], seen.streams[1:], lookups(model, seen), strict=True
    ):
        assert torch.equal(block(before), after)
        output = block.attention.output(lookup.mixture.transpose(1, 2).flatten(-2))
        assert torch.allclose(output, block.attention(block.attention_norm(before)), atol=1e-6)


def test_a_model_in_training_is_seen_without_dropout_and_stays_in_training():
    """ATT-8: rows that sum to one, nothing above the diagonal, and every part in its mode afterwards."""
    model, tokens = model_of(dropout=0.5).train(), windows()
    model.blocks[0].eval()
    modes = [part.training for part in model.modules()]
    maps = torch.stack([lookup.weights for lookup in lookups(model, trace(model, tokens))])
    assert torch.allclose(maps.sum(-1), torch.ones(()), atol=1e-5)
    assert maps.min() >= 0
    assert torch.equal(maps.triu(1), torch.zeros_like(maps))
    assert heads(model, tokens) == heads(model, tokens)
    future_leak(model, tokens[0])
    honest_losses(model, tokens[:, :-1], tokens[:, 1:])
    order_sensitivity(model, tokens[:, :-1], tokens[:, 1:], 0)
    effect(model, tokens[0], 1)
    assert [part.training for part in model.modules()] == modes
    assert not model._forward_pre_hooks
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_the_mode_comes_back_after_an_error():
    model = model_of(dropout=0.5).train()

    def fail():
        with evaluating(model):
            assert not model.training
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert all(part.training for part in model.modules())


# Heads


def test_without_the_scale_scores_are_root_k_as_far_apart_and_rows_less_flat():
    scaled, raw = (heads(model_of(width=64, scaled=scaled, n_layers=1), windows()) for scaled in (True, False))
    for with_, without in zip(scaled.score_std[0], raw.score_std[0], strict=True):
        assert without == pytest.approx(math.sqrt(32) * with_, rel=1e-4)
    assert max(raw.flatness[0]) < min(scaled.flatness[0])
    assert max(scaled.largest_weight[0]) < min(raw.largest_weight[0])


# Depth


def test_effective_rank_counts_directions():
    directions = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(0))).Q
    for n in (1, 3, 4):
        rows = torch.cat([directions[:n], -directions[:n]])
        assert effective_rank(rows[None]).item() == pytest.approx(n, rel=1e-4)
        assert effective_rank(rows[None] + 5).item() == pytest.approx(n, rel=1e-4)  # the mean row is no direction


def test_a_stack_without_a_residual_stream_loses_rank():
    with_, without = (ranks(model_of(residual=residual, n_layers=6), windows())[1][-1] for residual in (True, False))
    assert without < 0.5 * with_
    assert len(ranks(model_of(n_layers=6), windows())[0]) == 7


# Effect


def test_hiding_changes_nothing_where_values_are_zero():
    model = model_of()
    for block in model.blocks:
        nn.init.zeros_(block.attention.value.weight)
    found = effect(model, windows()[0], 3)
    assert max(map(abs, found.changes)) < 1e-6
    assert sum(found.weights) < 1


def test_a_change_is_that_of_a_model_that_cannot_read_the_position():
    model, prefix = model_of(), windows()[0]
    found = effect(model, prefix, 3)
    assert len(found.weights) == len(found.changes) == 11
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[0, 4] = False
    with torch.no_grad():
        full, without = (model(prefix[None], padding=p)[0, -1].log_softmax(-1)[3] for p in (None, mask))
    assert found.changes[4] == pytest.approx((full - without).item(), abs=1e-5)
    maps = torch.stack([lookup.weights[0] for lookup in lookups(model, trace(model, prefix[None]))])
    assert found.weights[4] == pytest.approx(maps[:, :, -1, 4].mean().item(), abs=1e-6)


def test_rank_correlation_is_of_the_size_of_the_change():
    assert Effect([0.1, 0.2, 0.7], [0.0, 1.0, -5.0]).rank_correlation == pytest.approx(1)
    assert Effect([0.1, 0.2, 0.7], [3.0, 1.0, 0.0]).rank_correlation == pytest.approx(-1)
    assert Effect([0.1, 0.2, 0.7], [0.0, 1.0, -5.0]).agree
    assert not Effect([0.1, 0.2, 0.7], [3.0, 1.0, 0.0]).agree
    assert math.isnan(Effect([0.5, 0.5], [1.0, 2.0]).rank_correlation)


def test_answers_are_the_latest_asked_for_with_a_past():
    inputs, targets = windows(), windows() + 1
    asked = torch.zeros(6, 12, dtype=torch.bool)
    asked[1, [6, 9]] = True  # the later of two
    asked[2, 1] = True  # too early: hardly anything to choose from
    asked[4, 11] = True
    chosen = choose_answers(inputs, targets, asked, 16)
    assert [len(prefix) for prefix, _ in chosen] == [10, 12]
    assert [answer for _, answer in chosen] == [targets[1, 9], targets[4, 11]]
    assert len(choose_answers(inputs, targets, None, 4)) == 4


# Leak


@pytest.mark.parametrize("backend", ["explicit", "tiled", "fused"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_leak_is_found_where_there_is_no_mask(backend, causal):
    found = future_leak(model_of(causal=causal, backend=backend), windows()[0])
    assert found.leaks is not causal
    assert (found.largest < 1e-5) is causal


def test_the_smallest_leak_there_can_be_is_found():
    """Only the first position reads the second."""

    class Peek(nn.Module):
        head = nn.Linear(2, 12)

        def forward(self, tokens):
            logits = nn.functional.one_hot(tokens, 12).float()
            logits[:, 0] += 0.01 * logits[:, 1]
            return logits

    class Honest(Peek):
        def forward(self, tokens):
            return nn.functional.one_hot(tokens, 12).float()

    assert future_leak(Peek(), windows()[0]).leaks
    assert not future_leak(Honest(), windows()[0]).leaks


def test_honest_loss_is_the_loss_of_a_causal_model():
    model, tokens = model_of(), windows()
    places, losses = honest_losses(model, tokens[:, :-1], tokens[:, 1:])
    assert places.tolist() == list(range(11))
    assert torch.allclose(losses, token_losses(model, tokens[:, :-1], tokens[:, 1:]), atol=1e-5)


def test_honest_loss_is_another_where_the_future_is_read_and_does_not_depend_on_it():
    model, tokens = model_of(causal=False), windows()
    _, losses = honest_losses(model, tokens[:, :-1], tokens[:, 1:])
    assert (losses - token_losses(model, tokens[:, :-1], tokens[:, 1:])).abs().max() > 0.1
    other = tokens.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 12
    _, again = honest_losses(model, other[:, :-1], other[:, 1:])
    assert torch.allclose(losses[:, :5], again[:, :5], atol=1e-5)


def test_long_windows_are_scored_at_some_places_only():
    tokens = windows(2, 201)
    places, losses = honest_losses(model_of(context=200, width=8, n_layers=1), tokens[:, :-1], tokens[:, 1:])
    assert losses.shape == (2, 64)
    assert (places[0], places[-1]) == (0, 199)


# Order


def test_distances_leave_something_to_shuffle():
    assert distances(64) == [1, 2, 4, 8, 16, 32]
    assert distances(3) == [1]
    assert distances(2) == []


def test_one_layer_without_position_is_blind_to_order_and_no_other_is():
    tokens = windows(32)

    def lost(**settings):
        return order_sensitivity(model_of(**settings), tokens[:, :-1], tokens[:, 1:], 0)

    assert max(map(abs, lost(n_layers=1, position="none"))) < 1e-5
    assert abs(lost(n_layers=1)[0]) > 1e-3
    assert abs(lost(n_layers=2, position="none")[0]) > 1e-3  # the mask lets position in
    assert max(map(abs, lost(n_layers=2, position="none", causal=False))) < 1e-5
