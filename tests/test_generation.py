"""Are characters drawn from the distribution that was asked for, and does the cache change none?"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minilm.generation import KeyValueCache, check_sampling, choose, filtered, generate, window_start
from minilm.model import LanguageModel
from minilm.streams import generator
from minilm.vocabulary import Vocabulary

LOGITS = torch.tensor([[0.5, 2.0, -1.0, 2.0, 0.0]])
ALL = {"temperature": 1.0, "top_k": None, "top_p": None}


def small(context: int = 8, vocabulary: int = 11, **chosen) -> LanguageModel:
    shape = {"width": 16, "n_layers": 2, "n_heads": 2}
    model = LanguageModel(vocabulary, context=context, **{**shape, **chosen})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large weights, so that the likeliest character depends on all that is seen.
            parameter.normal_(std=0.5, generator=generator(0, name))
    return model.eval()


def prompt_of(length: int, rows: int = 1, vocabulary: int = 11) -> torch.Tensor:
    return torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(length))


def written(model, prompt, length: int, seed: int = 0, **chosen) -> torch.Tensor:
    return torch.stack(list(generate(model, prompt, length, generator=generator(seed, "sampling"), **chosen)), dim=1)


def windows(monkeypatch, model, prompt, length: int, **chosen) -> list[tuple[int, int]]:
    """(start, columns) of every call of the model while it writes."""
    calls = []
    forward = LanguageModel.forward

    def watch(self, tokens, *, start=0, **more):
        calls.append((start, tokens.shape[1]))
        return forward(self, tokens, start=start, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "forward", watch)
        written(model, prompt, length, **chosen)
    return calls


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("context", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("length", [1, 5, 8, 9, 40])
def test_cached_is_uncached_character_for_character(context, length, temperature):
    model = small(context)
    prompt = prompt_of(length, rows=2)
    chosen = {"temperature": temperature}
    expected = written(model, prompt, 60, cached=False, **chosen)
    assert torch.equal(written(model, prompt, 60, cached=True, **chosen), expected)
    assert expected.shape == (2, 60)
    assert expected.min() >= 0
    assert expected.max() < 11


@pytest.mark.parametrize(
    "arm", [{"position": "none"}, {"position": "rotary"}, {"causal": False}, {"feed_forward": "none"}, {"norm": False}]
)
@pytest.mark.parametrize("backend", ["explicit", "fused"])
def test_cached_is_uncached_in_every_arm(arm, backend):
    model = small(**arm, backend=backend)
    assert torch.equal(written(model, prompt_of(3), 40), written(model, prompt_of(3), 40, cached=False))


def test_greedy_text_is_what_the_model_says_in_each_window():
    model = small()
    tokens = prompt_of(5)
    for _ in range(40):
        start = window_start(tokens.shape[1], model.context)
        chosen = model(tokens[:, start:])[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, chosen], dim=1)
    assert torch.equal(tokens[:, 5:], written(model, prompt_of(5), 40, temperature=0))


@settings(deadline=None)
@given(n_tokens=st.integers(1, 500), context=st.integers(1, 70))
def test_window_ends_at_the_new_character_and_shows_at_least_half_a_context(n_tokens, context):
    start = window_start(n_tokens, context)
    seen = n_tokens - start
    assert 0 <= start < n_tokens
    assert seen <= context
    assert seen == n_tokens if n_tokens <= context else seen >= context / 2
    # It stays for half a context at a time.
    if n_tokens > context and start == window_start(n_tokens - 1, context):
        assert seen > context - context // 2


def test_cache_costs_one_column_a_character_but_for_the_jumps(monkeypatch):
    calls = windows(monkeypatch, small(), prompt_of(3), 30)
    assert calls[:6] == [(0, 3), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]
    whole = [columns for start, columns in calls if start == 0]
    # At 9, 13, 17, 21, 25 and 29 characters it jumps by four, and keeps the last five.
    assert whole == [3] + 6 * [5]
    uncached = windows(monkeypatch, small(), prompt_of(3), 30, cached=False)
    assert len(calls) == len(uncached) == 30
    assert max(columns for _, columns in uncached) == 8


def test_cache_returns_all_that_it_was_given():
    cache = KeyValueCache(5)
    pieces = [(torch.randn(2, 3, n, 4), torch.randn(2, 3, n, 4)) for n in (2, 1, 2)]
    for end, (key, value) in enumerate(pieces, start=1):
        keys, values = cache.append(key, value)
        assert torch.equal(keys, torch.cat([k for k, _ in pieces[:end]], dim=2))
        assert torch.equal(values, torch.cat([v for _, v in pieces[:end]], dim=2))


def test_text_can_be_written_in_parts():
    model = small()
    whole = written(model, prompt_of(3), 30, temperature=0)
    part = written(model, prompt_of(3), 11, temperature=0)
    rest = written(model, torch.cat([prompt_of(3), part], dim=1), 19, temperature=0)
    assert torch.equal(whole, torch.cat([part, rest], dim=1))


def test_same_seed_same_text_whatever_else_is_drawn():
    model = small()
    one = written(model, prompt_of(3), 30)
    torch.manual_seed(9)
    before = torch.get_rng_state()
    assert torch.equal(one, written(model, prompt_of(3), 30))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(one, written(model, prompt_of(3), 30, seed=1))


def test_mode_is_given_back_also_when_the_reader_leaves():
    model = small(dropout=0.5).train()
    written(model, prompt_of(3), 2)
    assert model.training
    text = generate(model, prompt_of(3), 5, generator=generator(0, "sampling"))
    next(text)
    assert not model.training
    text.close()
    assert model.training


def test_dropout_is_off():
    torch.manual_seed(0)
    model = small(dropout=0.5).train()
    assert torch.equal(written(model, prompt_of(3), 20), written(small(), prompt_of(3), 20))


def test_nothing_is_written_where_nothing_is_asked_for():
    assert list(generate(small(), prompt_of(3), 0, generator=generator(0, "sampling"))) == []


@pytest.mark.parametrize(
    "chosen", [{"temperature": -1.0}, {"temperature": math.nan}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_impossible_wishes_are_refused(chosen):
    with pytest.raises(ValueError, match=next(iter(chosen)).replace("_", "-")):
        next(generate(small(), prompt_of(3), 5, generator=generator(0, "sampling"), **chosen))


def test_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="the prompt is empty"):
        next(generate(small(), prompt_of(3)[:, :0], 5, generator=generator(0, "sampling")))


def test_all_wishes_are_checked_at_once():
    assert check_sampling(0.8, 40, 0.95, 200) == []
    assert check_sampling(0.0, None, 1.0, 0) == []
    assert len(check_sampling(math.inf, -1, -0.5, -1)) == 4


def test_probabilities_without_a_wish_are_those_of_the_model():
    expected = LOGITS.double().softmax(-1)
    torch.testing.assert_close(filtered(LOGITS, **ALL), expected)
    for loose in ({"top_k": 5}, {"top_k": 200}, {"top_p": 1.0}, {"top_k": 5, "top_p": 1.0}):
        torch.testing.assert_close(filtered(LOGITS, **{**ALL, **loose}), expected)


def test_temperature_divides_the_logits():
    torch.testing.assert_close(filtered(LOGITS, **{**ALL, "temperature": 0.5}), (2 * LOGITS.double()).softmax(-1))
    hot = filtered(LOGITS, **{**ALL, "temperature": 1e300})
    torch.testing.assert_close(hot, torch.full((1, 5), 0.2, dtype=torch.float64))


@pytest.mark.parametrize("temperature", [1e-8, 1e-30, 1e-300, 5e-324])
def test_tiny_temperature_takes_the_likeliest(temperature):
    logits = torch.tensor([[0.5, 2.0, -1.0, 1.999, 0.0], [-1e30, 3e38, 0.0, 1.0, -3e38]])
    for seed in range(5):
        draw = generator(seed, "sampling")
        chosen = choose(logits, **{**ALL, "temperature": temperature}, generator=draw)
        assert chosen.tolist() == [1, 1]


def test_temperature_zero_takes_the_likeliest_for_every_seed():
    wishes = {"temperature": 0.0, "top_k": None, "top_p": None}
    assert {choose(LOGITS, **wishes, generator=generator(seed, "x")).item() for seed in range(9)} == {1}


@given(
    logits=st.lists(st.sampled_from([-2.0, 0.0, 0.5, 1.0]) | st.floats(-50, 50, width=32), min_size=1, max_size=9),
    k=st.integers(1, 12),
)
def test_top_k_keeps_exactly_k_also_with_ties(logits, k):
    row = torch.tensor([logits])
    kept = filtered(row, **{**ALL, "top_k": k})[0]
    n_kept = min(k, len(logits))
    # A probability can be too small for a number to hold, so at most.
    assert (kept > 0).sum() <= n_kept
    whole = filtered(row, **ALL)[0]
    assert kept.sum().item() == pytest.approx(1)
    if (whole > 1e-12).all():
        assert (kept > 0).sum() == n_kept
        assert whole[kept > 0].min() >= whole[kept == 0].max() if n_kept < len(logits) else True
        torch.testing.assert_close(kept[kept > 0], whole[kept > 0] / whole[kept > 0].sum())


@given(logits=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=9), p=st.floats(0.01, 1))
def test_top_p_keeps_the_fewest_that_hold_p(logits, p):
    row = torch.tensor([logits])
    whole = filtered(row, **ALL)[0]
    kept = filtered(row, **{**ALL, "top_p": p})[0]
    inside = whole[kept > 0]
    assert inside.sum() >= p - 1e-9
    assert inside.sum() - inside.min() < p + 1e-9
    torch.testing.assert_close(kept[kept > 0], inside / inside.sum())


def test_top_k_and_top_p_together_take_the_k_first():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    # Of the two likeliest, 4/7 and 3/7, the first alone holds half.
    assert (filtered(logits, temperature=1.0, top_k=2, top_p=0.5) > 0).tolist() == [[True, False, False, False]]
    assert (filtered(logits, temperature=1.0, top_k=2, top_p=0.6) > 0).tolist() == [[True, True, False, False]]


def test_draws_follow_the_probabilities():
    n = 20_000
    for wishes in (ALL, {**ALL, "top_k": 3}, {**ALL, "temperature": 2.0, "top_p": 0.9}):
        drawn = choose(LOGITS.expand(n, 5), **wishes, generator=generator(0, "sampling"))
        found = torch.bincount(drawn, minlength=5) / n
        expected = filtered(LOGITS, **wishes)[0]
        assert found[expected == 0].sum() == 0
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.015)


def test_score_of_minus_infinity_is_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf]]).expand(50, 3)
    for temperature in (0.0, 1e-8, 1.0, 1e300):
        chosen = choose(logits, **{**ALL, "temperature": temperature}, generator=generator(0, "x"))
        assert chosen.tolist() == [1] * 50


@pytest.mark.parametrize("row", [[0, math.nan, 1], [0, math.inf, 1], [-math.inf] * 3, [math.nan, math.inf, -math.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_score_that_is_no_number_stops_the_text(row, temperature):
    logits = torch.tensor([[0.0, 1.0, 2.0], row])
    with pytest.raises(FloatingPointError, match="infinite or no numbers"):
        choose(logits, **{**ALL, "temperature": temperature}, generator=generator(0, "x"))


def test_empty_prompt_stands_for_a_new_line_or_the_first_character():
    assert Vocabulary("\n abc").start == "\n"
    assert Vocabulary("abc").start == "a"
