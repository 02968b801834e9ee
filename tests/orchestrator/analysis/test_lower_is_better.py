"""Yardsticks of which lower is better: a search and a comparison are those of the same scores upside down."""

from __future__ import annotations

import json

import pytest

from orchestrator.analysis.compare import compare
from orchestrator.analysis.selection import best_of_search, best_trials, chosen_runs
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of
from orchestrator.scheduling.confirmation import ConfirmPhase
from tests.helpers import ledgers, phases


def searched(monkeypatch, primary, score, *overrides):
    """A search and a confirmation driven by made-up scores."""
    monkeypatch.setattr(phases, "PRIMARY", primary)

    class Driver(phases.Driver):
        def score(self, planned, progress):
            return score(super().score(planned, progress))

    spec = phases.study(f"yardsticks.primary={primary}", "search.budget_per_arm=8", *overrides)
    driver = Driver(spec, seed=5).run()
    confirmed = Driver(spec, ConfirmPhase, seed=5, earlier=driver.records, trouble=False).run()
    return driver, confirmed


@pytest.mark.parametrize("algorithm", ["random", "tpe"])
def test_a_search_for_the_lowest_mirrors_one_for_the_highest(monkeypatch, algorithm):
    """Suggestions, stopped trials, the best and what is confirmed are the same for scores turned upside down."""
    options = (f"search.algorithm={algorithm}", "confirm.top=2")
    up, up_confirmed = searched(monkeypatch, "recovery_accuracy", lambda score: score, *options)
    down, down_confirmed = searched(monkeypatch, "perplexity", lambda score: 10 - score, *options)
    assert up.begun == down.begun
    assert up_confirmed.begun == down_confirmed.begun
    outcomes = [{t.trial: t.outcome for t in d.history.trials.values()} for d in (up, down)]
    assert outcomes[0] == outcomes[1]
    assert set(outcomes[0].values()) >= {"completed", "pruned"}
    for arm in up.spec.arms:
        best = best_trials(down.history, arm, 2)
        completed = [t for t in down.history.trials_of("search", arm) if t.outcome == "completed"]
        lowest = sorted(t.score("perplexity") for t in completed)
        assert [t.score("perplexity") for t in best] == lowest[:2]
        assert len(lowest) > 2, "the check is blind"


def mirrored(scores, lower, *extra):
    """A made-up study's ledger, its scores upside down where lower is better."""
    records = [ledgers.study(lower_is_better=("accuracy",) if lower else ())]
    for arm, values in scores.items():
        for seed, value in enumerate(values, 1):
            begin = ledgers.trial("confirm", arm, seed)
            amounts = ledgers.spent(tokens=begin.amount, flops=1e12, device_seconds=1.0)
            half, whole = (1 - own if lower else own for own in (0.9 * value, value))
            records += [begin, ledgers.measure(begin, 1, 0.5, scores={"accuracy": half})]
            records += [ledgers.measure(begin, 2, 1.0, scores={"accuracy": whole}, spent=amounts), ledgers.end(begin)]
    for arm, seed, value, configuration in extra:
        phase = "search" if seed < 0 else "confirm"
        records += ledgers.run(
            arm, abs(seed), 1 - value if lower else value, phase=phase, configuration={"x": configuration}
        )
    return History.of(records)


@pytest.mark.parametrize(("headless", "verdict"), [(0.45, "headless"), (0.35, "vanilla"), (0.401, "equivalent")])
def test_each_verdict_upside_down(headless, verdict):
    scores = {"vanilla": (0.4,) * 6, "headless": ledgers.around(headless)}
    up, down = compare(mirrored(scores, lower=False)), compare(mirrored(scores, lower=True))
    pairs = [comparison.pairs[0] for comparison in (up, down)]
    assert [pair.verdict for pair in pairs] == [verdict] * 2
    rows = [pair.yardsticks["accuracy"] for pair in pairs]
    assert rows[1].difference == pytest.approx(-rows[0].difference)
    assert rows[1].p == pytest.approx(rows[0].p)
    assert [row.lower_is_better for row in rows] == [False, True]
    assert ["lower is better" in verdict_in_words(comparison) for comparison in (up, down)] == [False, True]
    json.dumps(down.to_json(), allow_nan=False)


def test_words_name_the_winner_and_its_smaller_value_first():
    words = verdict_in_words(compare(mirrored({"vanilla": (0.2,) * 6, "headless": (0.4,) * 6}, lower=True)))
    assert words.startswith("headless is ahead of vanilla on accuracy (lower is better) at 2.0M tokens a trial: ")
    assert "0.600 against 0.800, difference -0.200 [-0.200, -0.200]" in words


def test_the_configuration_that_stands_for_an_arm_is_the_lowest():
    extra = [("vanilla", -1, 0.2, 1), ("vanilla", -2, 0.6, 2), ("vanilla", -3, 0.4, 3)]
    extra += [("vanilla", 1, 0.2, 1), ("vanilla", 1, 0.6, 2), ("vanilla", 1, 0.4, 3)]
    for lower in (False, True):
        state = mirrored({}, lower, *extra)
        best = best_of_search(state, "vanilla")
        assert best is not None
        assert best.configuration == {"x": 2}
        assert chosen_runs(state, "vanilla")[1].configuration == {"x": 2}


def test_a_study_writes_down_which_way_is_up():
    spec = phases.study("yardsticks={primary: bits_per_byte, others: [recovery_mrr, perplexity]}")
    assert design_of(spec).yardsticks.lower_is_better == ("bits_per_byte", "perplexity")
