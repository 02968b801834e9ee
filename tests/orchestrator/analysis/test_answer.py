"""What an old study answered is what its ledger says, whatever this version would make of it."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.analysis.answer import Answer, answer_of, leaves, same
from orchestrator.analysis.compare import compare
from orchestrator.ledger.history import History
from orchestrator.ledger.records import ComparisonRecord, Record, StudyRecord
from orchestrator.reporting.dashboard import print_results
from orchestrator.reporting.log_lines import lines_of
from orchestrator.reporting.results import Results
from tests.helpers.demonstration import records
from tests.helpers.ledgers import changed, write_ledger
from trainables.storage import Location

Edit = Callable[[dict[str, Any]], object]
PRIMARY = "recovery_accuracy"


def pair_of(comparison: dict[str, Any]) -> dict[str, Any]:
    (pair,) = comparison["pairs"]
    assert isinstance(pair, dict)
    return pair


def ledger(edit: Edit, version: str = "0.0.9") -> list[Record]:
    """The demonstration's, by another version that came to another comparison."""
    whole = list[Record]()
    for record in records():
        if isinstance(record, StudyRecord):
            record = changed(record, versions={"headtohead": version})
        if isinstance(record, ComparisonRecord):
            comparison = record.model_dump(mode="json")["comparison"]
            edit(comparison)
            record = changed(record, comparison=comparison)
        whole.append(record)
    return whole


def answer(edit: Edit) -> Answer:
    return answer_of(History.of(ledger(edit)))


def test_what_was_recorded_counts_and_the_difference_is_told() -> None:
    def edit(comparison: dict[str, Any]) -> None:
        pair_of(comparison)["verdict"] = "undecided"
        pair_of(comparison)["more_seeds"] = 7
        pair_of(comparison)["yardsticks"][PRIMARY]["p"] = 0.31
        pair_of(comparison)["yardsticks"][PRIMARY]["p_adjusted"] = 0.31

    found = answer(edit)
    pair = found.comparison.pairs[0]
    assert (pair.verdict, pair.more_seeds, pair.yardsticks[PRIMARY].p) == ("undecided", 7, 0.31)
    assert compare(History.of(ledger(edit))).pairs[0].verdict == "headless", "the check is blind"
    assert "recorded with headtohead 0.0.9" in found.note
    assert "pairs[0].verdict, pairs[0].more_seeds, pairs[0].yardsticks" in found.note
    assert "and 1 more differ" in found.note
    assert 'this version says: "headless is ahead of vanilla' in found.note
    first, *rest = found.verdict.split("\n\n")
    assert not first.startswith("headless is ahead")
    assert rest[-1] == found.note


def test_another_number_under_the_same_words() -> None:
    def edit(comparison: dict[str, Any]) -> None:
        pair_of(comparison)["matched"]["tokens"]["difference"] += 0.01

    found = answer(edit)
    assert "pairs[0].matched.tokens.difference differ" in found.note
    assert found.note.endswith("this version comes to the same words")


def test_the_same_numbers_of_another_machine_are_no_difference() -> None:
    def edit(comparison: dict[str, Any]) -> None:
        row = pair_of(comparison)["yardsticks"][PRIMARY]
        row["difference"] *= 1 + 1e-12
        row["p"] += 1e-13

    assert answer(edit).note == ""


def test_a_form_that_this_version_does_not_know() -> None:
    """Its own answer is shown, and said to be that."""

    def edit(comparison: dict[str, Any]) -> None:
        comparison["winners"] = comparison.pop("pairs")

    found = answer(edit)
    assert found.comparison == compare(History.of(records()))
    assert "headtohead 0.0.9, in a form that this version does not know" in found.note


def test_before_there_is_an_answer_it_follows_from_the_ledger() -> None:
    before = [record for record in records() if not isinstance(record, ComparisonRecord)]
    found = answer_of(History.of(before))
    assert found == (compare(History.of(before)), "")


def test_everybody_shows_the_recorded_answer(tmp_path: Path) -> None:
    """Results, the tables at the end and the log."""

    def edit(comparison: dict[str, Any]) -> None:
        row = pair_of(comparison)["yardsticks"][PRIMARY]
        row["mean_a"], row["mean_b"], row["difference"] = 0.9, 0.1, 0.8

    whole = ledger(edit)
    write_ledger(tmp_path, whole)
    results = Results(Location(tmp_path))
    row = results.comparison.query(f"yardstick == '{PRIMARY}'").iloc[0]
    assert (row.mean_a, row.mean_b, row.difference) == (0.9, 0.1, 0.8)
    assert "0.900 against 0.100" in results.verdict
    assert "recorded with headtohead 0.0.9" in results.verdict
    console = Console(file=StringIO(), width=200)
    print_results(results.history, Location(tmp_path), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "+0.800" in text
    assert "recorded with headtohead 0.0.9" in text
    history = History()
    told = []
    for record in whole:
        history.apply(record)
        if isinstance(record, ComparisonRecord):
            told += lines_of(record, history)
    assert "0.900 against 0.100" in told[0]
    assert "recorded with headtohead 0.0.9" in told[-1]


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": None}, {}, []),
        ({"a": 0}, {}, ["a"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": float("inf")}, {"a": float("inf")}, []),
        ({"a": 1e30}, {"a": 1e30 * (1 + 1e-8)}, ["a"]),
        ({"a": 0.0}, {"a": 1e-10}, []),
    ],
)
def test_where_two_values_differ(one: Any, other: Any, places: list[str]) -> None:
    assert [place for place, was, found in leaves(one, other) if not same(was, found)] == places
