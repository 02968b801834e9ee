"""What is planned against closed forms and the product's own tests on simulated studies."""

import time

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.statistics.paired import fewest_pairs, permutation_p
from orchestrator.analysis.statistics.planning import minimum_detectable_effect, power


def test_power_of_six_pairs_is_that_of_six_equal_signs():
    for effect in (0.5, 1.0, 2.0):
        assert power(6, effect, 1.0) == pytest.approx(stats.norm.cdf(effect) ** 6, abs=0.025)
        assert power(6, 3 * effect, 3.0) == power(6, effect, 1.0)


@pytest.mark.parametrize(("num_pairs", "family_size"), [(7, 1), (9, 3), (12, 1)])
def test_the_detectable_effect_is_named_with_the_power_it_promises(num_pairs, family_size):
    effect = minimum_detectable_effect(num_pairs, 2.0, family_size=family_size)
    samples = np.random.default_rng(1).normal(effect, 2.0, (800, num_pairs))
    named = [permutation_p(tuple(sample)) * family_size <= 0.05 for sample in samples]
    assert np.mean(named) == pytest.approx(0.8, abs=0.045)


def test_the_detectable_effect_of_many_pairs_is_the_t_tests():
    effect = minimum_detectable_effect(30)
    critical = stats.t.ppf(0.975, 29)
    assert stats.nct.sf(critical, 29, effect * np.sqrt(30)) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("num_pairs", [1001, 10_000, 100_000])
def test_the_power_of_very_many_pairs_is_the_t_tests_and_costs_no_more(num_pairs):
    effect, began = 3.0 / np.sqrt(num_pairs), time.process_time()
    expected = stats.nct.sf(stats.t.ppf(0.975, num_pairs - 1), num_pairs - 1, 3.0)
    assert power(num_pairs, effect, 1.0) == pytest.approx(expected, abs=0.02)
    # Of those that the test would name, the ones that are found to lie within the margin: in standard errors,
    # between its critical value and the margin less what the equivalence test adds.
    margin, critical = 5.0, stats.norm.ppf(0.95)
    within = stats.norm.cdf(margin - critical - 3.0) - stats.norm.cdf(1.96 - 3.0)
    found = power(num_pairs, effect, 1.0, margin=margin / np.sqrt(num_pairs))
    assert found == pytest.approx(expected - within, abs=0.02)
    assert time.process_time() - began < 5.0


def test_more_seeds_see_less_and_too_few_see_nothing():
    effects = [minimum_detectable_effect(n) for n in (6, 8, 10, 15, 40)]
    assert effects == sorted(effects, reverse=True)
    assert minimum_detectable_effect(5) is None
    assert minimum_detectable_effect(fewest_pairs(3) - 1, family_size=3) is None
    assert minimum_detectable_effect(6, deviation=0.0) is None


def test_what_lies_within_the_margin_is_not_named():
    assert power(20, 0.5, 1.0, margin=2.0) < 0.02 < power(20, 0.5, 1.0)
