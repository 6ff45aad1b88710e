"""Every claim of the article, each by the check that `python -m minilm claims` runs.

A test bears the name of its claim, and asserts the figures themselves, not only the verdict.
"""

import json
import math

import pytest

from minilm.errors import UserError
from minilm.lab import claims, collapse, saturation
from minilm.lab.finding import FAILS, HOLDS, SHARPER, Finding

CHECKS = {check.__name__: check for check in claims.checks()}
FINDINGS: dict[str, Finding] = {}


def found(name, verdict):
    """The figures of a check, in order; each check runs once."""
    if name not in FINDINGS:
        FINDINGS[name] = CHECKS[name]()
    assert FINDINGS[name].verdict == verdict
    return list(FINDINGS[name].figures.values())


def test_the_word_that_decides_stands_two_to_the_left():
    assert found("the_word_that_decides_stands_two_to_the_left", FAILS) == [1]


def test_nothing_is_exact_and_nothing_is_missed():
    smallest, largest, far, farther = found("nothing_is_exact_and_nothing_is_missed", SHARPER)
    assert 0 < smallest < largest < 1
    assert far > 0
    assert farther == 0


def test_weights_sum_to_one():
    double, single = found("weights_sum_to_one", HOLDS)
    assert double < 1e-14
    assert single < 1e-6


def test_the_digits_printed_follow_from_each_other():
    printed, differ, by, slips = found("the_digits_printed_follow_from_each_other", SHARPER)
    assert (printed, differ, by, slips) == (36, 8, 0.002, 3)


def test_scores_grow_with_the_root_of_the_key_width():
    *_, power, off, off_scaled = found("scores_grow_with_the_root_of_the_key_width", HOLDS)
    assert power == pytest.approx(0.5, abs=0.01)
    assert off < 0.03
    assert off_scaled < 0.03
    for width in saturation.WIDTHS:
        assert saturation.saturation(width, False).std == pytest.approx(math.sqrt(width), rel=0.03)
        assert saturation.saturation(width, True).std == pytest.approx(1, rel=0.03)


def test_unscaled_scores_saturate_the_softmax():
    narrow, narrow_raw, wide, wide_raw, mean_raw, dead, dead_raw = found(
        "unscaled_scores_saturate_the_softmax", SHARPER
    )
    assert narrow == pytest.approx(wide, rel=0.1)  # with the scale the width does not matter
    assert 0.5 < narrow_raw / narrow < 0.9
    assert wide_raw < 0.05 * wide
    assert mean_raw > 10 * wide_raw
    assert dead == 0
    assert dead_raw > 0.3


def test_eight_times_the_scores_is_a_collapse():
    largest, second, flat, steep, steep_plain = found("eight_times_the_scores_is_a_collapse", FAILS)
    assert (round(largest, 3), round(second, 3), round(flat, 2)) == (0.740, 0.223, 0.49)
    assert steep > 0.85 * steep_plain


def test_bank_leaves_on_the_water_side():
    the, river, bank, flooded = found("bank_leaves_on_the_water_side", HOLDS)
    assert round(bank, 2) == 0.78
    assert min(the, river, flooded) > 0.75


def test_the_takes_all_alike_and_bank_does_not():
    flat = found("the_takes_all_alike_and_bank_does_not", SHARPER)
    assert [round(f, 3) for f in flat] == [0.998, 0.939, 0.966, 0.951]


def test_every_row_is_largest_on_river():
    rows, against, even = found("every_row_is_largest_on_river", SHARPER)
    assert rows == 4
    assert against < 0.6 * even


def test_a_big_key_attracts_whatever_is_asked():
    rank, levelled, longest, scorned, ignored, rows, rows_levelled = found(
        "a_big_key_attracts_whatever_is_asked", SHARPER
    )
    assert rank > 0.95
    assert abs(levelled) < 0.25  # 64 keys: two standard deviations of chance
    assert longest > 4
    assert scorned < 0.2
    assert ignored < 0.8
    assert (rows, rows_levelled) == (4, 0)


def test_hiding_flooded_leaves_less_water():
    figures = found("hiding_flooded_leaves_less_water", HOLDS)
    assert [round(f, 3) for f in figures] == [0.698, 0.655, 0.197, 0.195]


def test_hiding_a_word_lifts_all_others():
    smallest, largest, predicted = found("hiding_a_word_lifts_all_others", HOLDS)
    assert smallest == pytest.approx(largest, rel=1e-12)
    assert smallest == pytest.approx(predicted, rel=1e-12)


def test_masking_padding_lifts_the_real_tokens():
    rise, difference = found("masking_padding_lifts_the_real_tokens", HOLDS)
    assert rise > 1
    assert difference < 1e-15


