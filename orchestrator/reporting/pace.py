"""How fast things go, and how long they will take still: from what was measured, so nothing before it was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from orchestrator.ledger.history import History
from orchestrator.ledger.spending import Attempt
from orchestrator.ledger.trials import TrialHistory
from trainables.training.config import Unit

RECENT = 5  # reports over which a trial's pace is taken
RECENT_ATTEMPTS = 8  # of an arm, over which the time that a run takes is taken


SILENT_SECONDS = 120  # a study that has not been heard of for so long, though it is not done, is said to be silent


def silent_seconds(history: History, now: float) -> float | None:
    """For how long nothing was heard of a study that does not rest: its process may be gone. None where that is not
    long."""
    silent = now - history.updated
    return silent if history.study is not None and not history.rests and silent > SILENT_SECONDS else None


class Left(NamedTuple):
    """What a study takes still."""

    seconds: float
    at_most: bool
    """Whether it may be answered sooner, by adaptive stopping."""


def per_second(trial: TrialHistory, unit: Unit) -> float | None:
    """What a trial spends a second, over the last reports of the attempt that runs; None before there are two."""
    own = takewhile(lambda measure: measure.attempt == trial.attempts, reversed(trial.measures))
    recent = list(islice(own, RECENT))
    seconds = recent[0].time - recent[-1].time if recent else 0.0
    if seconds <= 0:
        return None
    return (recent[0].spent.get(unit, 0.0) - recent[-1].spent.get(unit, 0.0)) / seconds


class Pace:
    """How fast a study goes, by its last record."""

    def __init__(self, history: History) -> None:
        self._history, self._unit = history, history.design.unit
        self._running = [trial for trial in history.trials.values() if trial.runs]
        known = {arm: _seconds_each(history, arm) for arm in history.design.arms}
        measured = [seconds for seconds in known.values() if seconds is not None]
        others = sum(measured) / len(measured) if measured else None
        self._seconds_each = {arm: others if seconds is None else seconds for arm, seconds in known.items()}

    def trial_seconds_left(self, trial: TrialHistory) -> float | None:
        """Until a running trial has spent its budget: at its own pace and, before that is known, at that of its arm's
        runs before it; None where neither is. A search may stop it sooner."""
        left = max(0.0, trial.amount - trial.spent.get(self._unit, 0.0))
        if pace := per_second(trial, self._unit):
            return left / pace
        each = self._seconds_each[trial.arm]
        return None if each is None else left * each

    def study_left(self) -> Left | None:
        """Until the search's budgets and the planned confirmation runs are spent, by the time that runs of each arm
        take, with their starts and evaluations, and as many side by side as lately; None where that is not known, or
        nothing runs. Branches count once one has ended, fine-tuning does not."""
        history = self._history
        if not self._running or history.finished:
            return None
        work = 0.0
        for arm in history.design.arms:
            each = self._seconds_each[arm]
            if each is None:
                return None
            work += each * _budget_left(history, arm) + _branches_left(history, arm)
        longest = max(self.trial_seconds_left(trial) or 0.0 for trial in self._running)
        confirms = history.phases.get("confirm") != "end"
        return Left(max(work / _side_by_side(history), longest), confirms and history.design.minimum_seeds is not None)


def _seconds_each(history: History, arm: str) -> float | None:
    """Seconds that a unit of an arm's budget takes: by its last attempts that ended, with all that they took beside
    their steps; before any has, by the pace of those that run."""
    unit = history.design.unit
    trials = [trial for trial in history.trials.values() if trial.arm == arm]
    ended = [attempt for trial in trials for attempt in trial.attempt_records if attempt.ended is not None]
    recent = sorted(ended, key=lambda attempt: attempt.ended or 0.0)[-RECENT_ATTEMPTS:]
    spent = sum(attempt.reached.get(unit, 0.0) - attempt.start.get(unit, 0.0) for attempt in recent if attempt.reached)
    if spent > 0:
        return sum(_seconds(attempt) for attempt in recent if attempt.reached) / spent
    paces = [pace for trial in trials if trial.runs and (pace := per_second(trial, unit))]
    return len(paces) / sum(paces) if paces else None


def _seconds(attempt: Attempt) -> float:
    """That an attempt had a place."""
    return max(0.0, (attempt.ended or 0.0) - attempt.asked - (attempt.placement_seconds or 0.0))


def _budget_left(history: History, arm: str) -> float:
    design, left = history.design, 0.0
    if history.phases.get("search") != "end":
        left += max(0.0, design.search_budget * design.amount - history.spent("search", arm, design.unit))
    if history.phases.get("confirm") != "end":
        spent = sum(
            trial.amount if trial.outcome is not None else trial.spent.get(design.unit, 0.0)
            for trial in history.trials_of("confirm", arm)
            if trial.amount == design.confirm_amount
        )
        left += max(0.0, design.confirm_amount * history.planned_seeds - spent)
    return left


def _branches_left(history: History, arm: str) -> float:
    """Seconds that the branches to come take, one after the other, by those that have ended."""
    branches = history.trials_of("anytime", arm)
    took = [sum(map(_seconds, branch.attempt_records)) for branch in branches if branch.outcome is not None]
    planned = len(history.design.anytime) * sum(run.outcome == "completed" for run in history.trials_of("confirm", arm))
    return max(0, planned - len(took)) * sum(took) / len(took) if took else 0.0


def _side_by_side(history: History) -> int:
    """How many attempts run at once: now, or when one of the last began, whichever is more. Of those before the last
    session other machines may have had the work."""
    since = 0.0 if history.study is None else history.study.time
    attempts = [attempt for attempt in _placed(history) if attempt.asked >= since]
    moments = sorted(attempt.asked for attempt in attempts)[-RECENT_ATTEMPTS:]
    counts = (
        sum(a.asked <= moment and (a.ended is None or a.ended > moment) for a in attempts)
        for moment in (*moments, history.updated)
    )
    return max(1, *counts)


def _placed(history: History) -> Iterator[Attempt]:
    """Attempts that had a place."""
    for trial in history.trials.values():
        for attempt in trial.attempt_records:
            if attempt.begun is not None or attempt.reached:
                yield attempt
