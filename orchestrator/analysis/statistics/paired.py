"""Tests and intervals of a fixed number of pairs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from scipy import stats

ALPHA = 0.05
"""Level of every test: the chance, over the whole family, of naming a winner where there is none."""

NUM_RESAMPLES = 9999
"""Draws of the bootstrap, and the most sign patterns a permutation test enumerates before it samples them."""

TIE = 1e-12
"""Sums of differences that are closer, as a share of the sum of their sizes, are the same in another order."""

Interval = tuple[float, float]


@lru_cache(maxsize=4096)
def bootstrap_interval(differences: tuple[float, ...], confidence: float = 0.95) -> Interval | None:
    """The bootstrap interval of the mean difference, widened for few seeds.

    Bias-corrected and accelerated (BCa; Efron 1987, "Better bootstrap confidence intervals"), each end then
    moved away from the mean by the factor sqrt(n / (n - 1)) t / z. The bootstrap takes the spread with divisor n
    and the normal's quantile; the factor puts back what that leaves out (Hesterberg 2015, "What teachers should
    know about the bootstrap", section 3). He widens the percentiles' level instead: of few seeds that cannot
    suffice, as no resample's mean lies beyond the extreme differences, between which the true mean of n = 4
    lies with a chance of 7/8 only.

    Where BCa is not defined, as for resamples that nearly all agree, the percentile interval; where all
    differences are equal, that one point; of fewer than two differences there is none, since one cannot vary.
    """
    if len(differences) < 2:
        return None
    if len(set(differences)) == 1:
        return differences[0], differences[0]
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # the percentile answers it
            low, high = stats.bootstrap(
                (np.array(differences),),
                np.mean,
                confidence_level=confidence,
                n_resamples=NUM_RESAMPLES,
                method=method,
                rng=np.random.default_rng(0),
            ).confidence_interval
        if math.isfinite(low) and math.isfinite(high):
            break
    mean, n, tail = float(np.mean(differences)), len(differences), (1 + confidence) / 2
    widening = math.sqrt(n / (n - 1)) * float(stats.t.ppf(tail, n - 1) / stats.norm.ppf(tail))
    return mean - widening * (mean - float(low)), mean + widening * (float(high) - mean)


@lru_cache(maxsize=4096)
def permutation_p(differences: tuple[float, ...]) -> float | None:
    """The two-sided p-value of "the arms may be swapped at every seed", by flipping the differences' signs.

    Exact up to 13 pairs (2^13 sign patterns), sampled above (Fisher 1935, "The design of experiments").
    With n pairs it is never below 2 / 2^n: see :func:`fewest_pairs`. None where there is no pair.
    """
    if len(differences) < 2:
        return 1.0 if differences else None  # of one pair, both signings are as extreme as the one observed
    values = np.array(differences)
    if 2 ** len(values) <= NUM_RESAMPLES:
        # By hand: scipy's tolerance for ties is a share of the observed mean, which misses those near zero.
        sums = np.abs(np.array(list(product((1, -1), repeat=len(values)))) @ values)
        return float(np.mean(sums >= abs(values.sum()) - TIE * np.abs(values).sum()))
    test = stats.permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=NUM_RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def equivalence_interval(differences: Sequence[float], alpha: float = ALPHA) -> Interval | None:
    """The interval that two one-sided paired t-tests at ``alpha`` leave: 90% for 5%.

    The arms are equivalent where it lies within the margin (Schuirmann 1987, "A comparison of the two
    one-sided tests procedure and the power approach"). Student's t and not the bootstrap, whose intervals are
    of too variable a width for a handful of seeds: it would find equivalence too easily. None of fewer than two.
    """
    n = len(differences)
    if n < 2:
        return None
    mean, error = float(np.mean(differences)), float(np.std(differences, ddof=1)) / math.sqrt(n)
    reach = float(stats.t.ppf(1 - alpha, n - 1)) * error
    return mean - reach, mean + reach


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979, "A simple sequentially rejective multiple test...").

    The k-th smallest of m is multiplied by m - k + 1, and none comes out below a smaller one's, nor above 1.
    """
    adjusted, floor = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        floor = max(floor, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = floor
    return adjusted


def fewest_pairs(family_size: int = 1, alpha: float = ALPHA) -> int:
    """The least n at which the exact test can reject at all: 2 / 2^n <= alpha / family size."""
    return math.ceil(math.log2(2 * family_size / alpha))
