"""What a search could not show: a best value at a bound, little gained, few trials that came to the end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from orchestrator.analysis.compare import compare
from orchestrator.analysis.statistics import tuning_curves
from orchestrator.analysis.statistics.tuning_curves import _band, chance_of_better
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.reporting.result_tables import search_table
from tests.helpers.ledgers import NOISE, around, end, measure, run, study, trial

WIDE = {"learning_rate": {"type": "float", "low": 1e-4, "high": 1e-2, "log": True}}
LEVELS = {"headless": 0.4, "vanilla": 0.3}


def studied(rates, *, dimensions=WIDE, tried=(), design=None, noise=NOISE, levels=LEVELS):
    """Six seeds of each arm at its rate, which was the best of its search; with what else the search ``tried``."""
    arms = {arm: {"space": {"dimensions": dimensions, "first": []}} for arm in LEVELS}
    records = [study(fixed={"arms": arms}, **design or {})]
    for arm, rate in rates.items():
        for number, (own, score) in enumerate([(rate, 0.5), *((other, 0.2) for other in tried)]):
            records += run(arm, number, score, phase="search", configuration={"learning_rate": own}, number=number)
        for seed, score in enumerate(around(levels[arm], noise if arm == "headless" else NOISE), 1):
            records += run(arm, seed, score, configuration={"learning_rate": rate})
    return History.of(records)


def test_a_best_value_inside_its_range_leaves_the_verdict():
    comparison = compare(studied({"headless": 1e-3, "vanilla": 2e-3}))
    assert comparison.pairs[0].verdict == "headless"
    assert "boundary" not in verdict_in_words(comparison)


@pytest.mark.parametrize("arm", LEVELS)
def test_a_best_value_at_a_bound_leaves_the_pair_undecided(arm):
    comparison = compare(studied({"headless": 1e-3, "vanilla": 1e-3} | {arm: 0.00967}))
    (pair,) = comparison.pairs
    assert (pair.verdict, pair.withheld, pair.more_seeds) == ("undecided", "boundary", None)
    words = verdict_in_words(comparison)
    assert "is undecided: the search ended at its boundary" in words
    assert f"learning_rate of {arm} (0.00967, tried up to 0.01)" in words
    assert "more seed" not in words, "seeds would not settle it"
    assert pair.yardsticks["accuracy"].p is not None, "the evidence stays"


@pytest.mark.parametrize("seeds", [6, 8])
def test_a_bound_withholds_nothing_where_there_is_no_verdict(seeds):
    """More seeds are wanted first: they are planned, or would settle it."""
    noise, levels = [10 * own for own in NOISE], {"headless": 0.404, "vanilla": 0.4}
    rates, design = {"headless": 0.00967, "vanilla": 1e-3}, {"seeds": seeds}
    comparison = compare(studied(rates, noise=noise, levels=levels, design=design))
    (pair,) = comparison.pairs
    assert (pair.verdict, pair.withheld) == ("undecided", None)
    words = verdict_in_words(comparison)
    assert "boundary" not in words
    assert ("more seeds would settle it" in words) == (seeds == 6)
    assert ("2 planned seeds yet to end" in words) == (seeds == 8)
    assert [bound.name for bound in comparison.arms["headless"].boundaries] == ["learning_rate"], "it is shown"


def test_arms_that_are_alike_at_a_bound_are_not_equivalent():
    """Either might be better beyond it."""
    alike = dict.fromkeys(LEVELS, 0.4)
    inside = compare(studied({"headless": 1e-3, "vanilla": 1e-3}, levels=alike)).pairs[0]
    assert inside.verdict == "equivalent"
    (pair,) = compare(studied({"headless": 1e-3, "vanilla": 1e-2}, levels=alike)).pairs
    assert (pair.verdict, pair.withheld, pair.variants) == ("undecided", "boundary", ())


def test_a_closed_end_or_one_that_was_tried_beyond_is_no_boundary():
    rates = {"headless": 1e-3, "vanilla": 0.00967}
    closed = {"learning_rate": WIDE["learning_rate"] | {"closed": "high"}}
    assert compare(studied(rates, dimensions=closed)).pairs[0].verdict == "headless"
    assert compare(studied(rates, tried=[0.04])).pairs[0].verdict == "headless"


def test_without_a_search_or_its_space_nothing_is_said():
    rates = {"headless": 1e-3, "vanilla": 0.00967}
    assert compare(studied(rates, design={"search_budget": 0.0})).pairs[0].verdict == "headless"
    history = studied(rates)
    history.study = study()  # of a ledger without a protocol
    assert compare(history).pairs[0].verdict == "headless"


def searched(*trials, lower=False):
    """Of (outcome, progress, scores by rung)."""
    records = [study(lower_is_better=("accuracy",) if lower else ())]
    for number, (outcome, *scores) in enumerate(trials):
        begin = trial("search", "headless", number)
        records.append(begin)
        for rung, score in enumerate(scores):
            progress = (1 / 9, 1 / 3, 1.0)[rung]
            own = None if progress == 1.0 else rung
            records.append(measure(begin, rung + 1, progress, rung=own, scores={"accuracy": score}))
        records.append(end(begin, outcome))
    return compare(History.of(records))


@pytest.mark.parametrize("lower", [False, True])
def test_what_tuning_gained_over_the_first_configuration(lower):
    """Where that one was last measured: a score at a rung is held against one at the same rung."""
    sign = -1 if lower else 1
    comparison = searched(
        ("pruned", sign * 0.10), ("completed", sign * 0.13, sign * 0.3, sign * 0.5), ("diverged",), lower=lower
    )
    found = comparison.arms["headless"].search
    assert (found.begun, found.completed) == (3, 1)
    assert (found.gain, found.gain_at) == (pytest.approx(0.03), pytest.approx(1 / 9))
    assert found.spent == pytest.approx(1 / 9 + 1)
    assert found.better_if_doubled is None, "one completed trial tells nothing"
    assert comparison.arms["vanilla"].search is None
    shown = [str(cell) for cell in search_table(comparison).rows[0].cells]
    assert "1 of 3" in shown
    assert "+0.030\nat 11%" in shown


def test_the_first_configuration_may_be_the_best():
    found = searched(("completed", 0.1, 0.2, 0.5), ("completed", 0.1, 0.2, 0.4)).arms["headless"].search
    assert (found.gain, found.gain_at) == (0.0, 1.0)


def test_the_tuning_curve_is_over_spending():
    curve = searched(("pruned", 0.1), ("pruned", 0.1), ("completed", 0.1, 0.2, 0.5)).arms["headless"].tuning
    assert curve.n == (1, 2, 3)
    assert curve.spent == pytest.approx([n * (2 / 9 + 1) / 3 for n in (1, 2, 3)])


def test_the_chance_of_better_is_that_over_all_orders():
    """By going through every order of few trials."""
    spent, scores, by = (0.2, 1.0, 1.0, 0.3, 0.5), (None, 0.50, 0.46, None, 0.44), 0.03
    better = []
    for order in itertools.permutations(range(5)):
        first, second, so_far = -np.inf, -np.inf, 0.0
        for index in order:
            so_far += spent[index]
            value = -np.inf if scores[index] is None else scores[index]
            first, second = (max(first, value), second) if so_far <= 1.5 else (first, max(second, value))
        better.append(second > first + by)
    assert chance_of_better(spent, scores, by) == pytest.approx(np.mean(better), abs=0.03)
    assert chance_of_better(spent, scores, 0.2) < chance_of_better(spent, scores, 0.0)
    assert chance_of_better((1.0, 1.0), (0.5, None), 0.0) is None


def test_samples_are_the_same_some_at_a_time(monkeypatch):
    spent, scores = (0.2, 1.0, 1.0, 0.3, 0.5), (None, 0.50, 0.46, None, 0.44)
    whole = chance_of_better(spent, scores, 0.03), _band.__wrapped__(5, 0.95)
    monkeypatch.setattr(tuning_curves, "BLOCK", 37)
    assert chance_of_better(spent, scores, 0.03) == whole[0]
    np.testing.assert_array_equal(_band.__wrapped__(5, 0.95), whole[1])
