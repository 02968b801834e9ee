"""Scores of several tasks put together, against sums by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from orchestrator.analysis.statistics.aggregates import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)
from trainables.errors import InputError

RNG = np.random.default_rng(0)
A, B = RNG.normal(0.5, 0.2, (6, 4)), RNG.normal(0.4, 0.2, (5, 4))


def middle(values):
    values = sorted(values)
    cut = len(values) // 4
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean(A).mean == pytest.approx(middle(A.ravel()))
    assert interquartile_mean(np.r_[np.zeros(4), np.ones(8), np.full(4, 99.0)].reshape(4, 4)).mean == 1.0


@pytest.mark.parametrize("shared", [True, False])
def test_its_interval_is_that_of_all_samples(shared):
    """Of three runs of two tasks every sample can be counted: 27 of whole runs, 27 x 27 of each task's own."""
    scores = np.array([[0.1, 0.7], [0.4, 0.2], [0.9, 0.5]])
    draws = list(product(range(3), repeat=3))
    means = [
        middle(np.r_[scores[list(first), 0], scores[list(second), 1]])
        for first, second in (zip(draws, draws, strict=True) if shared else product(draws, draws))
    ]
    low, high = interquartile_mean(scores, shared_runs=shared).interval
    exact = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    assert (low, high) == pytest.approx(exact, abs=0.03)


def test_runs_that_vary_together_make_the_interval_wider():
    together = RNG.normal(0, 1, (8, 1)) + RNG.normal(0, 0.05, (8, 12))
    whole, apart = (interquartile_mean(together, shared_runs=shared).interval for shared in (True, False))
    assert whole[1] - whole[0] > 2 * (apart[1] - apart[0])


def test_the_probability_of_improvement_counts_pairs():
    wins = [
        (a > b) + 0.5 * (a == b) for task in range(4) for a in np.round(A[:, task], 1) for b in np.round(B[:, task], 1)
    ]
    assert probability_of_improvement(np.round(A, 1), np.round(B, 1)) == pytest.approx(np.mean(wins))
    assert probability_of_improvement(A, A) == 0.5
    assert probability_of_improvement(A, B) == pytest.approx(1 - probability_of_improvement(B, A))


def test_a_performance_profile_counts_what_is_above():
    levels = [-1.0, 0.3, 0.5, 2.0]
    by_hand = [sum(score > level for score in A.ravel()) / A.size for level in levels]
    assert performance_profile(A, levels) == pytest.approx(by_hand)
    assert by_hand[0] == 1.0
    assert by_hand[-1] == 0.0


def test_what_is_no_table_is_refused():
    with pytest.raises(InputError, match="put together"):
        interquartile_mean([0.1, 0.2])
    with pytest.raises(InputError, match="put together"):
        performance_profile([[np.nan]], [0.5])
    with pytest.raises(InputError, match="4 and 3 tasks"):
        probability_of_improvement(A, B[:, :3])
