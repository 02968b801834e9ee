"""The learning rate of an arm's fine-tunings."""

from __future__ import annotations

import pytest

from orchestrator.analysis.tuning import DevScore, choose_rate
from trainables.errors import InputError


def scores(table):
    """Of ``{rate: {model: scores by seed}}``."""
    return [
        DevScore(model, rate, seed, score)
        for rate, models in table.items()
        for model, own in models.items()
        for seed, score in enumerate(own)
    ]


def test_the_best_mean_over_models_decides():
    chosen = choose_rate(
        scores({1e-4: {"a": [0.5], "b": [0.7]}, 3e-4: {"a": [0.6], "b": [0.8]}, 1e-3: {"a": [0.9], "b": [0.3]}})
    )
    assert (chosen.rate, chosen.at_edge) == (3e-4, False)
    assert chosen.score == pytest.approx(0.7)


def test_ties_take_the_lowest_and_edges_are_named():
    assert choose_rate(scores({1e-3: {"a": [0.1 + 0.2]}, 1e-4: {"a": [0.3]}})) == (1e-4, 0.3, True)
    assert not choose_rate(scores({1e-4: {"a": [0.3]}})).at_edge


@pytest.mark.parametrize(
    "table",
    [
        {},
        {1e-4: {"a": [0.5]}, 1e-3: {"b": [0.5]}},
        {1e-4: {"a": [0.5, 0.6]}, 1e-3: {"a": [0.5]}},
        {1e-4: {"a": [float("nan")]}},
    ],
    ids=["none", "other models", "fewer seeds", "no number"],
)
def test_unequal_trials_are_refused(table):
    with pytest.raises(InputError, match="no learning rate"):
        choose_rate(scores(table))
