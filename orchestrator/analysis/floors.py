"""Whether an arm has learned more than counting does: its runs against the tables of their held-out text."""

from collections.abc import Mapping

import numpy as np

from orchestrator.analysis.comparison import ArmSummary, Floor
from orchestrator.analysis.held_out_text import of_differences
from orchestrator.analysis.selection import Runs, untrained, worth
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_floors
from orchestrator.ledger.trials import TrialHistory
from trainables.training.state import Floors

TREND_FROM = 0.25  # of the budget
FEWEST_POINTS = 3  # of a run's course, for a trend
MOST_TIMES = 1000.0
FEWEST = 2  # runs of an arm: of one nothing shows how much they vary


def floors_of(history: History, arm: str, runs: Runs) -> Mapping[str, Floor]:
    """By table, where the arm's completed runs stand to it on the primary yardstick; empty where no run of the study
    measured tables on the arm's task. Raises InputError where a file of item scores is gone or another."""
    measured = _measured(history, arm)
    if measured is None:
        return {}
    primary = history.design.yardsticks.primary
    run, floors = measured
    return {
        table: _floor(history, runs, run, table, scores[primary].overall)
        for table, scores in floors.tables.items()
        if primary in scores
    }


def below_floor(arm: ArmSummary, table: str) -> bool:
    """Whether an arm's runs are there, and not surely above what the table comes to."""
    floor = arm.floors.get(table)
    return floor is not None and floor.above is False


def _measured(history: History, arm: str) -> tuple[TrialHistory, Floors] | None:
    """The first run of the arm, else of its task, that measured floors: tables and text are the same for all of it."""
    design = history.design
    arms = sorted(design.arms, key=lambda name: name != arm)
    same = (untrained(history, name) for name in arms if design.arms[name].task == design.arms[arm].task)
    return next(((run, run.floors) for run in same if run is not None and run.floors is not None), None)


def _floor(history: History, runs: Runs, measured: TrialHistory, table: str, value: float) -> Floor:
    primary = history.design.yardsticks.primary
    values = worth(history, runs, primary)
    if len(values) < FEWEST:
        return Floor(value=value, difference=None, interval=None, above=None, times_budget=None)
    floor = None if history.folder is None else read_floors(history.folder, measured).get((primary, table))
    differences = {seed: own - value for seed, own in values.items()}
    found = of_differences(history, primary, runs, differences, floor)
    low, high = found.interval(2 * ALPHA)  # one-sided
    above = high < 0 if history.design.lower_is_better(primary) else low > 0
    return Floor(
        value=value,
        difference=float(found.mean),
        interval=found.interval(ALPHA),
        above=above,
        times_budget=None if above else _times_budget(history, runs, value),
    )


def _times_budget(history: History, runs: Runs, value: float) -> float | None:
    """Where the mean of the completed runs' evaluations, which grows with the logarithm of what is spent, comes to the
    value; of the first part of a run, which is warm-up, nothing counts."""
    primary = history.design.yardsticks.primary
    points = [
        (measure.progress, measure.yardsticks[primary].overall)
        for run in runs.values()
        if run.outcome == "completed"
        for measure in run.evaluations
        if measure.progress >= TREND_FROM and primary in measure.yardsticks
    ]
    if len({progress for progress, _ in points}) < FEWEST_POINTS:
        return None
    progress, scores = np.array(points).T
    slope, _ = np.polyfit(np.log(progress), scores, 1)
    missing = value - scores[progress == progress.max()].mean()
    better = -1.0 if history.design.lower_is_better(primary) else 1.0
    if better * missing <= 0 or better * slope <= 0:  # it is there in the mean, or does not come nearer
        return None
    with np.errstate(over="ignore"):
        times = float(np.exp(missing / slope))
    return times if 1.0 < times <= MOST_TIMES else None
