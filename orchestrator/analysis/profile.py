"""Performance profiles: on what share of the runs and languages an arm is above a value, for every value.

Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", section 4.3, with languages
for tasks. Where one arm's profile lies above another's everywhere, it is better at every quantile.
"""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.selection import chosen_runs
from orchestrator.analysis.statistics.evidence import Interval
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN
from orchestrator.ledger.trials import TrialHistory
from trainables.config import Config

MOST_VALUES = 41  # of a profile
NUM_RESAMPLES = 2000
FEWEST_RUNS = 2

INTERVAL = "95%, pointwise, percentile bootstrap over runs"
"""How the intervals are made."""


class ProfilePoint(Config):
    """Of one value of the yardstick."""

    value: float
    share: float
    """Of runs and languages that are better than the value."""
    interval: Interval | None
    """See :data:`INTERVAL`; None of fewer than two runs."""


class Profile(Config):
    """An arm's confirmation runs that came to an end, on the primary yardstick."""

    arm: str
    n: int
    """Runs; those that broke are never better than any value."""
    broken: int
    """Of these."""
    languages: int
    points: tuple[ProfilePoint, ...]


def profiles(history: History) -> tuple[Profile, ...]:
    """On the same values for all arms; empty before any run has completed."""
    primary = history.design.yardsticks.primary
    sign = -1.0 if history.design.lower_is_better(primary) else 1.0
    scores = {}
    for arm in history.design.arms:
        runs = [run for run in chosen_runs(history, arm).values() if run.outcome in ("completed", *BROKEN)]
        known = [found for run in runs if run.outcome == "completed" and (found := _scores(run, primary))]
        if known and len({len(found) for found in known}) == 1:
            nothing = [[-np.inf] * len(known[0])] * sum(run.outcome in BROKEN for run in runs)
            scores[arm] = sign * np.array([*known, *(np.multiply(sign, row).tolist() for row in nothing)])
    if not scores:
        return ()
    finite = np.unique(np.concatenate([own[np.isfinite(own)] for own in scores.values()]))
    values = np.linspace(finite[0], finite[-1], MOST_VALUES) if len(finite) > 1 else finite
    return tuple(_profile(arm, own, values, sign) for arm, own in scores.items())


def _scores(run: TrialHistory, yardstick: str) -> list[float]:
    """By language, or overall where there is but one."""
    for measure in reversed(run.measures):
        if yardstick in measure.yardsticks:
            score = measure.yardsticks[yardstick]
            return list(score.languages.values()) or [score.overall]
    return []


def _profile(arm: str, score_RL: np.ndarray, value_V: np.ndarray, sign: float) -> Profile:
    above_RV = (score_RL[:, :, None] > value_V).mean(1)
    n = len(above_RV)
    intervals: list[Interval | None] = [None] * len(value_V)
    if n >= FEWEST_RUNS:
        draws = np.random.default_rng(0).integers(0, n, (NUM_RESAMPLES, n))
        low_V, high_V = np.quantile(above_RV[draws].mean(1), [ALPHA / 2, 1 - ALPHA / 2], axis=0)
        intervals = [(float(low), float(high)) for low, high in zip(low_V, high_V, strict=True)]
    points = zip(value_V, above_RV.mean(0), intervals, strict=True)
    return Profile(
        arm=arm,
        n=n,
        broken=int(np.isinf(score_RL).any(1).sum()),
        languages=score_RL.shape[1],
        points=tuple(
            ProfilePoint(value=float(sign * value), share=float(share), interval=interval)
            for value, share, interval in points
        ),
    )
