"""The rule by which two arms are told apart: after a fixed number of pairs, or looking after each.

With a fixed number there is one look, at all pairs. Adaptive stopping looks after every pair from the minimum to the
maximum, and stops at the first look with a verdict. By n pairs, n / maximum of the level may have been spent (Lan &
DeMets 1983, "Discrete sequential boundaries for clinical trials"; Kim & DeMets 1987); the last look spends all of it.
The level left at each look is found by simulation of normal pairs and asked of the p-value, whatever its degrees of
freedom (:mod:`orchestrator.analysis.statistics.evidence`). Text is the same at all looks, so that its part of the
chance makes them more alike, and the whole spends less than it may.

- A winner: p is at most the level of the look. The interval is that of the same level and look, so that it leaves out 0
  just where there is a winner (repeated confidence intervals, Jennison & Turnbull 1989, "Interim analyses").
- Equivalence: two one-sided tests (Schuirmann 1987), each with a level of the look's, find the difference within the
  margin. It goes before a winner: a difference too small to matter is no win.

p is stagewise (Tsiatis, Rosner & Mehta 1984): the chance, without a difference, of an earlier stop or of a statistic as
far from 0 at this look. Where it stopped for equivalence it is that of the look, in proportion to its
level (repeated p-values, Jennison & Turnbull 1989): so it is at most 5% just where the interval leaves out 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from orchestrator.analysis.statistics.evidence import Evidence, Floats, Interval, of_first
from orchestrator.config.confirmation import ALPHA

Verdict = Literal["a", "b", "equivalent", "undecided", "continue"]

Withheld = Literal["floor", "broken", "sensitivity", "boundary"]
"""Why what was found is no verdict: neither arm is surely above its floors; the arm that would win diverged or
failed at more than half of its seeds, or two that would be equivalent at different numbers of seeds, or at more than
half; the yardstick does not tell arms that would be equivalent from themselves half way through their budget; an arm's
best configuration lies at a bound of its search."""

PATHS = 100_000  # simulated studies, for the levels of looks
MOST_NUMBERS = 20_000_000  # drawn for them: of a thousand pairs there are a fifth as many studies

FEWEST, FEWEST_EQUIVALENT = 4, 6
"""Pairs from which on an arm can be named, and arms be called equivalent."""

Verdicts = NDArray[np.object_]


def kept_back(pairs: int, family_size: int) -> float:
    """The share of every level that is not spent where the first look is at so many pairs. Few skewed or tied
    differences, and degrees of freedom that are estimated, give t tests more than their level, and the more the smaller
    it is: up to 6.9% where 5% were meant; with this at most 5.5% (benchmarks/calibration.py)."""
    return 0.25 if pairs < 5 or family_size > 3 else 0.15


class Decision(NamedTuple):
    """What the pairs so far say."""

    verdict: Verdict
    """``a``: the difference is positive, ``b``: negative; ``continue``: a pair is wanted; ``undecided``: none."""
    evidence: Evidence
    """Of the look that settled it, else of the last one."""
    p: float | None
    """Adjusted for the family; at most 5% just where the difference is told from 0. None before the end."""
    interval: Interval | None
    """Of the difference, 95% over all looks and pairs of arms. None before the end."""
    withheld: Withheld | None = None
    """Why what the last look found is no verdict."""
    ended_early: bool = False
    """Whether no look that was planned settled it and no further pair will come, so that it was judged at the last
    there is."""


@dataclass(frozen=True)
class Rule:
    """How the verdict on a pair of arms is found.

    Args:
        minimum: pairs at the first look, at least 2.
        maximum: pairs at the last; the same where their number is fixed.
        margin: of equivalence; 0 for none.
        family_size: pairs of arms that the study compares; each may spend its share of the level, 5% (Bonferroni).
    """

    minimum: int
    maximum: int
    margin: float
    family_size: int = 1

    @property
    def looks(self) -> tuple[int, ...]:
        """Pairs at each; none where the maximum is too few for a verdict."""
        first = max(min(self.minimum, self.maximum), FEWEST)
        return tuple(range(first, self.maximum + 1))

    @cached_property
    def levels(self) -> Floats:
        """Of each look, for p of two sides."""
        return _levels(self.looks, 2, self._level)

    @cached_property
    def equivalence_levels(self) -> Floats:
        """Of each look, for each of two tests of one side. They are not shared by the family: to say that arms are
        equivalent, all tests must agree."""
        looks = tuple(n for n in self.looks if n >= FEWEST_EQUIVALENT)
        return np.concatenate([np.zeros(len(self.looks) - len(looks)), _levels(looks, 1, self._spendable)])

    @cached_property
    def gate_levels(self) -> Floats:
        """Of each look, for a test of one side without which there is no verdict: asked again at each look, it would
        pass too often at 5%."""
        return _levels(self.looks, 1, self._spendable)

    @property
    def _spendable(self) -> float:
        return (1 - kept_back(self.looks[0], self.family_size)) * ALPHA if self.looks else 0.0

    @property
    def _level(self) -> float:
        return self._spendable / self.family_size

    def decide(
        self,
        evidence: Callable[[int], Evidence],
        pairs: int,
        *,
        ended: bool = False,
        withheld: Callable[[int, Verdict, float], Withheld | None] = lambda n, verdict, level: None,
        margin: Callable[[int], float] | None = None,
        from_pairs: int = 0,
    ) -> Decision:
        """The verdict of the first look that has one: pairs beyond it change nothing. ``evidence`` is of the first n of
        them, ``withheld`` why a verdict on these is none, so that the next look is waited for (its own tests, of one
        side, have the level that it is given), and ``margin`` the one
        that they imply, if not the rule's. Once ``ended`` no further one will come: fewer than the maximum are looked
        at once more as if they were it. Looks at fewer than ``from_pairs`` are over."""
        pairs = min(pairs, self.maximum)
        for look, n in enumerate(self.looks):
            if n > pairs:
                break
            if n < from_pairs:
                continue
            found = evidence(n)
            rule = self if margin is None else replace(self, margin=margin(n))
            verdict: Verdict = rule.verdicts(found, look).item()
            gate = float(self.gate_levels[look])
            reason = withheld(n, verdict, gate) if verdict in ("a", "b", "equivalent") else None
            if reason is not None and verdict == "equivalent":  # what cannot be called equivalent may differ
                differs: Verdict = replace(self, margin=0.0).verdicts(found, look).item()
                if differs in ("a", "b") and withheld(n, differs, gate) is None:
                    verdict, reason = differs, None
            if reason is not None:
                verdict = "undecided" if n == self.maximum else "continue"
            if verdict != "continue":
                level = float(self.levels[look])
                share = _stagewise(self.looks, look, self._level, float(found.p())) / self._level
                if verdict == "equivalent" and level > 0:  # it did not stop for a winner: of this look alone
                    share = float(found.p()) / level
                interval = found.interval(level) if level > 0 else None  # none may be named at this look
                return Decision(verdict, found, min(1.0, ALPHA * share), interval, reason)
        if ended and pairs < self.maximum:
            last = replace(self, maximum=pairs)
            decision = last.decide(evidence, pairs, ended=True, withheld=withheld, margin=margin, from_pairs=pairs)
            return decision._replace(ended_early=True)
        return Decision("undecided" if ended else "continue", evidence(pairs), None, None)

    def verdicts(self, found: Evidence, look: int) -> Verdicts:
        """Of one look at one or many studies."""
        last = look == len(self.looks) - 1
        named = (np.abs(found.mean) >= found.reach(float(self.levels[look]))) & (found.mean != 0)
        verdict = np.where(found.mean > 0, "a", "b").astype(object)
        verdict = np.where(named, verdict, "undecided" if last else "continue")
        if self.margin == 0:
            return verdict
        reach = found.reach(2 * float(self.equivalence_levels[look]))
        return np.where(np.abs(found.mean) + reach <= self.margin, "equivalent", verdict)


def _levels(looks: tuple[int, ...], sides: int, level: float) -> Floats:
    """The level of each look's own test that spends what may be spent by then."""
    return _simulated(looks, sides, level)[0] if len(looks) > 1 else np.full(len(looks), level)


