"""What a number of seeds can find, asked before they are run, and how many more it would take, asked after."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import special

from orchestrator.analysis.statistics.paired import fewest_pairs
from orchestrator.config.confirmation import ALPHA

POWER = 0.8  # chance with which seeds that are planned or asked for would settle a difference
MOST_SEEDS = 1000  # where more pairs than this would be needed, no number is given: it would be no advice
SIMULATED = 4000  # studies simulated for a power: its standard error is below 0.008
MOST_ENUMERATED = 10  # pairs up to which simulated studies have the permutation test; above, the t-test stands for it


@lru_cache(maxsize=4096)
def power(num_pairs: int, difference: float, deviation: float, margin: float = 0.0, family_size: int = 1) -> float:
    """The chance that the rules name the better arm, by simulation of normal differences with this mean and deviation
    (above 0), in the yardstick's unit as the margin is. The rules: the permutation test at alpha / family size
    (Holm's method for the weakest pair of the family, so that at a larger rank it can only be more), unless the
    difference is found to lie within the margin."""
    if num_pairs < fewest_pairs(family_size):
        return 0.0
    if num_pairs > MOST_SEEDS:  # from so many on, more are as good as these with a smaller deviation
        return power(MOST_SEEDS, difference, deviation * math.sqrt(MOST_SEEDS / num_pairs), margin, family_size)
    n, level = num_pairs, ALPHA / family_size
    samples = difference / deviation + np.random.default_rng(0).standard_normal((SIMULATED, n))
    mean, error = samples.mean(1), samples.std(1, ddof=1) / math.sqrt(n)
    if n <= MOST_ENUMERATED:
        # Of the 2^n signings, those whose first sign is +: the others have the same sums, negated.
        signs = np.array(list(product((1.0,), *[(1.0, -1.0)] * (n - 1)))).T
        sums = np.abs(samples @ signs)
        rejects = (sums >= sums[:, :1] * (1 - 1e-12)).mean(1) <= level
    else:
        rejects = np.abs(mean) >= error * special.stdtrit(n - 1, 1 - level / 2)
    reach = error * special.stdtrit(n - 1, 1 - ALPHA)
    equivalent = np.abs(mean) + reach <= margin / deviation
    return float(np.mean(rejects & ~equivalent & (mean * difference > 0)))


@lru_cache(maxsize=1024)
def minimum_detectable_effect(
    num_pairs: int, deviation: float = 1.0, margin: float = 0.0, family_size: int = 1
) -> float | None:
    """The smallest true difference, in the deviation's unit, to 1/500 of it, that so many pairs would name with a
    chance of ``POWER``; see :func:`power`. None where so few pairs can never name a winner, or do not vary."""
    if num_pairs < fewest_pairs(family_size) or deviation == 0:
        return None
    low, high = 0.0, deviation
    while power(num_pairs, high, deviation, margin, family_size) < POWER:
        low, high = high, 2 * high
    # Where a margin dwarfs the deviation, the numbers themselves are not as fine as that.
    while high - low > max(deviation / 500, high * 1e-12):
        middle = (low + high) / 2
        enough = power(num_pairs, middle, deviation, margin, family_size) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


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
    error: NDArray[np.float64] = deviation / np.sqrt(n)

    critical = special.stdtrit(n - 1, 1 - ALPHA / family_size / 2)
    above, below = 1 - special.nctdtr(n - 1, mean / error, critical), special.nctdtr(n - 1, mean / error, -critical)

    critical = special.stdtrit(n - 1, 1 - ALPHA)
    under_margin = special.nctdtr(n - 1, (mean - margin) / error, -critical)
    over_margin = 1 - special.nctdtr(n - 1, (mean + margin) / error, critical)

    settles = ((above + below >= POWER) & (n >= fewest)) | (under_margin + over_margin - 1 >= POWER)
    return int(n[np.argmax(settles)]) - done if settles.any() else None
