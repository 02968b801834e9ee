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


def test_more_fine_tunings_help_where_they_are_what_varies():
    rng = np.random.default_rng(3)
    varying = variance_components(simulate(rng, 8, 2, 500, TRUE | {"pretraining": 0.01, "fine_tuning": 5.0}))
    steady = variance_components(simulate(rng, 8, 2, 500, TRUE | {"pretraining": 5.0, "fine_tuning": 0.01}))
    assert varying.more_tunings_help
    assert not steady.more_tunings_help
    for components in (varying, steady):  # it is the share that no number of them would leave
        whole, without = components.variance(), components.variance(tunings=10**9)
        assert components.tuning_share == pytest.approx((whole - without) / whole)


def test_the_best_number_of_fine_tunings_costs_least():
    """Against a search over all numbers, with what each leaves of a budget for seeds."""
    components = variance_components(simulate(np.random.default_rng(4), 40, 4, 200))
    for cost in (3.0, 20.0, 200.0):
        budget = 1e6
        # What items add does not depend on either number.
        least = min(
            range(1, 200), key=lambda k: (components.variance(1, k) - _items(components)) / (budget / (cost + k))
        )
        assert abs(components.best_tunings(cost) - least) <= 1


def _items(components):
    return components.item.estimate / components.items


def test_equal_scores_have_no_variance():
    components = variance_components(np.full((3, 2, 4), 0.7))
    assert (components.variance(), components.tuning_share, components.best_tunings(10.0)) == (0.0, 0.0, None)
    assert not components.more_tunings_help


@pytest.mark.parametrize("shape", [(1, 2, 3), (2, 1, 3), (2, 2, 1), (4, 5)])
def test_fewer_than_two_of_each_are_refused(shape):
    with pytest.raises(InputError, match="no variance components"):
        variance_components(np.zeros(shape))
