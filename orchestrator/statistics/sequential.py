"""Adaptive stopping: seeds are added one pair at a time, and the study ends when its question is answered.

Looking after every pair and stopping when the numbers please would name winners where there are none; here the
chance of a false verdict is *spent* over the looks. By n of at most N pairs, a share n / N of it may be spent
(Lan & DeMets 1983, "Discrete sequential boundaries for clinical trials"; the linear function is Kim & DeMets
1987's with exponent 1). So a verdict after n pairs is valid although one looked after each of them.

- **A winner** by sign flips: were the arms exchangeable at every seed, all 2^n signings of the differences would
  be equally likely to have led here. Each signing is followed from look to look; those with the largest sums are
  rejected, as many as may be spent by then. The arm wins at the look at which the signing observed is among them
  (the conditional randomisation test of Plamadeala & Rosenberger 2012, "Sequential monitoring with conditional
  randomization tests"). No distribution is assumed. With one look it is the permutation test.
- **Equivalence** by two one-sided t-tests, each with boundaries that spend its 5% in the same way, found from
  the t statistics' joint distribution over the looks (Jennison & Turnbull 2000, "Group sequential methods",
  chapter 11), simulated.
- **p** is the stagewise one (Tsiatis, Rosner & Mehta 1984, "Exact confidence intervals following a group
  sequential test"): the share of signings that were rejected earlier, or now with at least as large a sum,
  divided by the share of alpha that is spent at all.
- **The interval** is the set of differences that the stopped mean does not contradict at 5%. The usual interval
  takes Student's quantiles of (mean - difference) / error; at a stop they do not hold, so those of the stopped
  statistic are taken, simulated under each difference with the spread observed (Chuang & Lai 1998, "Resampling
  methods for confidence intervals in group sequential trials"; ordered as by Rosner & Tsiatis 1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from orchestrator.statistics.paired import ALPHA, Interval
from orchestrator.statistics.planning import POWER, smallest_with

Floats = NDArray[np.float64]
Verdict = Literal["a", "b", "equivalent", "undecided", "continue"]

ENUMERATED = 13
"""Pairs up to which all signings are followed; beyond, each goes on with signs drawn at random."""

CONFIDENCE = 0.95
"""Of the interval."""

BOUNDARY_PATHS, STOPPED_PATHS = 100_000, 4096
"""Simulated studies, for boundaries and for the distribution of what was stopped."""

KEPT_BACK = 0.15
"""Share of alpha that is not spent: for what drawn signings miss of all of them, and because differences that are
skewed where there is none (arms with skewed noise of unequal size) are named more often than symmetric ones.
"""

TIE = 1 - 1e-12
"""Sums that differ by less are the same sum in another order."""


@dataclass(frozen=True)
class Decision:
    """What the pairs so far say."""

    verdict: Verdict
    """``a``: the differences are positive, ``b``: negative. ``continue``: another pair is wanted; ``undecided``:
    no more will come."""
    n: int
    """Pairs that the verdict rests on: those up to the look that settled it."""
    p: float | None
    """Stagewise, for this pair of arms alone. None before the end, and where equivalence ended it early: the
    chance of naming a winner was then not spent."""
    interval: Interval | None
    """Of the difference, 95%. None before the end."""


@dataclass(frozen=True)
class Outlook:
    """Chances of the verdicts, and the mean number of pairs."""

    a: float
    b: float
    equivalent: float
    pairs: float


@dataclass(frozen=True)
class Sequential:
    """The stopping rule of one pair of arms.

    Args:
        minimum: pairs at the first look, at least 2.
        maximum: pairs at the last.
        margin: of equivalence; 0 for none.
        alpha: level over the family.
        family_size: pairs of arms that the study compares; each may spend its share of alpha.
    """

    minimum: int
    maximum: int
    margin: float
    alpha: float = ALPHA
    family_size: int = 1

    def decide(
        self, differences: Sequence[float], ended: bool = False, with_interval: bool = True
    ) -> Decision:
        """The verdict of the first look that has one; differences beyond it change nothing.

        Args:
            differences: A's yardstick minus B's, higher being better, in the order of the seeds.
            ended: no further pair will come, though there are fewer than the maximum (runs failed): the last
                look spends what is left.
            with_interval: whether to work out the interval, which takes most of the time.
        """
        values = tuple(differences[: self.maximum])
        if ended and len(values) < 2:
            return Decision("undecided", len(values), None, None)
        last = len(values) if ended else self.maximum
        rule = replace(self, minimum=min(self.minimum, last), maximum=last)
        decision = rule._settle(values, self.maximum)
        if decision.verdict == "continue" or not with_interval:
            return decision
        return replace(decision, interval=_stopped_interval(rule, self.maximum, values[: decision.n]))

    def _settle(self, values: tuple[float, ...], planned: int) -> Decision:
        levels = _spent(self._looks, planned, self.maximum)
        flips = _SignFlips(values, self.maximum)
        bounds = _boundaries(self._looks, levels, ALPHA, sides=1)
        p: float | None = None
        for n, level, bound in zip(self._looks, levels, bounds, strict=True):
            if n > len(values):
                return Decision("continue", len(values), None, None)
            share, rejected = flips.look(n, level * self._level)
            p = min(
                1.0, share / (1 - KEPT_BACK)
            )  # so that it is at most alpha just where all that is spent is
            mean, error = float(np.mean(values[:n])), float(np.std(values[:n], ddof=1)) / np.sqrt(n)
            if abs(mean) + bound * error <= self.margin:
                return Decision("equivalent", n, p if n == self.maximum else None, None)
            if rejected:
                return Decision("a" if mean > 0 else "b", n, p, None)
        return Decision("undecided", len(values), p, None)

    @cached_property
    def _looks(self) -> tuple[int, ...]:
        return tuple(range(self.minimum, self.maximum + 1))

    def accepts(self, difference: float, values: Sequence[float], planned: int | None = None) -> bool:
        """Whether the 95% interval of values at which the study stopped has this difference in it."""
        above, below = self.tails(difference, values, planned)
        return min(above, below) > (1 - CONFIDENCE) / 2

    def tails(
        self, difference: float, values: Sequence[float], planned: int | None = None
    ) -> tuple[float, float]:
        """The chances, under a true difference, of a stopped statistic at least, and at most, as observed."""
        n, deviation = len(values), float(np.std(values, ddof=1))
        observed = (float(np.mean(values)) - difference) / (deviation / np.sqrt(n))
        look, _, _ = self._stop(difference / deviation, self.margin / deviation, planned or self.maximum)
        mean, error = _normal_paths(self._looks, STOPPED_PATHS)
        rows = np.arange(len(look))
        root = mean[rows, look] / error[rows, look]
        return float(np.mean(root >= observed)), float(np.mean(root <= observed))

    def _stop(
        self, effect: float, margin: float, planned: int
    ) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
        """Looks at which simulated studies stop, and whether there a winner, or equivalence, is found.

        The sign flips' boundary is that of t statistics which spends as much at the same looks: to follow all
        signings of every simulated study would take hours. Effect and margin are in standard deviations.
        """
        inner, outer = self._simulated_boundaries(planned)
        mean, error = _normal_paths(self._looks, STOPPED_PATHS)
        distance = np.abs(mean + effect)
        equivalent = distance + inner * error <= margin
        wins = (distance >= outer * error) & ~equivalent
        stops = equivalent | wins
        stops[:, -1] = True
        look = stops.argmax(1)
        rows = np.arange(len(look))
        return look, wins[rows, look], equivalent[rows, look]

    def _simulated_boundaries(self, planned: int) -> tuple[Floats, Floats]:
        """Of equivalence and of a winner, in t statistics at each look."""
        levels = _spent(self._looks, planned, self.maximum)
        # While no signing is as rare as what may be spent, nothing can be.
        outer_levels = tuple(
            level if 2.0 ** (1 - n) <= level * self._level else 0.0
            for n, level in zip(self._looks, levels, strict=True)
        )
        inner = _boundaries(self._looks, levels, ALPHA, sides=1)
        outer = _boundaries(self._looks, outer_levels, self._level, sides=2)
        return np.array(inner), np.array(outer)

    @property
    def _level(self) -> float:
        """What naming a winner may spend in all."""
        return (1 - KEPT_BACK) * self.alpha / self.family_size

    def outlook(self, difference: float, deviation: float) -> Outlook:
        """What to expect of normal differences with this true mean and standard deviation."""
        effect = difference / deviation
        look, wins, equivalent = self._stop(effect, self.margin / deviation, self.maximum)
        above = _normal_paths(self._looks, STOPPED_PATHS)[0][np.arange(len(look)), look] + effect > 0
        return Outlook(
            a=float(np.mean(wins & above)),
            b=float(np.mean(wins & ~above)),
            equivalent=float(np.mean(equivalent)),
            pairs=float(np.mean(np.array(self._looks)[look])),
        )

    def minimum_detectable_effect(self, deviation: float = 1.0, wanted: float = POWER) -> float | None:
        """The smallest true difference that would be named with the power wanted; None where none can be."""
        if deviation == 0 or 2.0 ** (1 - self.maximum) > self._level:
            return None
        return smallest_with(lambda difference: self.outlook(difference, deviation).a, deviation, wanted)


@lru_cache(maxsize=1024)
def _stopped_interval(rule: Sequential, planned: int, values: tuple[float, ...]) -> Interval:
    """From the outermost differences that are not contradicted; see the module."""
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    if deviation == 0:
        return mean, mean
    error = deviation / np.sqrt(len(values))
    furthest = 3 * float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error

    def end(direction: int) -> float:
        def accepted(reach: float) -> bool:
            return rule.accepts(mean + direction * reach, values, planned)

        grid = np.linspace(0, furthest, 49)
        outermost = max((i for i, reach in enumerate(grid[:-1]) if accepted(reach)), default=0)
        low, high = grid[outermost], grid[outermost + 1]
        for _ in range(6):
            middle = (low + high) / 2
            low, high = (middle, high) if accepted(middle) else (low, middle)
        return mean + direction * float(high)

    return end(-1), end(+1)


def _spent(looks: tuple[int, ...], planned: int, last: int) -> tuple[float, ...]:
    """The share of the level that may be spent by each look; all of it by the last."""
    return tuple(1.0 if n == last else n / planned for n in looks)


class _SignFlips:
    """All signings of some differences, followed from look to look."""

    def __init__(self, differences: tuple[float, ...], maximum: int) -> None:
        signs = _signs(maximum)[: len(differences)]
        self._sums = np.abs(np.cumsum(signs * np.array(differences)[:, None], axis=0))
        self._alive = np.ones(signs.shape[1], dtype=bool)

    def look(self, n: int, level: float) -> tuple[float, bool]:
        """The stagewise p after n pairs, and whether the signing observed is rejected, by a level spent so far."""
        total = len(self._alive)
        sums = self._sums[n - 1, self._alive]
        gone = total - len(sums)
        allowed = int(level * total * (1 + 1e-12))
        p = (gone + int(np.count_nonzero(sums >= sums[0] * TIE))) / total  # 0 is the signing observed
        if p * total <= allowed:
            return p, True
        if allowed > gone:
            # As many of the largest as are allowed, but of sums that tie all or none.
            first_kept = np.partition(sums, gone - allowed - 1)[gone - allowed - 1]
            self._alive &= self._sums[n - 1] * TIE <= first_kept
        return p, False


@lru_cache(maxsize=16)
def _signs(maximum: int) -> Floats:
    """Signings, one a column, the observed one (all +) first; all begin with +, as |sum| is symmetric."""
    enumerated = np.array(list(product((1.0,), *[(1.0, -1.0)] * (min(maximum, ENUMERATED) - 1))))
    drawn = np.random.default_rng(0).choice((-1.0, 1.0), (len(enumerated), max(0, maximum - ENUMERATED)))
    drawn[0] = 1.0
    return np.ascontiguousarray(np.hstack([enumerated, drawn]).T)


@lru_cache(maxsize=16)
def _normal_paths(looks: tuple[int, ...], num_paths: int) -> tuple[Floats, Floats]:
    """Means and standard errors at each look of simulated standard normal pairs, [path, look]; mirrored in pairs."""
    values = np.random.default_rng(0).standard_normal((num_paths // 2, looks[-1]))
    n = np.array(looks)
    mean = np.cumsum(values, axis=1)[:, n - 1] / n
    variance = (np.cumsum(values**2, axis=1)[:, n - 1] - n * mean**2) / (n - 1)
    error = np.sqrt(variance / n)
    return np.vstack([mean, -mean]), np.vstack([error, error])


@lru_cache(maxsize=64)
def _boundaries(
    looks: tuple[int, ...], levels: tuple[float, ...], alpha: float, sides: int
) -> tuple[float, ...]:
    """What a t statistic must reach at each look to spend the level; infinite where nothing may be spent."""
    mean, error = _normal_paths(looks, BOUNDARY_PATHS)
    statistic = mean / error if sides == 1 else np.abs(mean / error)
    alive, bounds = np.ones(len(statistic), dtype=bool), []
    for look, level in enumerate(levels):
        found = np.sort(statistic[alive, look])
        budget = int(level * alpha * len(alive)) - int((~alive).sum())
        bounds.append(float(found[len(found) - budget]) if budget > 0 else float("inf"))
        alive &= statistic[:, look] < bounds[-1]
    return tuple(bounds)
