"""Tests and intervals of a fixed number of pairs."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from scipy import special

from orchestrator.config.confirmation import ALPHA

NUM_RESAMPLES = 9999  # the most sign patterns a permutation test enumerates; of more it samples so many
TIE = 1e-12  # sums of differences that are closer, as a share of the sum of their sizes, are the same in another order

Interval = tuple[float, float]


def mean_interval(differences: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Student's t interval of the mean difference; none of fewer than two. The arms are equivalent where the 90%
    interval lies within the margin: those are two one-sided paired t-tests at 5% (Schuirmann 1987, "A comparison of the
    two one-sided tests procedure and the power approach")."""
    n = len(differences)
    if n < 2:
        return None
    mean, error = float(np.mean(differences)), float(np.std(differences, ddof=1)) / math.sqrt(n)
    reach = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * error
    return mean - reach, mean + reach


@lru_cache(maxsize=4096)
def permutation_p(differences: tuple[float, ...]) -> float | None:
    """The two-sided p-value of "the arms may be swapped at every seed", by flipping the differences' signs: exact up to
    13 pairs, sampled above (Fisher 1935, "The design of experiments"). None where there is no pair."""
    if len(differences) < 2:
        return 1.0 if differences else None  # of one pair, both signings are as extreme as the one observed
    values = np.array(differences)
    if 2 ** len(values) <= NUM_RESAMPLES:
        # By hand: scipy's tolerance for ties is a share of the observed mean, which misses those near zero.
        sums = np.abs(np.array(list(product((1, -1), repeat=len(values)))) @ values)
        return float(np.mean(sums >= abs(values.sum()) - TIE * np.abs(values).sum()))
    from scipy import stats  # a second to import

    test = stats.permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=NUM_RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979, "A simple sequentially rejective multiple test..."): the k-th
    smallest of m is multiplied by m - k + 1, and none comes out below a smaller one's, nor above 1."""
    adjusted, floor = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        floor = max(floor, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = floor
    return adjusted


def fewest_pairs(family_size: int = 1) -> int:
    """The least n at which the exact test can reject at all: 2 / 2^n <= alpha / family size."""
    return math.ceil(math.log2(2 * family_size / ALPHA))
