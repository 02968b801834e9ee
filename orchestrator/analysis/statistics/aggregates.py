"""Scores of several tasks in one number, beside their mean: Agarwal et al. 2021, "Deep reinforcement learning
at the edge of the statistical precipice" (arXiv 2108.13264). Letters: S runs, M tasks, B bootstrap samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from orchestrator.analysis.statistics.evidence import Floats, Interval
from trainables.errors import InputError

SAMPLES = 5000
FEWEST_TASKS = 8  # with fewer, the interquartile mean leaves out half of little evidence


class InterquartileMean(NamedTuple):
    """The mean of the middle half of all scores."""

    mean: float
    interval: Interval
    """95%, of the runs alone, by the bootstrap: with few runs it is rather too narrow."""


def interquartile_mean(scores: ArrayLike) -> InterquartileMean:
    """Of scores by run and task, (S, M), with its percentile bootstrap. A run is one pretrained model on all tasks,
    whose scores vary together: whole runs are drawn, and not those of each task apart, as the paper has it."""
    score_SM = _numbers(scores)
    S = len(score_SM)
    drawn_BSM = score_SM[np.random.default_rng(0).integers(S, size=(SAMPLES, S))]
    low, high = np.quantile(_middle(drawn_BSM.reshape(SAMPLES, -1)), [0.025, 0.975])
    return InterquartileMean(float(_middle(score_SM.reshape(1, -1))[0]), (float(low), float(high)))


def _middle(scores: Floats) -> Floats:
    """The mean of each row without its lowest and highest quarter, rounded down."""
    found: Floats = np.asarray(stats.trim_mean(scores, 0.25, axis=1))
    return found


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> float:
    """The chance that a run of a is better than one of b, in the mean over tasks: scores by run and task, (S, M), with
    as many tasks and any number of runs. A tie is half a win."""
    a_SM, b_SM = _numbers(a), _numbers(b)
    if a_SM.shape[1] != b_SM.shape[1]:
        raise InputError(f"{a_SM.shape[1]} and {b_SM.shape[1]} tasks cannot be compared", why="they are not the same")
    lead_SSM = a_SM[:, None] - b_SM
    return float(((lead_SSM > 0) + 0.5 * (lead_SSM == 0)).mean())


def _numbers(scores: ArrayLike) -> Floats:
    score_SM = np.asarray(scores, dtype=np.float64)
    if score_SM.ndim != 2 or not score_SM.size or not np.isfinite(score_SM).all():
        raise InputError(
            f"scores of shape {score_SM.shape} cannot be put together",
            why="there must be a row for each run and a column for each task, all with numbers",
        )
    return score_SM
