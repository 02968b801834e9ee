"""Successive halving inside one arm: what its trials reached at each rung, and which of them are among the best.

Both kinds keep a trial that is among the best ``1/reduction`` of those that have come to its rung, and neither waits
for a rung to be full (asynchronous successive halving, ASHA). *Stopping* decides when a trial comes to a rung: the
others stop there for good (as `optuna.pruners.SuccessiveHalvingPruner`). *Promotion* pauses every trial at every rung
and lets a paused one go on once it is among the best (Li et al. 2020, "A System for Massively Parallel Hyperparameter
Tuning", algorithm 2).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping


class Rungs:
    """The rungs below the whole budget.

    Args:
        rungs: how many.
        reduction: eta: of the trials at a rung, one in so many goes on.
        higher_is_better: of the values.
    """

    def __init__(self, rungs: int, reduction: int, *, higher_is_better: bool) -> None:
        self._reduction, self._sign = reduction, -1.0 if higher_is_better else 1.0
        self._best_first: list[list[tuple[float, int]]] = [[] for _ in range(rungs)]
        self.paused: dict[int, int] = {}
        """The trials that wait, and their rungs."""

    def arrive(self, number: int, rung: int, value: float) -> bool:
        """Take in what a trial reached at a rung; whether it goes on by the stopping kind's rule.

        Where fewer than ``reduction`` trials have come, only the best goes on.
        """
        values, entry = self._best_first[rung], (self._sign * value, number)
        insort(values, entry)
        last = values[max(1, len(values) // self._reduction) - 1]
        return bisect_left(values, (entry[0], -1)) <= bisect_left(values, (last[0], -1))

    def promotable(self) -> int | None:
        """The trial that goes on next by the promotion kind's rule; None: a new configuration comes next.

        The highest rung comes first, and at a rung the best.
        """
        return self._best_waiting(self._reduction)

    def furthest(self) -> int | None:
        """Of the trials that wait at the highest rung the best; None: none waits."""
        return self._best_waiting(1)

    def _best_waiting(self, reduction: int) -> int | None:
        """The best that waits at the highest rung where one of the best ``1/reduction`` does."""
        for rung in reversed(range(len(self._best_first))):
            values = self._best_first[rung]
            for _, number in values[: len(values) // reduction]:
                if self.paused.get(number) == rung:
                    return number
        return None

    def missing(self, coming: Mapping[int, int]) -> list[int]:
        """How many trials must still be sent to each rung before one of the last rung is promoted, at least.

        Args:
            coming: the trials that are on their way, by the rung that they come to next.
        """
        waiting, missing = Counter(self.paused.values()), []
        promotions = 1  # that the rung has still to yield
        for rung in reversed(range(len(self._best_first))):
            arrived = len(self._best_first[rung])
            if promotions:
                promotions += arrived - waiting[rung]
                promotions = max(0, self._reduction * promotions - arrived - coming.get(rung, 0))
            missing.append(promotions)
        return missing[::-1]