def test_eight_heads_cost_as_much_as_one():
    width, p8, p1, work8, work1, kept8, kept1 = found("eight_heads_cost_as_much_as_one", SHARPER)
    assert 8 * width == 512
    assert p8 == p1 == 4 * 512 * 513
    assert work8 == work1 == 2 * (4 * 128 * 512**2 + 2 * 128**2 * 512)
    assert kept8 == 8 * kept1 == 8 * 128**2


def test_two_heads_hold_what_one_cannot():
    first, second, distance = found("two_heads_hold_what_one_cannot", HOLDS)
    assert first == pytest.approx(1, abs=1e-9)
    assert second == pytest.approx(1, abs=1e-9)
    assert distance == pytest.approx(0.5, abs=1e-6)


def test_dot_products_are_the_square_of_the_length():
    four, many, causal, share = found("dot_products_are_the_square_of_the_length", HOLDS)
    assert (four, many) == (16, 16_777_216)
    assert causal == 4096 * 4097 // 2
    assert share == pytest.approx(0.5, abs=1e-3)


def test_time_and_memory_are_quadratic():
    work, work_tiled, peak, peak_tiled = found("time_and_memory_are_quadratic", SHARPER)
    assert work == pytest.approx(2, abs=1e-6)
    assert 1.8 < work_tiled < 2  # the diagonal, which is linear, still counts at these lengths
    assert peak == pytest.approx(2, abs=0.1)
    assert peak_tiled <= 1.1


def test_tiles_give_the_same_attention():
    values, gradients = found("tiles_give_the_same_attention", HOLDS)
    assert values < 1e-10
    assert gradients < 1e-8


def test_tiles_move_fewer_numbers():
    standard, *moved, smallest, _, power = found("tiles_move_fewer_numbers", SHARPER)
    assert smallest == 64
    assert moved[0] > standard > moved[2] > moved[-1]
    assert power == pytest.approx(-1, abs=0.05)


def test_order_is_invisible():
    four, free, masked, last, last_of_two = found("order_is_invisible", SHARPER)
    assert max(four, free, last) < 1e-12
    assert masked > 0.1
    assert last_of_two > 1e-3


def test_the_answer_lies_within_the_values():
    inside, outside = found("the_answer_lies_within_the_values", HOLDS)
    assert inside < 1e-6
    assert outside > 0.1


def test_stacked_attention_collapses_into_one_layer():
    frozen, other_input, sums = found("stacked_attention_collapses_into_one_layer", SHARPER)
    assert frozen < 1e-12
    assert other_input > 0.1
    assert sums > 0.1


def test_something_non_linear_must_stand_beside_attention():
    alone, think, keep, both, causal, power, power_causal = found(
        "something_non_linear_must_stand_beside_attention", SHARPER
    )
    assert max(alone, think) < 1e-12
    assert min(keep, both) > 0.5
    assert 0.01 < causal < 0.3
    assert power == pytest.approx(3, abs=0.05)  # Dong et al. 2021
    assert power_causal == pytest.approx(1, abs=0.05)
    # Doubly exponential: the logarithm itself shrinks faster with each layer.
    logs = [math.log(share) for share in collapse.decay("attention alone")[1:5]]
    assert logs[1] / logs[0] > 2
    assert logs[3] / logs[2] > 2.5


def test_feed_forward_has_twice_the_parameters():
    attention, feed_forward, ratio, with_biases = found("feed_forward_has_twice_the_parameters", HOLDS)
    assert (attention, feed_forward) == (4 * 512**2, 8 * 512**2)
    assert ratio == 2
    assert with_biases == pytest.approx(2, abs=0.002)


def test_every_claim_has_its_test():
    assert {f"test_{name}" for name in CHECKS} <= set(globals())


def test_claims_prints_and_draws(capsys, tmp_path, monkeypatch):
    for name in CHECKS:
        if name in FINDINGS:  # no need to run them all again
            monkeypatch.setitem(CHECKS, name, named(name))
    monkeypatch.setattr(claims, "checks", lambda: tuple(CHECKS.values()))
    claims.main(["--plot-dir", str(tmp_path), "--plot-format", "png"])
    page = capsys.readouterr().out
    assert "DOES NOT HOLD AS STATED" in page
    assert "25 claims: 11 holds, 12 holds only as stated more precisely, 2 does not hold as stated." in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["collapse.png", "saturation.png"]
    claims.main(["--json"])
    data = json.loads(capsys.readouterr().out)
    assert data["dot_products_are_the_square_of_the_length"]["verdict"] == HOLDS
    with pytest.raises(UserError, match="there is no folder"):
        claims.main(["--plot-dir", str(tmp_path / "missing")])


def named(name):
    def check():
        return FINDINGS[name]

    check.__name__ = name
    return check
