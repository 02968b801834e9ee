"""Adaptive stopping against enumeration and simulation."""

from itertools import product

import numpy as np
import pytest

from orchestrator.analysis.statistics.paired import permutation_p
from orchestrator.analysis.statistics.sequential import Sequential

RULE = Sequential(minimum=6, maximum=20, margin=0.5)


def simulated(count: int, effect: float, seed: int = 0) -> list[tuple[float, ...]]:
    return [tuple(row) for row in np.random.default_rng(seed).normal(effect, 1.0, (count, 20))]


def enumerated_verdict(differences, minimum, level, planned=None):
    """The look and p of the sign-flip rule with every one of the 2^n signings followed, written out."""
    maximum = len(differences)  # fewer than planned: the others failed
    planned = planned or maximum
    signs = np.array(list(product((1, -1), repeat=maximum)))  # the first signing has every sign +
    rejected = np.zeros(len(signs), dtype=bool)
    for n in range(minimum, maximum + 1):
        size = np.where(rejected, np.inf, np.abs(signs[:, :n] @ np.array(differences[:n])))
        tail = (size >= size[:, None] * (1 - 1e-12)).sum(1)
        now = tail <= level * (1 if n == maximum else n / planned) * len(signs)
        if now[0] or n == maximum:
            return n, tail[0] / len(signs), now[0]
        rejected |= now
    raise AssertionError


@pytest.mark.parametrize("seed", range(12))
def test_the_sign_flips_are_the_enumerated_ones(seed):
    differences = tuple(np.random.default_rng(seed).normal(0.9, 1.0, 9))
    n, p, named = enumerated_verdict(differences, 5, 0.85 * 0.05)
    decision = Sequential(5, 9, margin=0.0).decide(differences)
    assert (decision.n, decision.verdict) == (n, "a" if named else "undecided")
    assert decision.p == pytest.approx(min(1.0, p / 0.85))


@pytest.mark.parametrize("seed", range(12))
def test_where_runs_failed_the_last_look_spends_what_is_left(seed):
    differences = tuple(np.random.default_rng(seed).normal(0.9, 1.0, 8))
    n, p, named = enumerated_verdict(differences, 5, 0.85 * 0.05, planned=11)
    decision = Sequential(5, 11, margin=0.0).decide(differences, ended=True)
    assert (decision.n, decision.verdict) == (n, "a" if named else "undecided")
    assert decision.p == pytest.approx(min(1.0, p / 0.85))


def test_one_look_is_the_permutation_test():
    for differences in simulated(10, 0.5):
        decision = Sequential(8, 8, margin=0.0).decide(differences[:8])
        assert decision.p == pytest.approx(min(1.0, permutation_p(differences[:8]) / 0.85))


def test_what_comes_after_the_settling_look_changes_nothing():
    clear = (1.0, 1.2, 0.9, 1.1, 1.3, 0.8, 1.05, 1.0)
    first = RULE.decide(clear)
    assert first.verdict == "a"
    assert RULE.decide((*clear, -9.0, -9.0)) == first
    assert RULE.decide(clear[:5]).verdict == "continue"
    assert RULE.decide(clear[:5]).interval is None


def test_swapping_the_arms_swaps_the_verdict():
    for differences in simulated(10, 0.6):
        decision, swapped = (RULE.decide(d) for d in (differences, tuple(-x for x in differences)))
        assert {decision.verdict, swapped.verdict} in ({"a", "b"}, {"equivalent"}, {"undecided"})
        assert (decision.n, decision.p) == (swapped.n, swapped.p)
        low, high = decision.interval
        assert swapped.interval == pytest.approx((-high, -low), abs=0.01 * (high - low))


def test_runs_that_will_not_come_end_it_with_all_that_is_left_to_spend():
    differences = (1.0, 1.2, -0.1, 1.1, 1.3, 0.8)
    assert RULE.decide(differences).verdict == "continue"
    ended = RULE.decide(differences, ended=True)
    assert (ended.verdict, ended.n) == ("undecided", 6)
    assert RULE.decide((1.0, 1.2, 0.1, 1.1, 1.3, 0.8), ended=True).verdict == "a"  # 2 / 64 may be spent now
    assert RULE.decide((1.0,), ended=True).verdict == "undecided"


