"""What a study shows beside its question: how search went, and what it takes to get far. None of it decides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.analysis.comparison import Failures
from orchestrator.analysis.statistics.time_to_target import Curves, TimeToTarget, time_to_target
from orchestrator.analysis.statistics.tuning_curves import TuningCurve, tuning_curve
from orchestrator.ledger.trials import TrialHistory
from trainables.training.config import Unit


def describe_time_to_target(
    paired: Mapping[int, tuple[TrialHistory, TrialHistory]],
    unit: Unit,
    yardstick: str,
    target: float | None,
    lower_is_better: bool,
) -> TimeToTarget | None:
    """What the first of two arms spends to reach a target, over what the second does, by their ended runs by seed; None
    before any completed run. Those that diverged or failed never reach it. No target: the worse of the final means."""
    if not any(run.outcome == "completed" for both in paired.values() for run in both):
        return None
    worst = math.inf if lower_is_better else -math.inf
    a, b = (_curves([both[side] for both in paired.values()], unit, yardstick, worst) for side in (0, 1))
    return time_to_target(a, b, target, lower_is_better=lower_is_better)


def _curves(runs: Sequence[TrialHistory], unit: Unit, yardstick: str, worst: float) -> Curves:
    return tuple(
        ((run.progress, run.spent.get(unit, 0.0), worst),)
        if run.outcome != "completed"
        else tuple(
            (measure.progress, measure.spent[unit], measure.yardsticks[yardstick].overall)
            for measure in run.evaluations
            if yardstick in measure.yardsticks
        )
        for run in runs
    )


def describe_tuning(trials: Sequence[TrialHistory], yardstick: str, lower_is_better: bool) -> TuningCurve | None:
    """The tuning curve of an arm's ended search trials; None before the first score. A pruned trial counts with its
    last score, as halving kept better ones, and one that failed or diverged before any with the arm's worst."""
    sign = -1.0 if lower_is_better else 1.0
    found = [trial.score(yardstick) for trial in trials if trial.outcome is not None]
    known = [sign * score for score in found if score is not None]
    if not known:
        return None
    curve = tuning_curve(tuple(sorted(known + [min(known)] * (len(found) - len(known)))))
    if not lower_is_better:
        return curve

    def negated(values: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple(None if value is None else -value for value in values)

    return replace(
        curve,
        expected=tuple(-value for value in curve.expected),
        median=tuple(-value for value in curve.median),
        low=negated(curve.high),
        high=negated(curve.low),
    )


def describe_failures(trials: Sequence[TrialHistory]) -> Failures:
    """Trials that diverged or failed, and attempts that failed and were repeated."""
    outcomes = [trial.outcome for trial in trials]
    return Failures(
        diverged=outcomes.count("diverged"),
        failed=outcomes.count("failed"),
        retried=sum(trial.failures for trial in trials),
    )
