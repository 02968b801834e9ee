"""How fast things go, and how long they will take still: from what was measured, so nothing before it was."""

from __future__ import annotations

from orchestrator.ledger.history import History
from orchestrator.ledger.trials import TrialHistory
from trainables.training.config import Unit

RECENT = 5  # reports over which a trial's pace is taken


def per_second(trial: TrialHistory, unit: Unit) -> float | None:
    """What a trial spends a second, over the last reports of the attempt that runs; None before there are two."""
    recent = [measure for measure in trial.measures if measure.attempt == trial.attempts][-RECENT:]
    seconds = recent[-1].time - recent[0].time if recent else 0.0
    if seconds <= 0:
        return None
    return (recent[-1].spent.get(unit, 0.0) - recent[0].spent.get(unit, 0.0)) / seconds


def seconds_left(trial: TrialHistory, unit: Unit) -> float | None:
    """Until a running trial has spent its budget, at its pace; None where that is not known. A search may stop it
    sooner."""
    pace = per_second(trial, unit)
    return None if not pace else max(0.0, trial.amount - trial.spent.get(unit, 0.0)) / pace


def study_seconds_left(history: History) -> float | None:
    """Until the search's budgets and the planned confirmation runs are spent, at the pace of all trials that run now;
    None where that is not known. Adaptive stopping may need less, branches are not counted."""
    design = history.design
    running = [trial for trial in history.trials.values() if trial.runs]
    pace = sum(per_second(trial, design.unit) or 0.0 for trial in running)
    if not pace or history.finished:
        return None
    left = 0.0
    for arm in design.arms:
        if history.phases.get("search") != "end":
            left += max(0.0, design.search_budget * design.amount - history.spent("search", arm, design.unit))
        if history.phases.get("confirm") != "end":
            spent = sum(
                trial.amount if trial.outcome is not None else trial.spent.get(design.unit, 0.0)
                for trial in history.trials_of("confirm", arm)
                if trial.amount == design.confirm_amount
            )
            left += max(0.0, design.confirm_amount * history.planned_seeds - spent)
    return left / pace
