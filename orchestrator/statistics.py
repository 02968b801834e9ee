"""Small pure statistics over paired differences: one number a seed, arm A's yardstick minus arm B's.

Everything is deterministic: where chance is used (the bootstrap; permutations of more than 13 pairs, too many
to enumerate), the generator's seed is fixed, so that a ledger always yields the same verdict.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import stats

ALPHA = 0.05
"""Level of every test: the chance, over the whole family, of naming a winner where there is none."""

POWER = 0.8
"""Chance with which the seeds that are asked for would settle a difference as large as the one observed."""

NUM_RESAMPLES = 9999
"""Draws of the bootstrap, and the most sign patterns a permutation test enumerates before it samples them."""

MOST_SEEDS = 1000
"""Where more pairs than this would be needed, no number is given: it would be no advice."""

Interval = tuple[float, float]


@lru_cache(maxsize=4096)
def bootstrap_interval(differences: tuple[float, ...], confidence: float = 0.95) -> Interval | None:
    """The bootstrap interval of the mean difference.

    Bias-corrected and accelerated (BCa; Efron 1987, "Better bootstrap confidence intervals"). Where BCa is
    not defined, as for resamples that nearly all agree, the percentile interval; where all differences are
    equal, that one point; of fewer than two differences there is none, since one cannot vary.
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
    return float(low), float(high)


@lru_cache(maxsize=4096)
def permutation_p(differences: tuple[float, ...]) -> float | None:
    """The two-sided p-value of "the arms may be swapped at every seed", by flipping the differences' signs.

    Exact up to 13 pairs (2^13 sign patterns), sampled above (Fisher 1935, "The design of experiments").
    With n pairs it is never below 2 / 2^n: see :func:`fewest_pairs`. None where there is no pair.
    """
    if len(differences) < 2:
        return 1.0 if differences else None  # of one pair, both signings are as extreme as the one observed
    test = stats.permutation_test(
        (np.array(differences),),
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
    too narrow for a handful of seeds: it would find equivalence too easily. None of fewer than two.
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


def seeds_needed(differences: Sequence[float], margin: float, family_size: int = 1) -> int | None:
    """How many more pairs it would take, should the mean and standard deviation stay as observed.

    The least n at which one of two answers has a chance of ``POWER``:

    - a winner: the two-sided paired t-test at alpha / family size (power by the noncentral t distribution;
      Cohen 1988, "Statistical power analysis", chapter 2), and n >= :func:`fewest_pairs`;
    - equivalence: the two one-sided t-tests (their power approximately, by two noncentral t distributions;
      Phillips 1990, "Power of the two one-sided tests procedure").

    An estimate from few pairs is itself uncertain: read it as an order of size. Of fewer than two pairs, the
    number at which a winner becomes possible. None where ``MOST_SEEDS`` would not be enough.
    """
    done, fewest = len(differences), fewest_pairs(family_size)
    if done < 2:
        return fewest - done
    mean, deviation = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if deviation == 0:
        return None if mean == 0 else max(fewest - done, 0)
    n = np.arange(done + 1, MOST_SEEDS + 1)
    error = deviation / np.sqrt(n)

    critical = stats.t.ppf(1 - ALPHA / family_size / 2, n - 1)
    above, below = stats.nct.sf(critical, n - 1, mean / error), stats.nct.cdf(-critical, n - 1, mean / error)

    critical = stats.t.ppf(1 - ALPHA, n - 1)
    under_margin = stats.nct.cdf(-critical, n - 1, (mean - margin) / error)
    over_margin = stats.nct.sf(critical, n - 1, (mean + margin) / error)

    settles = ((above + below >= POWER) & (n >= fewest)) | (under_margin + over_margin - 1 >= POWER)
    return int(n[np.argmax(settles)]) - done if settles.any() else None
