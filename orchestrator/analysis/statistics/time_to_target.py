"""Time to target: how much of the other arm's spending an arm needs to get as far.

Each arm has one curve: over the share of the budget that is spent, the means over its runs of the spending and of
the yardstick, of models that came to the end of their schedules there. A model in the middle of its schedule is not
compared with one at the end of its own. All runs count, also those that by themselves never reach the target: they pull
the mean down. The arm reaches the target where its curve first does, interpolated. What was not seen is censored, and
gives a bound instead of a number:

- a curve that never reaches it would have to spend more than all it spent;
- a curve that is there at its first point may have been there with any less;
- a run that broke off never gets there, and so no draw of seeds that has it: the arm is censored at what it spent.

The interval is by bootstrap over seeds, in pairs, the bounds going with the draws; percentiles at the level
widened for few seeds (Hesterberg 2015, "What teachers should know about the bootstrap", section 3).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from orchestrator.analysis.statistics.evidence import Floats

NUM_RESAMPLES = 2000
FEWEST_RESAMPLED = 6  # seeds: of fewer, draws repeat themselves too often for an interval

Curve = tuple[tuple[float, float, float], ...]
"""A run's annealed models: share of the budget (increasing, at most 1), spending, yardstick. One that broke off is a
single point: where, what it had spent, and the worst value there is (an infinity)."""

Curves = tuple[Curve, ...]  # an arm's, one a seed


@dataclass(frozen=True)
class TimeToTarget:
    """What A spends to reach the target, over what B does."""

    target: float
    relation: Literal["=", "<=", ">="] | None
    """Whether ``ratio`` is the ratio or, where a curve is censored, a bound of it; None where none is known."""
    ratio: float | None
    interval: tuple[float | None, float | None] | None
    """95%; an end is None where what was not seen leaves it open. None of fewer than 6 seeds."""
    reached_a: int  # runs of A that reach the target by themselves
    reached_b: int
    n: int


@lru_cache(maxsize=1024)
def time_to_target(a: Curves, b: Curves, target: float | None = None, lower_is_better: bool = False) -> TimeToTarget:
    """Compare paired runs, by seed, at least one; see the module. The target is a value of the yardstick; None: the
    worse of the two arms' final means over the runs that did not break off, estimated anew from every draw of seeds."""
    sign = -1.0 if lower_is_better else 1.0
    wanted = None if target is None else sign * target
    curves = [_on_one_grid(runs, sign) for runs in (a, b)]
    n = len(a)
    own = np.arange(n)[None, :]
    low, high = _ratio_bounds(curves, own, wanted)
    goal = _target(curves, own, wanted)[0]
    interval = None
    if n >= FEWEST_RESAMPLED:
        draws = np.random.default_rng(0).integers(0, n, (NUM_RESAMPLES, n))
        lows, highs = _ratio_bounds(curves, draws, wanted)
        tail = float(special.ndtr(-math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, 0.975)))
        ends = (float(np.quantile(lows, tail, method="lower")), float(np.quantile(highs, 1 - tail, method="higher")))
        interval = (ends[0] or None, ends[1] if math.isfinite(ends[1]) else None)
    relation: Literal["=", "<=", ">="] | None = None
    ratio = None
    if low[0] == high[0]:
        relation, ratio = "=", float(low[0])
    elif math.isfinite(high[0]):
        relation, ratio = "<=", float(high[0])
    elif low[0] > 0:
        relation, ratio = ">=", float(low[0])
    reached_a, reached_b = (int((values.max(axis=1) >= goal).sum()) for _, values in curves)
    return TimeToTarget(sign * float(goal), relation, ratio, interval, reached_a, reached_b, n)


def _on_one_grid(runs: Curves, sign: float) -> tuple[Floats, Floats]:
    """Spending and yardstick of each run, [seed, point], at the progress of all runs' evaluations."""
    whole = [run for run in runs if math.isfinite(run[-1][2])] or runs
    start = max(run[0][0] for run in whole)
    end = min(run[-1][0] for run in whole)
    points = sorted({p for run in whole for p, _, _ in run if start <= p <= end} | {end})
    by_run = [np.array(run) for run in runs]
    spent = np.array([np.interp(points, run[:, 0], run[:, 1]) for run in by_run])
    values = np.array([np.interp(points, run[:, 0], run[:, 2]) for run in by_run])
    return spent, sign * values


def _target(curves: list[tuple[Floats, Floats]], draws: NDArray[np.int64], target: float | None) -> Floats:
    """The target of each draw of seeds."""
    if target is not None:
        return np.full(len(draws), target)
    return np.asarray(np.fmin(*(_final_means(values[draws, -1]) for _, values in curves)))


def _final_means(values_DS: Floats) -> Floats:
    """Of each draw of seeds, over the runs that did not break off; nan where all did."""
    whole = np.isfinite(values_DS)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(whole, values_DS, 0.0).sum(axis=1) / whole.sum(axis=1))


def _ratio_bounds(
    curves: list[tuple[Floats, Floats]], draws: NDArray[np.int64], target: float | None
) -> tuple[Floats, Floats]:
    """Bounds of the ratio in each draw of seeds; equal where nothing is censored."""
    goal = _target(curves, draws, target)
    (low_a, high_a), (low_b, high_b) = (_reached(*curve, draws, goal) for curve in curves)
    with np.errstate(divide="ignore", invalid="ignore"):
        return low_a / high_b, high_a / low_b


def _reached(spent: Floats, values: Floats, draws: NDArray[np.int64], goal: Floats) -> tuple[Floats, Floats]:
    """Bounds of the spending at which the mean curve of each draw first reaches its goal."""
    spent_DP, value_DP = spent[draws].mean(axis=1), values[draws].mean(axis=1)
    there = value_DP >= goal[:, None] - 1e-12 * np.abs(goal[:, None])
    first = there.argmax(axis=1)
    rows, before = np.arange(len(first)), np.maximum(first - 1, 0)
    with np.errstate(invalid="ignore"):  # of curves that are nowhere; what comes of them is not used
        rise = value_DP[rows, first] - value_DP[rows, before]
    share = np.clip((goal - value_DP[rows, before]) / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    at = spent_DP[rows, before] + share * (spent_DP[rows, first] - spent_DP[rows, before])
    never, at_once = ~there.any(axis=1), there[:, 0]
    low = np.where(never, spent_DP[:, -1], np.where(at_once, 0.0, at))
    high = np.where(never, np.inf, np.where(at_once, spent_DP[:, 0], at))
    return low, high
