import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.statistics.evidence import Evidence, of_seeds
from orchestrator.analysis.statistics.planning import follow
from orchestrator.analysis.statistics.rule import Rule, kept_back

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=6, max_size=10)
RULES = (Rule(6, 6, 0.2), Rule(6, 10, 0.2), Rule(6, 10, 0.0, family_size=3))


def decided(rule, values, ended=True):
    return rule.decide(lambda n: of_seeds(values[:n]), len(values), ended=ended)


@pytest.mark.parametrize("rule", RULES)
@given(values=DIFFERENCES)
@example(values=[0.001] * 5 + [0.1])
@example(values=[0.001] * 5 + [-0.1])
@example(values=[-0.01] * 5 + [-0.011])
@example(values=[0.0, 0.0, -0.125, -0.125, -0.125, -0.0625])
@settings(deadline=None)
def test_a_winners_interval_leaves_out_zero_and_no_others_does(rule, values):
    decision = decided(rule, values)
    low, high = decision.interval
    told_apart = low > 0 or high < 0
    assert told_apart == (decision.p <= 0.05) or min(abs(low), abs(high)) < 1e-9
    if decision.verdict in ("a", "b"):
        assert told_apart
    if decision.verdict == "equivalent":
        assert abs(decision.evidence.mean) < rule.margin


@pytest.mark.parametrize("rule", RULES)
@given(values=DIFFERENCES)
@settings(deadline=None)
def test_swapping_the_arms_swaps_the_verdict(rule, values):
    one, other = decided(rule, values), decided(rule, [-value for value in values])
    assert other.verdict == {"a": "b", "b": "a"}.get(one.verdict, one.verdict)
    assert (other.p, other.evidence.n) == (one.p, one.evidence.n)


def test_an_adjusted_p_is_no_smaller_than_the_one_it_adjusts():
    """Of a hundred thousand simulated paths none is as far from 0: it was 0."""
    decision = decided(Rule(6, 14, 0.0), np.random.default_rng(0).normal(1.0, 0.01, 14))
    assert decision.p >= float(decision.evidence.p()) > 0


def test_a_fixed_number_is_a_t_test_with_less_than_the_level():
    values = np.random.default_rng(0).normal(0.5, 1, 8)
    decision = decided(Rule(8, 8, 0.0, family_size=3), values)
    test = stats.ttest_1samp(values, 0)
    assert decision.p == pytest.approx(min(1, test.pvalue * 3 / (1 - kept_back(8, 3))))
    level = 0.05 * (1 - kept_back(8, 3)) / 3
    assert decision.interval == pytest.approx(tuple(test.confidence_interval(1 - level)))


def test_a_fixed_number_is_equivalent_by_two_tests_of_one_side():
    values = np.random.default_rng(0).normal(0.05, 0.1, 8)
    level = 0.05 * (1 - kept_back(8, 1))
    low, high = stats.ttest_1samp(values, 0).confidence_interval(1 - 2 * level)
    furthest = max(abs(low), abs(high))
    assert decided(Rule(8, 8, 1.001 * furthest), values).verdict == "equivalent"
    assert decided(Rule(8, 8, 0.999 * furthest), values).verdict != "equivalent"
    assert decided(Rule(5, 5, 100.0), values[:5]).verdict != "equivalent"  # too few


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.1, "a"), (-0.1, "b"), (0.001, "equivalent"), (0.0, "equivalent")]
)
@pytest.mark.parametrize("rule", [Rule(6, 6, 0.005), Rule(6, 10, 0.005), Rule(6, 6, 0.005, family_size=3)])
def test_equal_differences_get_a_verdict(rule, difference, verdict):
    """A tenth is no binary fraction: their deviation is rounding, and not quite 0."""
    decision = decided(rule, [difference] * 6, ended=False)
    assert decision.verdict == verdict
    assert decision.p == (1.0 if difference == 0 else 0.0)
    assert decision.interval == pytest.approx((difference, difference))


@pytest.mark.parametrize("last", [-1e30, math.nan])
@pytest.mark.parametrize("rule", [Rule(6, 6, 0.005), Rule(6, 10, 0.005), Rule(6, 6, 0.0, family_size=3)])
def test_a_seed_beyond_all_bounds_makes_nobody_the_winner(rule, last):
    values = [-2.0] * 5 + [last]
    decision = decided(rule, values)
    assert decision.verdict == "undecided"
    assert 0.05 < decision.p <= 1
    if rule == Rule(6, 6, 0.005) and last == -1e30:
        assert decision.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue / (1 - kept_back(6, 1)))


def test_three_arms_at_six_seeds_can_be_told_apart():
    """As many as two arms need, where the difference is large."""
    values = (0.10, 0.12, 0.09, 0.11, 0.10, 0.13)
    for family_size in (1, 3, 6):
        assert decided(Rule(6, 6, 0.005, family_size), values).verdict == "a"
    assert decided(Rule(6, 6, 0.005, 3), [-value for value in values]).verdict == "b"


