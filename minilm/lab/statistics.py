"""Is a difference more than the luck of the seeds?

Runs of one seed share batches and initial weights, so arm and control are compared seed by seed:
a t-test of the paired differences (scipy.stats.ttest_1samp of them, which is ttest_rel of the
runs). A ratio is compared through its logarithm, since losses of seeds scatter by factors: the
estimate is the geometric mean of the ratios.

A claim says on which side of a bound a figure lies, and says so before anything runs. Its p
answers just that: how likely data as good as these are if the figure lies at the bound at best
(one-sided). An arm has all its claims shown if the weakest has (intersection-union test, Berger
1982); over the arms, p-values are corrected by Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minilm.config import Claim

ALPHA = 0.01
Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval, in the figure's unit or as a factor."""

    mean: float
    low: float
    high: float
    p: float  # of the mean being the same as the reference, or beyond it; two-sided or one-sided as asked


def effects(arm: Numbers, control: Numbers, compare: str) -> np.ndarray:
    """One number per seed: the arm's own, its difference from the control, or the logarithm of its ratio.

    Raises:
        ValueError: a ratio of numbers that are not all positive.
    """
    ours, theirs = np.asarray(arm, dtype=np.float64), np.asarray(control, dtype=np.float64)
    if compare == "alone":
        return ours
    if compare == "difference":
        return ours - theirs
    if min(ours.min(), theirs.min()) <= 0:
        raise ValueError("there is no ratio, since not all are above zero")
    return np.log(ours / theirs)


def t_test(sample: np.ndarray, reference: float, alternative: str) -> float:
    """The p of the sample's mean being `reference`, against "two-sided", "greater" or "less".

    Numbers without any scatter, such as exact zeros, lie at the reference or they do not.
    """
    from scipy.stats import ttest_1samp

    distance = sample.mean() - reference
    if np.ptp(sample) == 0:
        beyond = {"two-sided": distance != 0, "greater": distance > 0, "less": distance < 0}
        return 0.0 if beyond[alternative] else 1.0
    return float(ttest_1samp(sample, reference, alternative=alternative).pvalue)


def interval(sample: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean, by Student's t."""
    from scipy.stats import t

    half = t.ppf(0.975, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample))
    return float(sample.mean() - half), float(sample.mean() + half)


def estimate(arm: Numbers, control: Numbers, compare: str, reference: float, alternative: str) -> Estimate:
    """The mean effect of at least two seeds, and the p of its being `reference` (a factor, for a ratio)."""
    sample = effects(arm, control, compare)
    back = math.exp if compare == "ratio" else float
    p = t_test(sample, math.log(reference) if compare == "ratio" else reference, alternative)
    low, high = interval(sample)
    return Estimate(back(sample.mean()), back(low), back(high), p)


def difference(arm: Numbers, control: Numbers) -> Estimate:
    """How far the arm is from its control, and whether it differs at all."""
    return estimate(arm, control, "difference", 0.0, "two-sided")


def support(claim: Claim, arm: Numbers, control: Numbers) -> Estimate:
    """The claim's figure, with the p of its lying at the bound or on the wrong side of it."""
    return estimate(arm, control, claim.compare, claim.bound, "greater" if claim.above is not None else "less")


def contradiction(claim: Claim, arm: Numbers, control: Numbers) -> float:
    """The p of the figure's lying on the right side of the bound, or of no effect.

    An effect in the right direction that is smaller than claimed is not the opposite. So the
    reference is the bound or the point of no effect, whichever the claim's opposite has to pass.
    """
    none = {"alone": claim.bound, "difference": 0.0, "ratio": 1.0}[claim.compare]
    if claim.above is not None:
        return estimate(arm, control, claim.compare, min(claim.bound, none), "less").p
    return estimate(arm, control, claim.compare, max(claim.bound, none), "greater").p


def holds(claim: Claim, arm: Numbers, control: Numbers) -> int:
    """In how many seeds the figure lies on the claim's side of the bound."""
    bound = math.log(claim.bound) if claim.compare == "ratio" else claim.bound
    sample = effects(arm, control, claim.compare)
    return int(np.sum(sample > bound if claim.above is not None else sample < bound))


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values: the smallest times n, the next times n - 1, ..., never falling, at most 1."""
    adjusted = [0.0] * len(p)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = highest
    return adjusted


def false_alarms(runs: Numbers, *, pairs: int = 5, resamplings: int = 200, alpha: float = 0.05) -> float:
    """How often base differs from base: the share of resamplings whose two-sided p is below `alpha`.

    Each resampling takes some runs of the base for the control and gives others, drawn from the
    rest, their seeds' names. Which is called what is chance, so there is no effect to be found,
    and a sound test finds one in a share `alpha` of the resamplings.
    """
    from scipy.stats import ttest_1samp

    draw = np.random.default_rng(0)
    values = np.asarray(runs, dtype=np.float64)
    if np.ptp(values) == 0:
        return 0.0
    pairs = min(pairs, len(values) // 2)
    mixed = np.stack([values[draw.permutation(len(values))] for _ in range(resamplings)])
    p = ttest_1samp(mixed[:, :pairs] - mixed[:, pairs : 2 * pairs], 0.0, axis=1).pvalue
    return float(np.mean(p < alpha))
