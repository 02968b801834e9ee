"""Tuning curves: how good the best of n search trials is, so that a search's luck can be told from its arm.

Dodge et al. 2019, "Show your work: improved reporting of experimental results"; with bands, Lourie, Cho & He
2024, "Show your work with confidence: confidence bands for tuning curves".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

SIMULATED = 20_000  # samples from which the band's level is found; of many trials fewer, but none below 1000
ORDERS = 4000  # of a search's trials
BLOCK = 100_000  # samples at a time
CONFIDENCE = 0.95  # of a band, over all n together
MOST_POINTS = 64  # of a curve: all n up to about 20, then further and further apart


@dataclass(frozen=True)
class TuningCurve:
    """The best of n trials; higher is better."""

    n: tuple[int, ...]  # from 1 up to as many trials as there are
    expected: tuple[float, ...]  # mean of the best of n
    median: tuple[float, ...]  # median of the best of n
    low: tuple[float | None, ...]  # lower end of the median's band; None where the trials set no bound
    high: tuple[float | None, ...]  # upper end; None where there is no bound: of N trials, for n above about N / 8
    spent: tuple[float, ...] = ()  # what n trials cost in the mean, in trial budgets; () where it was not recorded


@lru_cache(maxsize=256)
def tuning_curve(scores: tuple[float, ...]) -> TuningCurve:
    """The curve of trials, one score each, higher being better, whose configurations were drawn independently; the 95%
    band holds for all n together. With F the distribution of one trial's score, F^n is that of the best of n. The
    expected best is that of n draws from the scores found, with replacement. The median best is F's quantile at
    0.5^(1/n); its band follows from one of F which holds at all scores, and so for all n, at once: the equal-tailed
    Beta band (Learned-Miller & DeSantis 2008, "A probabilistic upper bound on differential entropy"; the paper's "LD").
    It assumes no distribution. Raises ValueError if there is no score."""
    if not scores:
        raise ValueError("a tuning curve needs a score")
    ordered = np.sort(scores)
    num = len(ordered)
    ranks = np.arange(1, num + 1)
    below, above = _band(num, CONFIDENCE)
    expected, median, low, high = [], [], [], []
    points = np.unique(np.geomspace(1, num, MOST_POINTS).round().astype(int))
    for n in points:
        share = (ranks / num) ** n
        expected.append(float(ordered @ np.diff(share, prepend=0.0)))
        quantile = 0.5 ** (1 / n)
        median.append(float(ordered[int(np.argmax(share >= 0.5 * (1 - 1e-12)))]))
        # The quantile lies above every score whose F is surely less, and not above one whose F is surely more.
        under, over = np.flatnonzero(above < quantile), np.flatnonzero(below >= quantile)
        low.append(float(ordered[under[-1]]) if len(under) else None)
        high.append(float(ordered[over[0]]) if len(over) else None)
    return TuningCurve(tuple(map(int, points)), tuple(expected), tuple(median), tuple(low), tuple(high))


def chance_of_better(spent: Sequence[float], scores: Sequence[float | None], by: float) -> float | None:
    """An estimate of the chance that a search twice as long would find a better one by more than ``by``: over random
    orders of its trials, how often the second half of its spending did over the first. Of each trial what it spent,
    and its score if it completed, higher being better; None of fewer than two of those. As searches bring less and
    less, and samplers learn from what came before, it is rather too high."""
    found = np.array([-np.inf if score is None else score for score in scores])
    if np.isfinite(found).sum() < 2:
        return None
    better = 0
    for uniform in _uniform(ORDERS, len(found)):
        order = np.argsort(uniform, axis=1)
        up_to = np.cumsum(np.asarray(spent)[order], axis=1)
        first = up_to <= up_to[:, -1:] / 2
        best_first, best_second = (np.where(half, found[order], -np.inf).max(axis=1) for half in (first, ~first))
        better += int(np.sum(best_second > best_first + by))
    return better / ORDERS


@lru_cache(maxsize=256)
def _band(num: int, confidence: float) -> tuple[Floats, Floats]:
    """Bounds of F at each of the ordered scores, all at once. F at the i-th of N is distributed as Beta(i, N - i + 1);
    each bound is taken at the level that all hold at with the confidence wanted, found from uniform samples."""
    ranks = np.arange(1, num + 1)
    tails = []
    for samples in _uniform(max(1000, min(SIMULATED, 500_000 // num)), num):
        ranked = special.betainc(ranks, num - ranks + 1, np.sort(samples, axis=1))
        tails.append(np.minimum(ranked, 1 - ranked).min(axis=1))
    tail = float(np.quantile(np.concatenate(tails), 1 - confidence))
    low, high = (special.betaincinv(ranks, num - ranks + 1, level) for level in (tail, 1 - tail))
    return np.asarray(low), np.asarray(high)


def _uniform(rows: int, columns: int) -> Iterator[Floats]:
    """Uniform samples, the same each time, of some rows at a time: all of ten thousand trials' would take gigabytes."""
    rng, step = np.random.default_rng(0), max(1, BLOCK // columns)
    for begin in range(0, rows, step):
        yield rng.random((min(step, rows - begin), columns))
