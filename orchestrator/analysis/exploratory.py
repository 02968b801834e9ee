"""What a study shows beside its question: how search went, and what it takes to get far. None of it decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.analysis.statistics import Curves, rank_stability, time_to_target, tuning_curve
from orchestrator.ledger.history import TrialHistory


def describe_time_to_target(
    paired: Mapping[int, tuple[TrialHistory, TrialHistory]],
    unit: str,
    yardstick: str,
    target: float | None,
    lower_is_better: bool,
) -> dict[str, Any] | None:
    """What the first of two arms spends to reach a target, over what the second does; None before any completed run.

    Args:
        paired: ended runs of both arms, by seed; those that diverged or failed never reach it.
        unit: in which spending is counted.
        yardstick: and its target; None: the worse of the arms' final means.
        target: see there.
        lower_is_better: of the yardstick.
    """
    if not any(run.outcome == "completed" for both in paired.values() for run in both):
        return None
    a, b = ([runs[side] for runs in paired.values()] for side in (0, 1))
    found = time_to_target(
        *(_curves(runs, unit, yardstick, math.inf if lower_is_better else -math.inf) for runs in (a, b)),
        target,
        lower_is_better=lower_is_better,
    )
    return asdict(found) | {"interval": list(found.interval) if found.interval else None}


def _curves(runs: Sequence[TrialHistory], unit: str, yardstick: str, worst: float) -> Curves:
    return tuple(
        ((run.progress, run.spent.get(unit, 0.0), worst),)
        if run.outcome != "completed"
        else tuple(
            (measure["progress"], measure["spent"][unit], measure["yardsticks"][yardstick]["overall"])
            for measure in run.evaluations
            if yardstick in measure["yardsticks"]
        )
        for run in runs
    )


def describe_tuning(
    trials: Sequence[TrialHistory], yardstick: str, lower_is_better: bool
) -> dict[str, Any] | None:
    """The tuning curve of an arm's ended search trials; None before the first score.

    A pruned trial counts with the last score it had, as halving kept better ones, and one that failed or diverged
    before any with the arm's worst.
    """
    sign = -1.0 if lower_is_better else 1.0
    found = [trial.score(yardstick) for trial in trials if trial.outcome is not None]
    known = [sign * score for score in found if score is not None]
    if not known:
        return None
    scores = known + [min(known)] * (len(found) - len(known))
    curve = asdict(tuning_curve(tuple(sorted(scores))))
    if lower_is_better:
        curve["low"], curve["high"] = curve["high"], curve["low"]
    points = curve.pop("n")
    return {"n": list(points)} | {
        name: [None if value is None else sign * value for value in values] for name, values in curve.items()
    }


def describe_ranks(trials: Sequence[TrialHistory], yardstick: str) -> list[dict[str, Any]]:
    """For every rung: whether its scores order the completed trials as their final scores do."""
    early: dict[int, list[float]] = {}
    final: dict[int, list[float]] = {}
    for trial in trials:
        score = trial.score(yardstick)
        if trial.outcome != "completed" or score is None:
            continue
        for measure in trial.evaluations:
            rung = measure.get("rung")
            if rung is not None and yardstick in measure["yardsticks"]:
                early.setdefault(rung, []).append(float(measure["yardsticks"][yardstick]["overall"]))
                final.setdefault(rung, []).append(score)
    return [{"rung": rung} | asdict(rank_stability(early[rung], final[rung])) for rung in sorted(early)]


def describe_failures(trials: Sequence[TrialHistory]) -> dict[str, int]:
    """Trials that diverged or failed, and attempts that failed and were repeated."""
    outcomes = [trial.outcome for trial in trials]
    return {
        "diverged": outcomes.count("diverged"),
        "failed": outcomes.count("failed"),
        "retried": sum(trial.failures for trial in trials),
    }
