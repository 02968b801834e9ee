"""What runs are worth to the comparison: their own score or, of those that broke, the worst that is known."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from orchestrator.analysis.selection import Runs, final_values
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN, Outcome
from orchestrator.ledger.trials import TrialHistory


class Worth(NamedTuple):
    """The score of a model on a yardstick."""

    score: float
    of: TrialHistory
    """The run whose model it is."""
    untrained: bool
    """Whether it is the model that the run began with."""


Pairs = dict[int, tuple[Worth, Worth]]
"""By seed, ascending, what the runs of two arms are worth."""


def pairs_of(history: History, yardstick: str, a: Runs, b: Runs, broken: Collection[Outcome | None] = BROKEN) -> Pairs:
    """The seeds at which both arms' runs are worth something.

    A run that diverged or failed is worth the worst of the models that these two arms are known to have: of their runs
    that completed, and of those that they began with (a composite estimand, ICH E9(R1), by worst rank: Lachin 1999,
    "Worst-rank score analysis with informatively missing observations in clinical trials"). So it is never better than
    a run that came to its end, and two that broke are equal. Where none of the two arms was measured before
    training, such a run is worth nothing that is known; nor is one that was lost.
    """
    finals = [
        {seed: Worth(score, runs[seed], False) for seed, score in final_values(runs, yardstick).items()}
        for runs in (a, b)
    ]
    arms = dict.fromkeys(run.arm for runs in (a, b) for run in runs.values())
    known = [worth for arm in arms if (worth := untrained_worth(history, yardstick, arm)) is not None]
    sign = -1 if history.design.lower_is_better(yardstick) else 1
    worst = None
    if known:
        worst = min([*finals[0].values(), *finals[1].values(), *known], key=lambda worth: sign * worth.score)
    pairs = {}
    for seed in sorted(a.keys() & b.keys()):
        one, other = (
            own.get(seed, worst if runs[seed].outcome in broken else None)
            for runs, own in zip((a, b), finals, strict=True)
        )
        if one is not None and other is not None:
            pairs[seed] = one, other
    return pairs


def up_to(seed: int, runs: Runs) -> Runs:
    """The runs of seeds up to this one."""
    return {own: run for own, run in runs.items() if own <= seed}


def untrained(history: History, arm: str) -> TrialHistory | None:
    """The arm's confirmation run that was the first to measure its model before the first step."""
    return history.trials[history.floors[arm]] if arm in history.floors else None


def untrained_worth(history: History, yardstick: str, arm: str) -> Worth | None:
    """Of the model that an arm's runs begin with; None where none was measured."""
    run = untrained(history, arm)
    if run is None or run.floors is None or yardstick not in run.floors.untrained:
        return None
    return Worth(run.floors.untrained[yardstick].overall, run, True)
