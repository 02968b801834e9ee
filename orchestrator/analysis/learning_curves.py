"""Learning curves: how a yardstick grew with what was spent, run by run and in the mean over an arm's seeds.

All values are of the text of the evaluations, the validation split: the test split is scored at a run's end alone. Only
models at the same share of their schedules are averaged, those of the runs that completed; a run that broke or was lost
is drawn as far as it came, counted, and in no mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from orchestrator.analysis.selection import chosen_runs
from orchestrator.analysis.statistics.evidence import Floats, Interval, of_seeds
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.records import Outcome
from orchestrator.ledger.trials import TrialHistory
from trainables.config import Config
from trainables.training.config import Unit

INTERVAL = "95%, pointwise, Student's t over seeds"
"""How the intervals of mean curves are made; the held-out text is taken as it is."""


class Point(Config):
    """An evaluation."""

    progress: float
    """Share of the run's budget."""
    spent: dict[Unit, float]
    value: float


class RunCurve(Config):
    """One run."""

    trial: str
    seed: int
    outcome: Outcome | None
    """None while it runs, or waits to be resumed."""
    points: tuple[Point, ...]


class MeanPoint(Point):
    """The mean over runs."""

    interval: Interval | None
    """See :data:`INTERVAL`; None of fewer than two runs."""


class LearningCurve(Config):
    """An arm's confirmation runs of the configuration that stands for it."""

    arm: str
    yardstick: str
    n: int
    """Completed runs: those of the mean."""
    planned: int
    """Runs that have begun."""
    others: dict[str, int]
    """Those not in the mean, by outcome; ``running`` too."""
    mean: tuple[MeanPoint, ...]
    """At the shares of the budget that all completed runs were evaluated between."""
    runs: tuple[RunCurve, ...]


def learning_curves(history: History) -> tuple[LearningCurve, ...]:
    """On the primary yardstick, of the arms that have runs."""
    primary = history.design.yardsticks.primary
    by_arm = {arm: list(chosen_runs(history, arm).values()) for arm in history.design.arms}
    return tuple(_learning_curve(arm, primary, runs) for arm, runs in by_arm.items() if runs)


def _learning_curve(arm: str, yardstick: str, runs: Sequence[TrialHistory]) -> LearningCurve:
    curves = [
        RunCurve(trial=run.trial, seed=run.seed, outcome=run.outcome, points=_points(run, yardstick)) for run in runs
    ]
    whole = [curve.points for curve in curves if curve.outcome == "completed" and curve.points]
    outcomes = Counter(run.outcome or "running" for run in runs)
    outcomes.pop("completed", None)
    return LearningCurve(
        arm=arm,
        yardstick=yardstick,
        n=len(whole),
        planned=len(runs),
        others=dict(outcomes),
        mean=_mean(whole),
        runs=tuple(sorted(curves, key=lambda curve: curve.seed)),
    )


def _points(run: TrialHistory, yardstick: str) -> tuple[Point, ...]:
    found = [(measure, measure.course or measure.yardsticks) for measure in run.evaluations]
    return tuple(
        Point(progress=measure.progress, spent=measure.spent, value=scores[yardstick].overall)
        for measure, scores in found
        if yardstick in scores
    )


def _mean(curves: Sequence[tuple[Point, ...]]) -> tuple[MeanPoint, ...]:
    if not curves:
        return ()
    start = max(curve[0].progress for curve in curves)
    end = min(curve[-1].progress for curve in curves)
    shares = sorted({point.progress for curve in curves for point in curve if start <= point.progress <= end})
    units = [unit for unit in curves[0][-1].spent if all(unit in curve[-1].spent for curve in curves)]
    value_SP = np.array([_at(shares, curve, [point.value for point in curve]) for curve in curves])
    spent_UP = {
        unit: np.mean([_at(shares, curve, [p.spent.get(unit, 0.0) for p in curve]) for curve in curves], 0)
        for unit in units
    }
    return tuple(
        MeanPoint(
            progress=share,
            spent={unit: float(amounts[place]) for unit, amounts in spent_UP.items()},
            value=float(value_SP[:, place].mean()),
            interval=of_seeds(value_SP[:, place]).interval(ALPHA) if len(curves) > 1 else None,
        )
        for place, share in enumerate(shares)
    )


def _at(shares: Sequence[float], curve: Sequence[Point], values: Sequence[float]) -> Floats:
    return np.interp(shares, [point.progress for point in curve], values)