def test_a_settled_verdict_stands_whatever_fails_later():
    settled = 0
    for differences in simulated(60, 0.7, seed=6):
        decision = RULE.decide(differences)
        if decision.n < 20:
            settled += 1
            for given in {decision.n, (decision.n + 20) // 2, 19}:
                assert RULE.decide(differences[:given], ended=True) == decision
    assert settled > 30


def test_false_verdicts_stay_below_5_percent_where_runs_failed():
    decisions = [RULE.decide(d[:16], ended=True, with_interval=False) for d in simulated(1000, 0.0, seed=7)]
    assert np.mean([d.verdict in "ab" for d in decisions]) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


def test_false_verdicts_stay_below_5_percent_under_peeking():
    named = [RULE.decide(d, with_interval=False).verdict in "ab" for d in simulated(1500, 0.0)]
    assert np.mean(named) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1500)
    naive = []
    for differences in simulated(300, 0.0):
        naive.append(any(permutation_p(differences[:n]) <= 0.05 for n in range(6, 14)))
    assert np.mean(naive) > 0.06  # what peeking does to the fixed test


def test_equivalence_is_rarely_found_at_the_margin():
    verdicts = [RULE.decide(d, with_interval=False).verdict for d in simulated(1000, 0.5, seed=1)]
    assert verdicts.count("equivalent") / 1000 <= 0.05
    inside = Sequential(6, 20, margin=1.5)
    verdicts = [inside.decide(d, with_interval=False).verdict for d in simulated(200, 0.0, seed=2)]
    assert verdicts.count("equivalent") / 200 >= 0.9


@pytest.mark.parametrize("effect", [0.0, 0.75])
def test_the_stopped_interval_covers(effect):
    covers = []
    for differences in simulated(500, effect, seed=3):
        stopped = differences[: RULE.decide(differences, with_interval=False).n]
        covers.append(RULE.accepts(effect, stopped))
    assert 0.92 <= np.mean(covers) <= 0.98


def test_the_interval_is_what_is_accepted():
    for differences in simulated(5, 0.8, seed=4):
        decision = RULE.decide(differences)
        stopped, (low, high) = differences[: decision.n], decision.interval
        width = high - low
        assert RULE.accepts(low + 0.01 * width, stopped)
        assert RULE.accepts(high - 0.01 * width, stopped)
        assert not RULE.accepts(low - 0.01 * width, stopped)
        assert not RULE.accepts(high + 0.01 * width, stopped)


@pytest.mark.parametrize("rule", [RULE, Sequential(3, 8, 0.5)])
def test_the_detectable_difference_is_found_with_a_chance_of_80_percent(rule):
    differences = simulated(2000, rule.minimum_detectable_effect(), seed=5)
    named = [rule.decide(d, with_interval=False).verdict == "a" for d in differences]
    assert np.mean(named) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("minimum", "maximum", "family_size"), [(6, 7, 1), (2, 6, 1), (6, 8, 1), (6, 8, 3), (3, 8, 3), (6, 9, 3)]
)
def test_the_detectable_effect_is_named_with_the_power_it_promises(minimum, maximum, family_size):
    rule = Sequential(minimum, maximum, 0.0, family_size=family_size)
    detectable = rule.minimum_detectable_effect()
    studies = np.random.default_rng(8).normal(detectable, 1.0, (400, maximum))
    named = [
        enumerated_verdict(tuple(study), minimum, 0.85 * 0.05 / family_size)[2] and study.mean() > 0
        for study in studies
    ]
    assert np.mean(named) == pytest.approx(0.8, abs=0.05)


def test_the_detectable_effect_of_many_looks():
    rule = Sequential(6, 20, 0.0, family_size=3)  # its signs are drawn
    detectable = rule.minimum_detectable_effect()
    verdicts = [rule.decide(d, with_interval=False).verdict for d in simulated(500, detectable, seed=9)]
    assert verdicts.count("a") / 500 == pytest.approx(0.8, abs=0.05)


def test_the_detectable_effect_scales_with_the_deviation_and_grows_with_the_margin():
    effects = [Sequential(6, 12, margin).minimum_detectable_effect() for margin in (0.0, 0.5, 1.0, 1.5, 3.0)]
    assert effects == sorted(effects)
    assert effects[-1] > 2.4
    assert Sequential(6, 12, 0.01).minimum_detectable_effect(0.01) == pytest.approx(0.01 * effects[2])
    assert Sequential(2, 4, 0.0).minimum_detectable_effect() is None
    assert Sequential(6, 20, 0.0, family_size=200).minimum_detectable_effect() is None  # 1 of 4096 is too many
    assert Sequential(6, 12, 0.005).minimum_detectable_effect(1e-9) == pytest.approx(0.005, rel=1e-5)


def test_a_family_has_less_to_spend_each():
    clear = (1.0, 1.2, 0.9, 1.1, 1.3, 0.8, 1.05, 1.0, 1.1, 0.95)
    assert RULE.decide(clear).n == 8
    assert Sequential(6, 20, 0.5, family_size=3).decide(clear).n > 8
