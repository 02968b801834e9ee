"""What two arms' runs say of a pair, yardstick by yardstick: numbers, without a verdict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeVar

import numpy as np

from orchestrator.analysis import comparison
from orchestrator.analysis.comparison import Row
from orchestrator.analysis.held_out_text import evidence_of
from orchestrator.analysis.selection import Runs
from orchestrator.analysis.statistics.evidence import Evidence, difference, of_seeds
from orchestrator.analysis.statistics.holm import holm
from orchestrator.analysis.statistics.rule import FEWEST
from orchestrator.analysis.worth import Pairs, pairs_of
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN, Design, Outcome
from orchestrator.ledger.trials import TrialHistory
from trainables.training.config import Unit

STEADY = 1.1
"""Clocks tell nothing where runs of one configuration differ in the time of the same work by more than this ratio."""

_AnyRow = TypeVar("_AnyRow", bound=Row)

SAME_SPENDING = 0.99  # runs have spent the same where the least is this share of the most: clocks are noisy


def mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    values = list(values)
    return float(np.mean(values)) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """Standard deviation; None of fewer than two."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def final_row(history: History, yardstick: str, pairs: Pairs) -> Row:
    """A yardstick at the end of the runs, by Student's own interval and p. Raises InputError where a file of item
    scores is gone or another."""
    scores = [(a.score, b.score) for a, b in pairs.values()]
    return row_of(history.design, yardstick, evidence_of(history, yardstick, pairs), scores)


def row_of(design: Design, yardstick: str, found: Evidence, scores: Sequence[tuple[float, float]]) -> Row:
    """Of evidence and the scores that it is of."""
    differences = [difference(a, b) for a, b in scores]
    return Row(
        role="primary" if yardstick == design.yardsticks.primary else "exploratory",
        lower_is_better=design.lower_is_better(yardstick),
        n=len(differences),
        mean_a=mean(a for a, _ in scores),
        mean_b=mean(b for _, b in scores),
        difference=mean(differences),
        deviation=deviation(differences),
        seed_error=float(found.seed_variance) ** 0.5 if found.n > 1 else None,
        text_error=float(found.text_variance) ** 0.5 if np.isfinite(found.text_degrees) else None,
        text_degrees=float(found.text_degrees) if np.isfinite(found.text_degrees) else None,
        fixed_text=found.fixed_text,
        interval=found.interval(ALPHA) if found.n > 1 else None,
        p=float(found.p()) if found.n >= FEWEST else None,
        p_adjusted=None,
    )


def holm_adjusted(rows: Sequence[_AnyRow]) -> list[_AnyRow]:
    """With p adjusted over all of them. A pair without a p-value yet keeps its place in the family, as the weakest."""
    adjusted = holm([1.0 if row.p is None else row.p for row in rows])
    return [
        row.model_copy(update={"p_adjusted": None if row.p is None else p})
        for row, p in zip(rows, adjusted, strict=True)
    ]


def at_shares(history: History, branches: Mapping[float, tuple[Runs, Runs]]) -> Iterator[comparison.BranchRow]:
    """The yardsticks where the branches ended, by share of the budget."""
    for (share, (a, b)), name in product(branches.items(), history.design.yardsticks.names):
        pairs = pairs_of(history, name, a, b)
        row = final_row(history, name, pairs).model_dump() | {"role": "exploratory"}
        yield comparison.BranchRow(**row, share=share, yardstick=name, missing=missing(a, b, name, pairs))


def branches_of(history: History, a: Runs, b: Runs) -> dict[float, tuple[Runs, Runs]]:
    """Of these runs, by share of the budget, ascending. A run that broke has none: it stands for them."""
    ended: dict[float, dict[tuple[str, int], TrialHistory]] = defaultdict(dict)
    for trial in history.trials_of("anytime"):
        if trial.share is not None:
            ended[trial.share][trial.arm, trial.number] = trial

    def side(runs: Runs, own: Mapping[tuple[str, int], TrialHistory]) -> Runs:
        at = {seed: own.get((run.arm, run.number), run) for seed, run in runs.items()}
        return {seed: run for seed, run in at.items() if run.phase == "anytime" or run.outcome in BROKEN}

    found = {share: (side(a, own), side(b, own)) for share, own in sorted(ended.items())}
    return {share: both for share, both in found.items() if all(both)}