@lru_cache(maxsize=8)
def _simulated(looks: tuple[int, ...], sides: int, level: float) -> tuple[Floats, list[NDArray[np.float32]]]:
    """These levels, and at each look the statistics of the studies without a difference that go on to it, ascending."""
    statistic, levels, alive = _statistics(looks), [], []
    paths = len(statistic)
    if sides == 2:
        statistic = np.abs(statistic)
    for look, n in enumerate(looks):
        statistic = statistic[np.argsort(statistic[:, look], kind="stable")]
        own = statistic[:, look].copy()
        may_stop = max(int(n / looks[-1] * level * paths) - (paths - len(own)), 0)
        levels.append(sides * float(special.stdtr(n - 1, -own[-may_stop])) if may_stop else 0.0)
        alive.append(own)
        statistic = statistic[: len(own) - may_stop]
    return np.array(levels), alive


@lru_cache(maxsize=2)
def _statistics(looks: tuple[int, ...]) -> NDArray[np.float32]:
    """t at each look of simulated standard normal pairs, (paths, looks); mirrored."""
    shape = min(PATHS, MOST_NUMBERS // looks[-1]) // 2, looks[-1]
    mean, variance = of_first(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    at = np.array(looks) - 1
    statistic = mean[:, at] / np.sqrt(variance[:, at])
    return np.concatenate([statistic, -statistic]).astype(np.float32)


def _stagewise(looks: tuple[int, ...], look: int, level: float, p: float) -> float:
    """The chance, without a difference, of an earlier stop or of a p as small at this look."""
    if len(looks) == 1:
        return p
    alive = _simulated(looks, 2, level)[1]
    short_of_it = np.searchsorted(alive[look], special.stdtrit(looks[look] - 1, 1 - p / 2), side="left")
    return max(p, float(1 - short_of_it / len(alive[0])))  # paths are too few for a small one
