"""Tuning curves and time to target against brute force."""

from itertools import product

import numpy as np
import pytest

from orchestrator.analysis.statistics.time_to_target import time_to_target
from orchestrator.analysis.statistics.tuning_curves import _band, tuning_curve

SCORES = (0.31, 0.12, 0.44, 0.27, 0.39)


def test_the_expected_and_median_best_are_those_of_all_draws():
    curve = tuning_curve(SCORES)
    assert curve.n == (1, 2, 3, 4, 5)
    for n, expected, median in zip(curve.n, curve.expected, curve.median, strict=True):
        best = [max(draw) for draw in product(SCORES, repeat=n)]
        assert expected == pytest.approx(np.mean(best))
        assert median == np.quantile(best, 0.5, method="inverted_cdf")


def test_the_band_holds_the_whole_true_curve_as_often_as_it_says():
    rng, held = np.random.default_rng(0), 0
    for _ in range(1000):
        curve = tuning_curve(tuple(rng.random(12)))
        truth = [0.5 ** (1 / n) for n in curve.n]  # of uniform scores
        held += all(
            (low is None or low <= true) and (high is None or true <= high)
            for low, high, true in zip(curve.low, curve.high, truth, strict=True)
        )
    assert held / 1000 >= 0.94  # at few points; of F, at all scores, it is exact:
    below, above = _band(12, 0.95)
    uniform = np.sort(rng.random((4000, 12)), axis=1)
    assert np.mean(((below <= uniform) & (uniform <= above)).all(axis=1)) == pytest.approx(0.95, abs=0.012)


def test_the_band_is_opdas():
    nonparametric = pytest.importorskip("opda.nonparametric")
    scores = tuple(np.random.default_rng(1).random(16))
    band = nonparametric.EmpiricalDistribution.confidence_bands(
        np.array(scores), 0.95, method="ld_equal_tailed", generator=np.random.default_rng(0)
    )
    curve = tuning_curve(scores)
    for ours, theirs in ((curve.high, band[0]), (curve.low, band[2])):
        expected = theirs.quantile_tuning_curve(np.array(curve.n, dtype=float))
        found = [{True: np.inf, False: -np.inf}[ours is curve.high] if x is None else x for x in ours]
        assert np.mean(np.isclose(found, expected)) >= 0.8  # levels are simulated: a step may differ


def test_a_curve_of_many_trials_is_thinned():
    curve = tuning_curve(tuple(np.random.default_rng(2).random(500)))
    assert curve.n[:10] == tuple(range(1, 11))
    assert curve.n[-1] == 500
    assert len(curve.n) <= 64
    with pytest.raises(ValueError, match="needs a score"):
        tuning_curve(())


def line(slope: float, points: int = 5, cost: float = 100.0):
    """A run whose yardstick grows in a straight line."""
    return tuple((i / points, cost * i / points, slope * i / points) for i in range(1, points + 1))


def test_twice_as_fast_takes_half():
    a = tuple(line(0.8 + e) for e in (0.01, -0.01, 0.02, -0.02, 0.0, 0.0))
    b = tuple(line(0.4) for _ in range(6))
    found = time_to_target(a, b)
    assert (found.relation, found.n, found.reached_a, found.reached_b) == ("=", 6, 6, 6)
    assert found.target == pytest.approx(0.4)
    assert found.ratio == pytest.approx(0.5)
    low, high = found.interval
    assert 0.48 < low < 0.5 < high < 0.52
    falling = [tuple(tuple((p, s, -y) for p, s, y in run) for run in arm) for arm in (a, b)]
    assert time_to_target(*falling, lower_is_better=True).ratio == pytest.approx(0.5)
    assert time_to_target(*falling, lower_is_better=True).target == pytest.approx(-0.4)


def test_a_target_not_reached_is_a_bound():
    a, b = (line(0.8),) * 6, (line(0.4),) * 6
    found = time_to_target(a, b, target=0.6)
    assert (found.relation, found.reached_a, found.reached_b) == ("<=", 6, 0)
    assert found.ratio == pytest.approx(0.75)  # a is there at 75 of 100; b would need more than its 100
    assert found.interval == (None, pytest.approx(0.75))
    assert time_to_target(b, a, target=0.6).relation == ">="
    assert time_to_target(b, a, target=0.6).ratio == pytest.approx(1 / 0.75)
    neither = time_to_target(a, b, target=0.9)
    assert (neither.relation, neither.ratio, neither.interval) == (None, None, (None, None))
    early = time_to_target(a, b, target=0.1)  # a is there before it is first evaluated, at 20
    assert (early.relation, early.ratio) == ("<=", pytest.approx(20 / 25))


def test_few_seeds_have_a_ratio_and_no_interval():
    assert time_to_target((line(0.8),), (line(0.4),)).interval is None


def test_runs_that_fall_short_pull_the_ratio():
    slow = (*(line(0.8),) * 5, line(0.2))
    assert time_to_target(slow, (line(0.4),) * 6).ratio == pytest.approx(0.4 / 0.7)
    assert time_to_target(slow, (line(0.4),) * 6).reached_a == 5


def test_the_interval_of_the_ratio_covers():
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        # Common luck of a seed, and each run's own.
        luck = 1 + 0.05 * rng.standard_normal(8)
        own = 1 + 0.05 * rng.standard_normal((2, 8))
        a, b = (tuple(map(line, slope * luck * share)) for slope, share in zip((0.8, 0.4), own, strict=True))
        low, high = time_to_target(a, b).interval
        covered += low <= 0.5 <= high
    assert covered / 200 >= 0.9