def test_pairs_after_the_look_that_settled_change_nothing():
    values = list(np.random.default_rng(1).normal(2, 1, 10))
    decision = decided(Rule(6, 10, 0.0), values)
    assert decision.verdict == "a"
    assert decision.evidence.n < 10
    assert decided(Rule(6, 10, 0.0), [*values[: decision.evidence.n], -50.0]) == decision


def test_it_goes_on_until_an_answer_or_the_last_pair():
    values = [0.5, -0.5] * 5
    rule = Rule(6, 10, 0.01)
    assert decided(rule, values[:8], ended=False).verdict == "continue"
    assert decided(rule, values).verdict == "undecided"
    early = decided(rule, values[:8])  # no further pair will come
    assert (early.verdict, early.evidence.n) == ("undecided", 8)
    assert early.p is not None


@pytest.mark.parametrize("rule", [Rule(6, 6, 0.0), Rule(6, 14, 0.0), Rule(6, 14, 0.0, family_size=3)])
@pytest.mark.parametrize("text", [0.0, 0.5])
def test_false_winners_are_as_rare_as_promised(rule, text):
    rng = np.random.default_rng(2)
    error = text / np.sqrt(6)
    values = rng.standard_normal((20_000, rule.maximum)) + error * rng.standard_normal((20_000, 1))
    text = {"text_variance": np.float64(error**2), "text_degrees": np.float64(np.inf)}
    verdicts, _ = follow(rule, len(values), lambda n, which: of_seeds(values[which, :n])._replace(**text))
    assert np.isin(verdicts, ("a", "b")).mean() <= 0.05 / rule.family_size + 0.003


def test_equivalence_at_the_margin_is_as_rare_as_promised():
    rule = Rule(6, 14, 1.0)
    values = np.random.default_rng(3).standard_normal((20_000, rule.maximum)) + rule.margin
    verdicts, _ = follow(rule, len(values), lambda n, which: of_seeds(values[which, :n]))
    assert (verdicts == "equivalent").mean() <= 0.053


def test_the_verdict_of_one_study_is_that_of_many():
    rule = Rule(6, 12, 0.4)
    values = np.random.default_rng(4).normal(0.5, 1, (50, 12))
    verdicts, looks = follow(rule, len(values), lambda n, which: of_seeds(values[which, :n]))
    for own, verdict, look in zip(values, verdicts, looks, strict=True):
        decision = decided(rule, own)
        assert (decision.verdict, decision.evidence.n) == (verdict, rule.looks[look])


def test_the_text_is_one_of_the_two_sources_of_chance():
    seeds = of_seeds([0.1, 0.12, 0.09, 0.11, 0.1, 0.1])
    sure = Rule(6, 6, 0.0).decide(lambda n: seeds, 6)
    unsure = Rule(6, 6, 0.0).decide(
        lambda n: Evidence(*seeds[:3], text_variance=np.float64(0.01), text_degrees=np.float64(50)), 6
    )
    assert (sure.verdict, unsure.verdict) == ("a", "undecided")


def test_what_ends_early_is_judged_at_its_last_look_alone():
    """An earlier look that had no verdict has none later, though fewer looks might have spent more by then."""
    values = (0.03, 0.045, 0.015, 0.03, -0.15, -0.07)
    rule = Rule(4, 14, 0.0)
    assert decided(rule, values, ended=False).verdict == "continue"
    assert decided(Rule(4, 6, 0.0), values[:4]).verdict == "a", "the check is blind"
    found = decided(rule, values)
    assert (found.verdict, found.evidence.n) == ("undecided", 6)


@pytest.mark.slow
def test_a_look_that_may_name_nobody_has_no_interval():
    rule = Rule(6, 400, 0.01, family_size=6)
    look = next(n for n, level in zip(rule.looks, rule.levels, strict=True) if level == 0 and n >= 6)
    found = decided(rule, [0.0001 * (-1) ** n for n in range(look)], ended=False)
    assert found.verdict == "equivalent" or found.interval is None
    if found.evidence.n == look:
        assert found.interval is None


def test_what_cannot_be_called_equivalent_may_differ():
    values = (0.010, 0.011, 0.012, 0.010, 0.011, 0.012)
    rule = Rule(6, 6, 0.1)

    def held_back(n, verdict, level):
        return "sensitivity" if verdict == "equivalent" else None

    assert decided(rule, values).verdict == "equivalent"
    found = rule.decide(lambda n: of_seeds(values[:n]), 6, ended=True, withheld=held_back)
    assert (found.verdict, found.withheld) == ("a", None)
    found = rule.decide(lambda n: of_seeds(values[:n]), 6, ended=True, withheld=lambda n, verdict, level: "floor")
    assert (found.verdict, found.withheld) == ("undecided", "floor")
