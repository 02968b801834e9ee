"""Successive halving: which trials of an arm go on from a rung."""

from __future__ import annotations

from bisect import bisect_left, insort


class Rungs:
    """The scores of an arm's trials at each rung. A trial goes on while among the best ``1 / reduction``; the first
    always does."""

    def __init__(self, number: int, reduction: int, *, higher_is_better: bool) -> None:
        self._reduction, self._sign = reduction, -1.0 if higher_is_better else 1.0
        self._best_first: list[list[float]] = [[] for _ in range(number)]

    def goes_on(self, rung: int, score: float) -> bool:
        """Take in a trial's score at a rung; whether the trial is among the best there so far."""
        scores, loss = self._best_first[rung], self._sign * score
        insort(scores, loss)
        return bisect_left(scores, loss) < max(1, len(scores) // self._reduction)
