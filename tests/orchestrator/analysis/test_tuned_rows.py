"""Fine-tuned models seed by seed: what stands for a run that broke."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from orchestrator.analysis import tasks
from orchestrator.analysis.worth import Worth

SCORES = {"a1": 0.7, "a2": 0.5, "b1": 0.6, "b2": 0.4}
TUNINGS = {
    name: SimpleNamespace(split="test", task="t", trial=name, arm=name[0], rate=1e-3, scores=()) for name in SCORES
}


def run(name):
    return SimpleNamespace(trial=name, arm=name[0], seed=int(name[1]))


def whole(name):
    return Worth(0.5, run(name), False)


@pytest.fixture
def compared(monkeypatch):
    """The scores of the pairs that a row is made of."""
    found = []

    def row(design, task, tier, description, means, untrained):
        found.extend((a.overall, b.overall) for a, b in means)
        return SimpleNamespace(model_copy=lambda update: update)

    monkeypatch.setattr(tasks, "_tunings", lambda folder, record: [SimpleNamespace(overall=SCORES[record.trial])])
    monkeypatch.setattr(tasks, "_mean", lambda scores: scores[0])
    monkeypatch.setattr(tasks, "_is_at_edge", lambda *_: False)
    monkeypatch.setattr(tasks, "_metric", lambda *_: None)
    monkeypatch.setattr(tasks, "_row", row)
    return found


def rows(pairs, tunings=TUNINGS):
    history = SimpleNamespace(tunings=tunings, folder="folder", design=None)
    return list(tasks._tuned_rows(history, SimpleNamespace(tasks={"t": None}), ("a", "b"), pairs, []))


@pytest.mark.parametrize("stands_in", [Worth(0.0, run("a1"), True), Worth(0.1, run("b2"), False)])
def test_a_run_that_broke_counts_as_the_worst_of_both_arms_fine_tuned_models(compared, stands_in):
    """Elsewhere an untrained or the worst trained model stands for it: of another run, which was fine-tuned."""
    (row,) = rows(
        {
            1: (whole("a1"), whole("b1")),
            2: (whole("a2"), whole("b2")),
            3: (stands_in, whole("b1")._replace(of=run("b1"))),
        }
    )
    assert compared == [(0.7, 0.6), (0.5, 0.4), (0.4, 0.4)]
    assert (row["rate_a"], row["rate_b"]) == (1e-3, 1e-3)


def test_a_task_to_which_not_all_are_fine_tuned_yet_has_no_row(compared):
    some = {name: record for name, record in TUNINGS.items() if name != "b2"}
    assert rows({1: (whole("a1"), whole("b1")), 2: (whole("a2"), whole("b2"))}, some) == []
