"""What a study shows beside its question: how search went, and what it takes to get far. None of it decides."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.analysis.comparison import Failures, SearchSummary
from orchestrator.analysis.statistics.time_to_target import Curve, TimeToTarget, time_to_target
from orchestrator.analysis.statistics.tuning_curves import TuningCurve, chance_of_better, tuning_curve
from orchestrator.ledger.trials import TrialHistory
from trainables.training.config import Unit


def describe_time_to_target(
    paired: Mapping[int, tuple[TrialHistory, TrialHistory]],
    unit: Unit,
    yardstick: str,
    target: float | None,
    branches: Iterable[TrialHistory],
    lower_is_better: bool,
) -> TimeToTarget | None:
    """What the first of two arms spends to reach a target, over what the second does, by their ended runs by seed.

    Only annealed models count, those of the runs' ends and of their branches': without branches of every completed run,
    and before any, there is no answer. Runs that diverged or failed never reach it. No target: the worse of the final
    means.
    """
    by_run: dict[tuple[str, int], list[TrialHistory]] = defaultdict(list)
    for branch in branches:
        if branch.outcome == "completed":
            by_run[branch.arm, branch.number].append(branch)
    completed = [run for both in paired.values() for run in both if run.outcome == "completed"]
    if not completed or not all((run.arm, run.number) in by_run for run in completed):
        return None
    worst = math.inf if lower_is_better else -math.inf

    def curve(run: TrialHistory) -> Curve:
        if run.outcome != "completed":
            return ((run.progress, run.spent.get(unit, 0.0), worst),)
        ends = [(branch.share or 1.0, branch) for branch in (*by_run[run.arm, run.number], run)]
        known = [(share, end.spent[unit], end.score(yardstick)) for share, end in ends]
        return tuple(sorted((share, spent, score) for share, spent, score in known if score is not None))

    a, b = (tuple(curve(both[side]) for both in paired.values()) for side in (0, 1))
    return time_to_target(a, b, target, lower_is_better=lower_is_better)


def describe_tuning(trials: Sequence[TrialHistory], yardstick: str, lower_is_better: bool) -> TuningCurve | None:
    """The tuning curve of an arm's ended search trials; None before the first score. A pruned trial counts with its
    last score, as halving kept better ones, and one that failed or diverged before any with the arm's worst."""
    sign = -1.0 if lower_is_better else 1.0
    found = [trial.score(yardstick) for trial in trials if trial.outcome is not None]
    known = [sign * score for score in found if score is not None]
    if not known:
        return None
    curve = tuning_curve(tuple(sorted(known + [min(known)] * (len(found) - len(known)))))
    a_trial = sum(trial.progress for trial in trials if trial.outcome is not None) / len(found)
    curve = replace(curve, spent=tuple(n * a_trial for n in curve.n))
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


def describe_search(
    trials: Sequence[TrialHistory], best: TrialHistory | None, yardstick: str, lower_is_better: bool, margin: float
) -> SearchSummary | None:
    """What an arm's search came to, ``best`` being the best of its trials; None where there was none."""
    if not trials:
        return None
    sign = -1.0 if lower_is_better else 1.0
    gained = None if best is None else _gain(trials[0], best, yardstick)
    ended = [trial for trial in trials if trial.outcome is not None]
    scores = [trial.score(yardstick) if trial.outcome == "completed" else None for trial in ended]
    return SearchSummary(
        spent=sum(trial.progress for trial in trials),
        begun=len(trials),
        by_hand=sum(trial.by_hand for trial in trials),
        completed=sum(trial.outcome == "completed" for trial in trials),
        gain=None if gained is None else sign * gained[0],
        gain_at=None if gained is None else gained[1],
        better_if_doubled=chance_of_better(
            [trial.progress for trial in ended], [None if score is None else sign * score for score in scores], margin
        ),
    )


def _gain(first: TrialHistory, best: TrialHistory, yardstick: str) -> tuple[float, float] | None:
    """By how much the best trial differs from the first where that was last measured, a rung or the end, and at which
    share of a trial."""
    at = {m.rung: m.yardsticks[yardstick].overall for m in best.evaluations if yardstick in m.yardsticks}
    for measure in reversed(first.evaluations):
        if yardstick in measure.yardsticks and measure.rung in at:
            return at[measure.rung] - measure.yardsticks[yardstick].overall, measure.progress
    return None


def describe_failures(trials: Sequence[TrialHistory]) -> Failures:
    """Trials that diverged, failed or were lost, and attempts that were repeated."""
    outcomes = [trial.outcome for trial in trials]
    return Failures(
        diverged=outcomes.count("diverged"),
        failed=outcomes.count("failed"),
        lost=outcomes.count("lost"),
        retried=sum(trial.failures for trial in trials),
    )
