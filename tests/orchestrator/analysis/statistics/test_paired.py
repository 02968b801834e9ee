"""Statistics against brute force, closed forms and simulation."""

import math
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.statistics.paired import fewest_pairs, holm, mean_interval, permutation_p
from orchestrator.analysis.statistics.planning import minimum_detectable_effect, seeds_needed

# Multiples of 1/64: sums, negations and doublings of them are exact, so that ties stay ties.
exact_values = st.lists(st.integers(-64, 64).map(lambda k: k / 64), min_size=2, max_size=8).map(tuple)


def enumerated_p(differences: tuple[float, ...]) -> float:
    """The share of the 2^n signings whose sum is at least as far from 0."""
    observed = abs(sum(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
            for signs in product((-1, 1), repeat=len(differences))]  # fmt: skip
    return sum(total >= observed for total in sums) / len(sums)


@given(exact_values)
@settings(max_examples=60, deadline=None)
def test_permutation_p_is_the_enumerated_one(differences):
    assert permutation_p(differences) == pytest.approx(enumerated_p(differences))


@given(exact_values)
@settings(max_examples=40, deadline=None)
def test_swapping_the_arms_swaps_the_signs(differences):
    swapped = tuple(-d for d in differences)
    assert permutation_p(swapped) == permutation_p(differences)
    low, high = mean_interval(differences)
    assert mean_interval(swapped) == pytest.approx((-high, -low))


@given(exact_values)
@settings(max_examples=40, deadline=None)
def test_a_change_of_scale_scales_the_intervals_and_keeps_p(differences):
    doubled = tuple(2 * d for d in differences)
    assert permutation_p(doubled) == permutation_p(differences)
    assert mean_interval(doubled) == pytest.approx(tuple(2 * end for end in mean_interval(differences)))


def test_permutation_p_of_few_and_of_many():
    assert permutation_p(()) is None
    assert permutation_p((0.3,)) == 1.0
    many = tuple(np.random.default_rng(1).normal(0.2, 1.0, 40))
    assert permutation_p(many) == permutation_p.__wrapped__(many)  # sampled, yet always alike
    normal = 2 * NormalDist().cdf(-abs(sum(many)) / math.sqrt(sum(d * d for d in many)))
    assert permutation_p(many) == pytest.approx(normal, abs=0.02)


def test_the_interval_of_degenerate_samples():
    assert mean_interval(()) is None
    assert mean_interval((0.1,)) is None
    assert mean_interval((0.5, 0.5, 0.5)) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("n", "quantile"),
    [(2, 12.7062), (3, 4.30265), (6, 2.57058), (20, 2.09302)],  # Student's t, 97.5%, from a printed table
)
def test_the_interval_is_students(n, quantile):
    differences = tuple(np.random.default_rng(n).normal(0.3, 1.0, n))
    mean = sum(differences) / n
    error = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
    assert mean_interval(differences) == pytest.approx((mean - quantile * error, mean + quantile * error), rel=1e-5)


@pytest.mark.parametrize("n", [3, 6, 20])
def test_the_interval_is_what_the_t_test_does_not_contradict(n):
    differences = tuple(np.random.default_rng(n).normal(0.3, 1.0, n))
    for confidence in (0.9, 0.95):
        for end in mean_interval(differences, confidence):
            assert stats.ttest_1samp(differences, end).pvalue == pytest.approx(1 - confidence)


@pytest.mark.parametrize("n", [4, 6, 10])
@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
def test_the_interval_covers_the_mean_as_often_as_it_says(n, noise):
    chance, shape = np.random.default_rng(n), (2000, n)
    samples = {
        "normal": chance.standard_normal(shape),
        "heavy": chance.standard_t(4, shape),
        "skewed": 2 * chance.gamma(4, size=shape) - chance.gamma(4, size=shape) - 4,  # unequal spreads
    }[noise]
    covered = [low <= 0 <= high for low, high in (mean_interval(tuple(row)) for row in samples)]
    assert 0.93 <= np.mean(covered) <= 0.97  # with two standard errors


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """The closure: a hypothesis gets the worst Bonferroni p over all sets that it is in."""
    subsets = [[i for i, kept in enumerate(mask) if kept] for mask in product((0, 1), repeat=len(p_values))]
    for index, adjusted in enumerate(holm(p_values)):
        worst = max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in subsets if index in s)
        assert adjusted == pytest.approx(worst)


def test_the_interval_of_90_percent_is_two_one_sided_tests():
    differences = (0.001, -0.002, 0.003, 0.0005, -0.001)
    low, high = mean_interval(differences, 0.9)
    assert stats.ttest_1samp(differences, low, alternative="greater").pvalue == pytest.approx(0.05)
    assert stats.ttest_1samp(differences, high, alternative="less").pvalue == pytest.approx(0.05)


@pytest.mark.parametrize("family_size", [1, 2, 3, 6, 10])
def test_fewest_pairs_is_the_first_that_can_win(family_size):
    n = fewest_pairs(family_size)
    assert 2 / 2**n * family_size <= 0.05 < 2 / 2 ** (n - 1) * family_size
    assert permutation_p((0.1,) * n) * family_size <= 0.05 < permutation_p((0.1,) * (n - 1)) * family_size


def test_seeds_needed_has_the_power_it_promises():
    differences = (0.0, 0.02, 0.01, 0.03, -0.01, 0.01)
    n = len(differences) + seeds_needed(differences, margin=0.0)
    mean, deviation = np.mean(differences), np.std(differences, ddof=1)
    samples = np.random.default_rng(0).normal(mean, deviation, (4000, n))
    power = (stats.ttest_1samp(samples, 0.0, axis=1).pvalue <= 0.05).mean()
    assert 0.77 <= power <= 0.87


def test_seeds_needed_for_equivalence_has_the_power_it_promises():
    differences = (0.001, -0.001, 0.002, -0.002, 0.0005)
    n = len(differences) + seeds_needed(differences, margin=0.0015)
    mean, deviation = np.mean(differences), np.std(differences, ddof=1)
    samples = np.random.default_rng(0).normal(mean, deviation, (4000, n))
    intervals = [mean_interval(tuple(sample), 0.9) for sample in samples]
    power = np.mean([low >= -0.0015 and high <= 0.0015 for low, high in intervals])
    assert 0.75 <= power <= 0.9


def test_seeds_needed_of_few_or_clear_or_hopeless_samples():
    assert seeds_needed((), margin=0.0) == 6
    assert seeds_needed((0.1,), margin=0.0) == 5
    assert seeds_needed((0.1, 0.1), margin=0.0) == 4  # ever so clear, but 2 / 2^5 is above 5%
    assert seeds_needed((0.1, 0.1), margin=0.0, family_size=3) == fewest_pairs(3) - 2
    assert seeds_needed((0.1, -0.1, 0.1, -0.1), margin=0.0) is None


@pytest.mark.parametrize("deviation", [1e-300, 1e-17, 1e-9])
def test_a_margin_that_dwarfs_the_deviation_is_what_can_be_detected(deviation):
    """Differences that are equal but for rounding: the search for the effect ends all the same."""
    assert minimum_detectable_effect(6, deviation, 0.005) == pytest.approx(0.005, rel=1e-6)
