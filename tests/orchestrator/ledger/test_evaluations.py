"""What models were asked when their study had ended, as the ledger's history has it."""

from __future__ import annotations

from orchestrator.ledger.history import History
from orchestrator.ledger.records import EvaluationRecord, TasksRecord
from tests.helpers.ledgers import study
from trainables.evaluation.yardstick import Score
from trainables.training.environment import environment


def asked(trial, digest):
    score = Score(overall=0.5, languages={"pairs/en": 0.5})
    return EvaluationRecord(trial=trial, tasks=digest, scores={"head": score}, items="x", environment=environment())


def tasks(digest, items):
    return TasksRecord(digest=digest, items=items, tasks={}, exploratory=True)


def test_answers_to_another_number_of_examples_count_no_more():
    """Models that were asked different examples are not compared."""
    history = History.of([study(), tasks("one", 20), asked("a", "one"), asked("b", "one")])
    history.apply(tasks("two", 20))
    history.apply(asked("a", "two"))
    assert {digest: set(found) for digest, found in history.evaluations.items()} == {"one": {"a", "b"}, "two": {"a"}}
    history.apply(tasks("one", 20))
    assert set(history.evaluations["one"]) == {"a", "b"}
    history.apply(tasks("one", 500))
    assert set(history.evaluations) == {"two"}
    history.apply(asked("b", "one"))
    assert set(history.evaluations["one"]) == {"b"}
