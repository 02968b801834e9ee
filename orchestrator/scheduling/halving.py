"""Successive halving inside one arm: which of its trials goes on, and when a new one begins.

A trial stops at each rung unless it is the next to go on; a stopped one may be taken up again from its checkpoint. Of
the trials that came to a rung the best ``1 / reduction`` go on, so none does before ``reduction`` are there: the rule
of asynchronous halving (Li et al. 2020, arXiv 1810.05934, algorithm 2), the first configuration under it like any
other. What follows is ours: so much of the budget is kept back that the best of the stopped trials can be run to the
end. When no other step fits beside that, and nothing runs, it is.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import NamedTuple

from orchestrator.config.search import HalvingSpec
from orchestrator.ledger.records import BROKEN, AttemptOutcome


class Step(NamedTuple):
    """What an arm's search does next."""

    number: int | None
    """The trial that goes on to its next rung; None: a new one begins."""
    most: float
    """What it may come to: all of the trial that is left, in trial budgets."""


Pays = Callable[[float, float | None], bool]
"""``pays(cost, kept)``: whether a step's cost is paid for with so much kept back, both in trial budgets; ``kept`` is
None for a step without which the search ends with fewer completed trials than are wanted."""


class Halving:
    """One arm's trials at their rungs, as a function of what happened in its search, in order.

    Args:
        spec: the rungs.
        wanted: completed trials that the search is to end with, at least.
        higher_is_better: of the scores.
    """

    def __init__(self, spec: HalvingSpec, wanted: int, *, higher_is_better: bool) -> None:
        self._reduction, self._sign = spec.reduction, -1.0 if higher_is_better else 1.0
        self._ends = *spec.fractions, 1.0
        self._wanted, self._completed = wanted, 0
        self._best_first: list[list[tuple[float, int]]] = [[] for _ in spec.fractions]  # (loss, number), at each rung
        self._losses: list[dict[int, float]] = [{} for _ in spec.fractions]
        self._stopped: dict[int, int] = {}  # by number, the rung
        self._reach: dict[int, float] = {}  # of trials that may come further: where they next stop, or did
        self._ended = 0.0  # what those came to that may not
        self._overshoot = 0.0  # the most by which a trial was beyond its rung when it got there: a part of a step
        self._foreseen: dict[int, float] = {}  # by how much those that run were thought to be, when they set out
        self.unforeseen = 0.0
        """By how much all together have been beyond that, in trial budgets."""

    @property
    def committed(self) -> float:
        """What the trials have spent, and will until they come to their next rungs, in trial budgets."""
        may_overshoot = sum(number not in self._stopped and reach < 1.0 for number, reach in self._reach.items())
        return self._ended + sum(self._reach.values()) + may_overshoot * self._overshoot

    def begin(self, number: int) -> None:
        """A new trial runs to the first rung."""
        self._reach[number], self._foreseen[number] = self._ends[0], self._overshoot

    def arrive(self, number: int, rung: int, score: float, progress: float) -> None:
        """A trial comes to a rung, and stops there unless it goes on at once."""
        if number not in self._losses[rung]:
            self._losses[rung][number] = self._sign * score
            insort(self._best_first[rung], (self._sign * score, number))
        overshoot = max(0.0, progress - self._ends[rung])
        self._overshoot = max(self._overshoot, overshoot)
        self.unforeseen += max(0.0, overshoot - self._foreseen.get(number, overshoot))
        self._stopped[number], self._reach[number] = rung, progress

    def has_stopped(self, number: int) -> bool:
        """Whether a trial waits at a rung."""
        return number in self._stopped

    def go_on(self, number: int) -> None:
        """A stopped trial runs to its next rung."""
        self._reach[number] = self._ends[self._stopped.pop(number) + 1]
        self._foreseen[number] = self._overshoot

    def end(self, number: int, outcome: AttemptOutcome, progress: float) -> None:
        """An attempt at a trial ended. One that was pruned has stopped at a rung."""
        if outcome in ("completed", "lost", *BROKEN):
            self._stopped.pop(number, None)
            self._reach.pop(number, None)
            self._ended += progress
            self._completed += outcome == "completed"

    def next_step(self, pays: Pays, *, may_begin: bool) -> Step | None:
        """What to do next; None where nothing is paid for. ``may_begin``: whether there may be new trials."""
        for number in self._explored(may_begin):
            if pays(self._cost(number), self._kept_back(number)):
                return self._step(number)
        if len(self._reach) > len(self._stopped):  # what runs may be better than the best of those that stopped
            return None
        best = min(self._stopped, key=lambda n: (-self._stopped[n], self._losses[self._stopped[n]][n], n), default=None)
        if best is not None and pays(1.0 - self._reach[best], None if self._completed < self._wanted else 0.0):
            return self._step(best)
        # No stopped trial can be run to the end: what is left goes as far as it pays for.
        return next((self._step(n) for n in self._explored(may_begin) if pays(self._cost(n), 0.0)), None)

    def _explored(self, may_begin: bool) -> Iterator[int | None]:
        """The trials that are to go on, from the last rung down and the best first; then a new one."""
        for rung in reversed(range(len(self._best_first))):
            there = self._best_first[rung]
            for _, number in there[: len(there) // self._reduction]:
                if self._stopped.get(number) == rung:
                    yield number
        if may_begin:
            yield None

    def _target(self, number: int | None) -> float:
        return self._ends[0 if number is None else self._stopped[number] + 1]

    def _cost(self, number: int | None) -> float:
        """Of going on to the next rung, at most: where a step's cost is known afterwards it may end beyond."""
        target, reached = self._target(number), 0.0 if number is None else self._reach[number]
        return target - reached + (self._overshoot if target < 1.0 else 0.0)

    def _step(self, number: int | None) -> Step:
        return Step(number, 1.0 if number is None else 1.0 - self._reach[number])

    def _kept_back(self, number: int | None) -> float:
        """What it will take, after such a step, to end with the trials that are wanted; or with one more."""
        after = [self._target(number), *(reached for other, reached in self._reach.items() if other != number)]
        wanted = max(1, self._wanted - self._completed)
        owed = nsmallest(wanted, (1.0 - reached for reached in after))
        return sum(owed) + wanted - len(owed)
