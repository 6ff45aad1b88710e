"""Are seeds compared in pairs, claims judged at their bounds, and false alarms as rare as promised?"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from minilm.config import Claim
from minilm.lab.statistics import contradiction, difference, estimate, false_alarms, holds, holm, support

ARM = [0.041, 0.055, 0.032, 0.047, 0.060]
CONTROL = [0.009, 0.012, 0.007, 0.014, 0.011]


def claim(compare="alone", **bound: float) -> Claim:
    return Claim(figure="excess", compare=compare, **bound)


def test_difference_is_scipys_paired_test():
    found, wanted = difference(ARM, CONTROL), stats.ttest_rel(ARM, CONTROL)
    low, high = wanted.confidence_interval(0.95)
    assert (found.low, found.high, found.p) == pytest.approx((low, high, wanted.pvalue))
    assert found.mean == pytest.approx(np.mean(np.subtract(ARM, CONTROL)))


def test_ratio_is_the_paired_test_of_logarithms():
    found = estimate(ARM, CONTROL, "ratio", 1.0, "two-sided")
    wanted = stats.ttest_rel(np.log(ARM), np.log(CONTROL))
    low, high = wanted.confidence_interval(0.95)
    assert (found.low, found.high, found.p) == pytest.approx((math.exp(low), math.exp(high), wanted.pvalue))
    assert found.mean == pytest.approx(stats.gmean(np.divide(ARM, CONTROL)))


@pytest.mark.parametrize(("bound", "expected"), [(3.0, True), (4.4, False), (6.0, False)])
def test_ratio_is_judged_at_the_bound_that_was_claimed(bound, expected):
    assert (support(claim("ratio", above=bound), ARM, CONTROL).p < 0.01) == expected
    shifted = [a / bound for a in ARM]
    wanted = stats.ttest_rel(np.log(shifted), np.log(CONTROL), alternative="greater").pvalue
    assert support(claim("ratio", above=bound), ARM, CONTROL).p == pytest.approx(wanted)


def test_figure_alone_needs_no_control():
    found = support(claim(below=0.1), ARM, [math.nan] * 5)
    assert found.p == pytest.approx(stats.ttest_1samp(ARM, 0.1, alternative="less").pvalue)
    assert found.mean == pytest.approx(np.mean(ARM))


def test_less_than_claimed_is_not_the_opposite():
    twice = [2.0 * c * (1 + 0.01 * i) for i, c in enumerate(CONTROL)]
    half = [0.5 * c * (1 + 0.01 * i) for i, c in enumerate(CONTROL)]
    much = claim("ratio", above=3)
    assert support(much, twice, CONTROL).p > 0.99
    assert contradiction(much, twice, CONTROL) > 0.99
    assert contradiction(much, half, CONTROL) < 0.01
    # What was said to stay within a bound is contradicted beyond that bound.
    alike = claim("ratio", below=3)
    assert support(alike, twice, CONTROL).p < 0.01
    assert contradiction(alike, [4 * t for t in twice], CONTROL) < 0.01
    assert contradiction(claim("difference", above=0.1), half, CONTROL) < 0.01


def test_figures_without_scatter_lie_at_the_bound_or_they_do_not():
    zeros, ones = [0.0] * 3, [1.0] * 3
    assert support(claim(below=1e-4), zeros, ones).p == 0.0
    assert support(claim(above=0), zeros, ones).p == 1.0
    assert contradiction(claim(above=0.5), zeros, ones) == 0.0
    found = difference(zeros, zeros)
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_there_is_no_ratio_of_what_is_not_above_zero():
    for pair in (([0.1, -0.1], [0.1, 0.1]), ([0.1, 0.1], [0.1, 0.0])):
        with pytest.raises(ValueError, match="no ratio"):
            support(claim("ratio", above=2), *pair)


def test_seeds_on_the_right_side_are_counted():
    assert holds(claim("ratio", above=4.5), ARM, CONTROL) == 4
    assert holds(claim("difference", below=0.04), ARM, CONTROL) == 3
    assert holds(claim(above=0.05), ARM, CONTROL) == 2


def test_holm_on_an_example_by_hand():
    # 0.001 * 4; 0.01 * 3; 0.02 * 2; 0.03, which may not fall below the one before.
    assert holm([0.02, 0.001, 0.03, 0.01]) == pytest.approx([0.04, 0.004, 0.04, 0.03])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_only_raises(p):
    adjusted = holm(p)
    assert all(raw <= a <= 1 for raw, a in zip(p, adjusted, strict=True))
    by_p = [adjusted[i] for i in sorted(range(len(p)), key=p.__getitem__)]
    assert by_p == sorted(by_p)


def test_base_is_seldom_told_apart_from_base():
    """Over many bases, of runs whose excess scatters by factors: 5 % of 8,000 resamplings, give or take 2 errors."""
    draw = np.random.default_rng(1)
    rates = [false_alarms(np.exp(draw.normal(-6, 0.5, 20))) for _ in range(40)]
    assert np.mean(rates) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 8000)
    # A test that could never sound an alarm would be no use either.
    assert np.mean(rates) > 0.01
    assert false_alarms([0.5] * 10) == 0.0


def test_a_difference_that_is_there_is_found():
    draw = np.random.default_rng(2)
    base = np.exp(draw.normal(-6, 0.5, 5))
    assert difference(4 * base * np.exp(draw.normal(0, 0.1, 5)), base).p < 0.05