def missing(a: Runs, b: Runs, yardstick: str, pairs: Pairs) -> tuple[comparison.Gap, ...]:
    """The runs that ended without being worth anything."""
    return tuple(
        _gap(run)
        for runs, others in ((a, b), (b, a))
        for seed, run in sorted(runs.items())
        if run.outcome == "lost"
        or (run.outcome == "completed" and run.score(yardstick) is None)
        or (run.outcome in BROKEN and seed not in pairs and _has_ended(others.get(seed)))
    )


def _has_ended(run: TrialHistory | None) -> bool:
    return run is not None and run.outcome in ("completed", *BROKEN)


def broken(a: Runs, b: Runs, pairs: Pairs) -> tuple[comparison.Gap, ...]:
    """The runs of pairs that count as the worst model known."""
    return tuple(_gap(runs[seed]) for runs in (a, b) for seed in pairs if runs[seed].outcome in BROKEN)


def _gap(run: TrialHistory) -> comparison.Gap:
    assert run.outcome is not None
    return comparison.Gap(seed=run.seed, arm=run.arm, outcome=run.outcome, reason=run.reason)


def matched(history: History, a: Runs, b: Runs, unit: Unit) -> comparison.Matched:
    """The primary yardstick at the greatest share of their schedules that all paired runs have reached."""
    design, primary = history.design, history.design.yardsticks.primary
    completed = paired_runs(a, b, ("completed",), primary)
    paired = completed or paired_runs(a, b, ("completed", None), primary)
    curves = {
        (run.arm, seed): np.array(
            [
                (measure.progress, measure.spent[unit], measure.yardsticks[primary].overall)
                for measure in run.evaluations
                if primary in measure.yardsticks
            ]
        )
        for seed, both in paired.items()
        for run in both
    }
    progress = min((float(curve[-1, 0]) for curve in curves.values()), default=0.0)
    spent = [float(np.interp(progress, curve[:, 0], curve[:, 1])) for curve in curves.values()]
    if unit == "device_seconds" != design.unit and not is_steady((a, b)):
        return comparison.Matched.nothing()
    # Progress is spending of the budget over the budget, so that of it all have spent the same by then.
    same = bool(spent) and (unit == design.unit or min(spent) >= SAME_SPENDING * max(spent))
    # There is no point to show before the first pair, nor where a run was first evaluated only beyond it.
    if not same or any(progress < curve[0, 0] for curve in curves.values()):
        return comparison.Matched.nothing()
    at = {key: float(np.interp(progress, curve[:, 0], curve[:, 2])) for key, curve in curves.items()}
    scores = [(at[one.arm, seed], at[other.arm, seed]) for seed, (one, other) in paired.items()]
    annealed = bool(completed)
    found = of_seeds([difference(one, other) for one, other in scores])
    if annealed:
        found = evidence_of(history, primary, pairs_of(history, primary, *_sides(paired)))
    row = row_of(design, primary, found, scores)
    shown = row.model_dump(include={"n", "mean_a", "mean_b", "difference"})
    interval = row.interval if annealed else None
    return comparison.Matched(**shown, interval=interval, spent=min(spent), progress=progress, annealed=annealed)


def is_steady(sides: Iterable[Runs]) -> bool:
    """Whether clocks tell something: of each side's completed runs, device time by FLOPs is nearly the same."""
    for runs in sides:
        ended = [run.spent for run in runs.values() if run.outcome == "completed"]
        paces = [s["device_seconds"] / s["flops"] for s in ended if s.get("device_seconds") and s.get("flops")]
        if paces and max(paces) > STEADY * min(paces):
            return False
    return True


def _sides(paired: Mapping[int, tuple[TrialHistory, TrialHistory]]) -> tuple[Runs, Runs]:
    return {seed: one for seed, (one, _) in paired.items()}, {seed: other for seed, (_, other) in paired.items()}


def paired_runs(
    a: Runs, b: Runs, outcomes: tuple[Outcome | None, ...], primary: str
) -> dict[int, tuple[TrialHistory, TrialHistory]]:
    """The seeds at which both arms' runs have one of the outcomes and, unless they broke, were evaluated."""
    both = {seed: (a[seed], b[seed]) for seed in sorted(a.keys() & b.keys())}
    return {
        seed: pair
        for seed, pair in both.items()
        if all(run.outcome in outcomes and (run.outcome in BROKEN or run.score(primary) is not None) for run in pair)
    }
