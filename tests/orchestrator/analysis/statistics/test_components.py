"""Variance components of fine-tuned models' scores, against simulations whose components are known."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.analysis.statistics.components import Component, Components, variance_components
from trainables.errors import InputError

TRUE = {"pretraining": 1.0, "fine_tuning": 0.5, "item": 4.0, "item_by_pretraining": 0.8, "rest": 3.0}


def simulate(rng, S, K, I, true=TRUE):  # noqa: E741
    shapes = {
        "pretraining": (S, 1, 1),
        "fine_tuning": (S, K, 1),
        "item": (1, 1, I),
        "item_by_pretraining": (S, 1, I),
        "rest": (S, K, I),
    }
    return 7.0 + sum(rng.standard_normal(shape) * true[name] ** 0.5 for name, shape in shapes.items())


@pytest.mark.parametrize(("S", "K"), [(6, 3), (30, 2)])
def test_known_components_are_found_and_covered(S, K):
    rng = np.random.default_rng(1)
    found = [variance_components(simulate(rng, S, K, 40)) for _ in range(200)]
    for name, true in TRUE.items():
        own = [getattr(components, name) for components in found]
        covered = np.mean([c.interval[0] <= true <= c.interval[1] for c in own])
        assert 0.91 <= covered <= 1.0, name
        values = np.array([c.estimate for c in own])
        assert abs(values.mean() - true) < 4 * values.std() / 200**0.5 + 0.05 * true, name


def test_the_variance_of_the_mean_is_that_of_simulated_means():
    rng = np.random.default_rng(2)
    means = [simulate(rng, 5, 3, 30).mean() for _ in range(4000)]
    known = {name: Component(value, (value, value)) for name, value in TRUE.items()}
    assert Components(9, 9, 30, **known).variance(seeds=5, tunings=3) == pytest.approx(np.var(means), rel=0.08)


def test_shares_are_what_other_numbers_of_each_would_leave():
    rng = np.random.default_rng(3)
    for changed in ({"pretraining": 0.01, "fine_tuning": 5.0}, {"pretraining": 5.0, "fine_tuning": 0.01}):
        components = variance_components(simulate(rng, 8, 2, 500, TRUE | changed))
        whole, shares = components.variance(), components.shares
        one_tuning_of_all = components.variance(tunings=10**9)
        assert shares.fine_tuning == pytest.approx((whole - one_tuning_of_all) / whole)
        assert shares.items == pytest.approx(components.variance(seeds=10**9) / whole, rel=1e-5)
        assert sum(shares) == pytest.approx(1.0)
        assert (shares.fine_tuning > 0.5) == (changed["fine_tuning"] > 1)


def test_equal_scores_have_no_variance():
    components = variance_components(np.full((3, 2, 4), 0.7))
    assert (components.variance(), *components.shares) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("shape", [(1, 2, 3), (2, 1, 3), (2, 2, 1), (4, 5)])
def test_fewer_than_two_of_each_are_refused(shape):
    with pytest.raises(InputError, match="no variance components"):
        variance_components(np.zeros(shape))
