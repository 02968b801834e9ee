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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from orchestrator.analysis.statistics.paired import Interval
from orchestrator.analysis.statistics.planning import POWER
from orchestrator.config.confirmation import ALPHA

Floats = NDArray[np.float64]
Verdict = Literal["a", "b", "equivalent", "undecided", "continue"]

ENUMERATED = 13  # pairs up to which all signings are followed; beyond, each goes on with signs drawn at random
CONFIDENCE = 0.95  # of the interval

BOUNDARY_PATHS, STOPPED_PATHS = 100_000, 4096  # simulated studies, for boundaries and for stopped statistics
FOLLOWED, BATCH = 2048, 64  # simulated studies whose every signing is followed, for what to expect; how many at once

MARGIN_STEP = 0.2
"""In deviations. Detectable effects are found at such margins only, and interpolated between them: as a study's
deviation changes with every pair that is added, most of them are at hand."""

KEPT_BACK = 0.15
"""Share of alpha that is not spent: for what drawn signings miss of all of them, and because differences that are
skewed where there is none (arms with skewed noise of unequal size) are named more often than symmetric ones."""

TIE = 1 - 1e-12  # sums that differ by less are the same sum in another order


@dataclass(frozen=True)
class Decision:
    """What the pairs so far say."""

    verdict: Verdict
    """``a``: the differences are positive, ``b``: negative; ``continue``: a pair is wanted, ``undecided``: none."""
    n: int  # pairs that the verdict rests on: those up to the look that settled it
    p: float | None
    """Stagewise, for this pair of arms alone. None before the end, and where equivalence ended it early: the
    chance of naming a winner was then not spent."""
    interval: Interval | None  # of the difference, 95%. None before the end


