"""Scores of several tasks put together, against sums by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from orchestrator.analysis.statistics.aggregates import interquartile_mean, probability_of_improvement
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


def test_its_interval_is_that_of_all_samples():
    """Of three runs of two tasks every sample can be counted: 27 of whole runs."""
    scores = np.array([[0.1, 0.7], [0.4, 0.2], [0.9, 0.5]])
    means = [middle(scores[list(draw)].ravel()) for draw in product(range(3), repeat=3)]
    exact = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    assert interquartile_mean(scores).interval == pytest.approx(exact, abs=0.03)


def test_runs_that_vary_together_make_the_interval_wider():
    together = RNG.normal(0, 1, (8, 1)) + RNG.normal(0, 0.05, (8, 12))
    apart = RNG.permuted(together, axis=0)
    (low, high), (least, most) = (interquartile_mean(own).interval for own in (together, apart))
    assert high - low > 2 * (most - least)


def test_the_probability_of_improvement_counts_pairs():
    wins = [
        (a > b) + 0.5 * (a == b) for task in range(4) for a in np.round(A[:, task], 1) for b in np.round(B[:, task], 1)
    ]
    assert probability_of_improvement(np.round(A, 1), np.round(B, 1)) == pytest.approx(np.mean(wins))
    assert probability_of_improvement(A, A) == 0.5
    assert probability_of_improvement(A, B) == pytest.approx(1 - probability_of_improvement(B, A))


def test_what_is_no_table_is_refused():
    with pytest.raises(InputError, match="put together"):
        interquartile_mean([0.1, 0.2])
    with pytest.raises(InputError, match="put together"):
        interquartile_mean([[np.nan]])
    with pytest.raises(InputError, match="4 and 3 tasks"):
        probability_of_improvement(A, B[:, :3])