@dataclass(frozen=True)
class Sequential:
    """The stopping rule of one pair of arms.

    Args:
        minimum: pairs at the first look, at least 2.
        maximum: pairs at the last.
        margin: of equivalence; 0 for none.
        family_size: pairs of arms that the study compares; each may spend its share of the level, 5%.
        ended_at: pairs at the last look where no more come (:meth:`decide` sets it); None: the maximum.
    """

    minimum: int
    maximum: int
    margin: float
    family_size: int = 1
    ended_at: int | None = None

    def decide(self, differences: Sequence[float], ended: bool = False, with_interval: bool = True) -> Decision:
        """The verdict of the first look that has one; differences beyond it, and runs that fail, change nothing.

        Args:
            differences: A's yardstick minus B's, higher being better, in the order of the seeds.
            ended: no further pair will come, though there are fewer than the maximum (runs failed): where no look
                has had a verdict, the last one is taken again, and spends what is left.
            with_interval: whether to work out the interval, which takes most of the time.
        """
        values = tuple(differences[: self.maximum])
        rule, decision = self, self._settle(values)
        if decision.verdict == "continue" and ended:
            if len(values) < 2:
                return Decision("undecided", len(values), None, None)
            rule = replace(self, ended_at=len(values))
            decision = rule._settle(values)
        if decision.verdict == "continue" or not with_interval:
            return decision
        return replace(decision, interval=_stopped_interval(rule, values[: decision.n]))

    def _settle(self, values: tuple[float, ...]) -> Decision:
        (verdict,), (n,), (share,) = self._follow(np.array([values]))
        if verdict == "continue":
            return Decision("continue", len(values), None, None)
        tested = verdict != "equivalent" or n == self._last
        # So that p is at most alpha just where all that is spent is.
        p = min(1.0, float(share) / (1 - KEPT_BACK)) if tested else None
        return Decision(verdict, int(n), p, None)

    def _follow(self, values: Floats) -> tuple[NDArray[np.object_], NDArray[np.intp], Floats]:
        """Verdicts of some studies by their differences, [study, pair]; pairs up to the look that settled each;
        stagewise shares of signings."""
        num_studies, given = values.shape
        verdicts = np.full(num_studies, "undecided" if given >= self._last else "continue", dtype=object)
        pairs, shares = np.full(num_studies, given), np.ones(num_studies)
        going, flips = np.arange(num_studies), _SignFlips(num_studies, self.maximum)
        bounds = dict(zip(self._looks, self._equivalence_bounds, strict=True))
        for n in range(1, min(given, self._last) + 1):
            flips.add(values[going, n - 1])
            if n not in bounds:
                continue
            shares[going], rejected = flips.look(self._spent(n) * self._level)
            so_far = values[going, :n]
            mean, error = so_far.mean(1), so_far.std(1, ddof=1) / np.sqrt(n)
            equivalent = np.abs(mean) + bounds[n] * error <= self.margin
            verdicts[going[rejected]] = np.where(mean > 0, "a", "b")[rejected]
            verdicts[going[equivalent]] = "equivalent"
            pairs[going], goes_on = n, ~(equivalent | rejected)
            going = going[goes_on]
            flips.keep(goes_on)
        pairs[going] = given
        return verdicts, pairs, shares

    @property
    def _last(self) -> int:
        return self.maximum if self.ended_at is None else self.ended_at

    @cached_property
    def _looks(self) -> tuple[int, ...]:
        return tuple(range(min(self.minimum, self._last), self._last + 1))

    def _spent(self, n: int) -> float:
        """The share of the level that may be spent by n pairs; all of it by the last."""
        return 1.0 if n == self._last else n / self.maximum

    @property
    def _equivalence_bounds(self) -> tuple[float, ...]:
        """In t statistics, at each look."""
        levels = tuple(self._spent(n) for n in self._looks)
        return _boundaries(self._looks, self.maximum, levels, ALPHA, sides=1)

    def accepts(self, difference: float, values: Sequence[float]) -> bool:
        """Whether the 95% interval of values at which the study stopped has this difference in it: under it a stopped
        statistic as high as observed is likely enough, and one as low."""
        n, deviation = len(values), float(np.std(values, ddof=1))
        observed = (float(np.mean(values)) - difference) / (deviation / np.sqrt(n))
        look = self._stop(difference / deviation, self.margin / deviation)
        mean, error = _normal_paths(self._looks, self.maximum, STOPPED_PATHS)
        rows = np.arange(len(look))
        root = mean[rows, look] / error[rows, look]
        return bool(min(np.mean(root >= observed), np.mean(root <= observed)) > (1 - CONFIDENCE) / 2)

    def _stop(self, effect: float, margin: float) -> NDArray[np.intp]:
        """Looks at which simulated studies stop; effect and margin in standard deviations. The sign flips' boundary is
        that of t statistics which spends as much: to follow all signings under each difference takes minutes."""
        # While no signing is as rare as what may be spent, nothing can be.
        levels = tuple(self._spent(n) if 2.0 ** (1 - n) <= self._spent(n) * self._level else 0.0 for n in self._looks)
        inner = np.array(self._equivalence_bounds)
        outer = np.array(_boundaries(self._looks, self.maximum, levels, self._level, sides=2))
        mean, error = _normal_paths(self._looks, self.maximum, STOPPED_PATHS)
        distance = np.abs(mean + effect)
        stops = (distance + inner * error <= margin) | (distance >= outer * error)
        stops[:, -1] = True
        look: NDArray[np.intp] = stops.argmax(1)
        return look

    @property
    def _level(self) -> float:
        """What naming a winner may spend in all."""
        return (1 - KEPT_BACK) * ALPHA / self.family_size

    def _simulate(self, studies: Floats) -> NDArray[np.object_]:
        """Verdicts of many studies, a batch of them that a processor's cache holds after another."""
        batches = (studies[start : start + BATCH] for start in range(0, len(studies), BATCH))
        return np.concatenate([self._follow(batch)[0] for batch in batches])

    def minimum_detectable_effect(self, deviation: float = 1.0) -> float | None:
        """The smallest true difference that would be named with a chance of 80%; None where none can be."""
        if deviation == 0 or 2.0 ** (1 - min(self.maximum, ENUMERATED)) > self._level:
            return None
        steps = self.margin / deviation / MARGIN_STEP
        around = (np.floor(steps), np.ceil(steps))
        effects = [_detectable_effect(replace(self, margin=step * MARGIN_STEP)) for step in around]
        return deviation * float(np.interp(steps, around, effects))


@lru_cache(maxsize=256)
def _detectable_effect(rule: Sequential) -> float:
    """In standard deviations, to 1/500: the range in which it lies is halved, always with the same studies. Nearly all
    that name the arm at some effect do so at larger ones: only those are followed again that differ at the two ends."""
    studies = _normal_studies(rule.maximum)
    needed = POWER * len(studies)
    # With as many pairs no test needs less, were the deviation known.
    low = float(special.ndtri(1 - rule._level / 2) + special.ndtri(POWER)) / np.sqrt(rule.maximum)
    high, tried = np.inf, 1.1 * low
    # Where a margin dwarfs the deviation, the numbers themselves are not as fine as that.
    while high - low > max(1 / 500, low * 1e-12):
        named = rule._simulate(studies + tried) == "a"
        if named.sum() >= needed:
            high, studies = tried, studies[named]
        else:
            low, studies, needed = tried, studies[~named], needed - named.sum()
        tried = 1.25 * low if high == np.inf else (low + high) / 2
    return high


@lru_cache(maxsize=1024)
def _stopped_interval(rule: Sequential, values: tuple[float, ...]) -> Interval:
    """From the outermost differences that are not contradicted; see the module."""
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))
    if deviation == 0:
        return mean, mean
    error = deviation / np.sqrt(len(values))
    furthest = 3 * float(special.stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * error

    def end(direction: int) -> float:
        def accepted(reach: float) -> bool:
            return rule.accepts(mean + direction * reach, values)

        grid = np.linspace(0, furthest, 49)
        outermost = max((i for i, reach in enumerate(grid[:-1]) if accepted(reach)), default=0)
        low, high = grid[outermost], grid[outermost + 1]
        for _ in range(6):
            middle = (low + high) / 2
            low, high = (middle, high) if accepted(middle) else (low, middle)
        return mean + direction * float(high)

    return end(-1), end(+1)


class _SignFlips:
    """All signings of the differences of some studies, followed from look to look."""

    def __init__(self, num_studies: int, maximum: int) -> None:
        self._signs = iter(_signs(maximum))
        self._sums = np.zeros((num_studies, 1))  # by study and signing, the observed first; infinite once rejected

    def add(self, differences: Floats) -> None:
        """The next pair of each study."""
        signs = next(self._signs)
        if len(signs) > self._sums.shape[1]:
            self._sums = self._sums.repeat(2, axis=1)
        self._sums += signs * differences[:, None]

    def look(self, level: float) -> tuple[Floats, NDArray[np.bool_]]:
        """The stagewise p now, and whether the signing observed is rejected, by a level spent so far."""
        sums = np.abs(self._sums)
        total = sums.shape[1]
        allowed = int(level * total * (1 + 1e-12))
        extreme = np.count_nonzero(sums >= sums[:, :1] * TIE, axis=1)
        # As many of the largest as are allowed, but of sums that tie all or none.
        first_kept = np.partition(sums, total - allowed - 1, axis=1)[:, total - allowed - 1]
        np.putmask(self._sums, sums > first_kept[:, None] / TIE, np.inf)
        return extreme / total, extreme <= allowed

    def keep(self, studies: NDArray[np.bool_]) -> None:
        self._sums = self._sums[studies]


@lru_cache(maxsize=16)
def _signs(maximum: int) -> tuple[Floats, ...]:
    """For each pair, its signs in all signings of the pairs so far, in the order in which those branch. The observed
    one (all +) is the first, and all begin with +, as |sum| is symmetric."""
    enumerated = min(maximum, ENUMERATED)
    branching = [np.tile((1.0, -1.0), 2 ** (n - 1)) for n in range(1, enumerated)]
    shape = (2 ** (enumerated - 1), maximum - enumerated)
    drawn = np.random.default_rng(0).choice((-1.0, 1.0), shape)
    drawn[0] = 1.0
    return (np.ones(1), *branching, *np.ascontiguousarray(drawn.T))


@lru_cache(maxsize=16)
def _normal_studies(maximum: int) -> Floats:
    """Standard normal pairs of simulated studies, [study, pair], by a scrambled Sobol sequence: their shares are as
    exact as those of some three times as many drawn independently."""
    from scipy.stats import qmc  # a second to import

    sobol = qmc.MultivariateNormalQMC(np.zeros(maximum), rng=np.random.default_rng(0))
    return np.asarray(sobol.random(FOLLOWED), dtype=np.float64)


@lru_cache(maxsize=16)
def _normal_paths(looks: tuple[int, ...], maximum: int, num_paths: int) -> tuple[Floats, Floats]:
    """Means and standard errors at each look of simulated standard normal pairs, [path, look]; mirrored in pairs."""
    values = np.random.default_rng(0).standard_normal((num_paths // 2, maximum))
    n = np.array(looks)
    mean = np.cumsum(values, axis=1)[:, n - 1] / n
    variance = (np.cumsum(values**2, axis=1)[:, n - 1] - n * mean**2) / (n - 1)
    error = np.sqrt(variance / n)
    return np.vstack([mean, -mean]), np.vstack([error, error])


@lru_cache(maxsize=64)
def _boundaries(
    looks: tuple[int, ...], maximum: int, levels: tuple[float, ...], alpha: float, sides: int
) -> tuple[float, ...]:
    """What a t statistic must reach at each look to spend the level; infinite where nothing may be spent."""
    mean, error = _normal_paths(looks, maximum, BOUNDARY_PATHS)
    statistic = mean / error if sides == 1 else np.abs(mean / error)
    alive, bounds = np.ones(len(statistic), dtype=bool), []
    for look, level in enumerate(levels):
        found = np.sort(statistic[alive, look])
        budget = int(level * alpha * len(alive)) - int((~alive).sum())
        bounds.append(float(found[len(found) - budget]) if budget > 0 else float("inf"))
        alive &= statistic[:, look] < bounds[-1]
    return tuple(bounds)
