"""A storage knows which studies were begun in it, whatever becomes of their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger.records import StudyRecord
from orchestrator.ledger.registry import REGISTRY, others, register, standing
from tests.helpers.ledgers import changed, study
from trainables.storage import Location


def begin(storage: Location, name: str, time: float, question: str = "Which?", **fixed: Any) -> StudyRecord:
    """A study's first record, registered."""
    content = {"question": question, "corpora": {"sources": ["a.txt"]}, "tokenizer": {}, "seed": 0} | fixed
    record = study(name=name, time=time, fixed=content)
    earlier, registered = others(storage, record)
    assert not registered
    record = changed(record, earlier=earlier)
    register(storage, record)
    return record


def test_the_best_of_many_is_visible(tmp_path: Path) -> None:
    """Another seed, name or budget is another study of the same question; another text a study of its own."""
    storage = Location(tmp_path)
    first = begin(storage, "one", 1.0)
    assert standing(first) == "study 1 of its storage; before it none had the same question or text"
    begin(storage, "another", 2.0, question="Else?", corpora={"sources": ["b.txt"]})
    begin(storage, "two", 3.0, seed=1, corpora={"sources": ["c.txt"]}, question=" which? ")
    last = begin(storage, "three", 4.0, seed=2, question="")
    assert standing(last) == "study 4 of its storage; before it 1 had the same question or text: one"
    assert others(storage, first)[0].alike == ("three", "two"), "it knows of later ones by now"


def test_a_study_is_registered_once_and_another_of_its_name_again(tmp_path: Path) -> None:
    """Deleted and begun anew: its folder is gone, its entry is not."""
    storage = Location(tmp_path)
    first = begin(storage, "one", 1.0)
    register(storage, first)
    assert len((storage / REGISTRY).names()) == 1
    assert begin(storage, "one", 2.0).earlier.alike == ("one",)
    assert others(storage, first)[1]


def test_a_study_without_a_question_is_like_those_of_its_text_alone(tmp_path: Path) -> None:
    storage = Location(tmp_path)
    begin(storage, "one", 1.0, question="")
    assert begin(storage, "two", 2.0, question="", corpora={}).earlier.alike == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "\\u001b[31m", "time": 1, "protocol_digest": "0"}'])
def test_an_entry_that_somebody_spoiled_counts(tmp_path: Path, content: bytes) -> None:
    storage = Location(tmp_path)
    begin(storage, "one", 1.0)
    (storage / REGISTRY / (storage / REGISTRY).names()[0]).write_bytes(content)
    (storage / REGISTRY / "notes.txt").write_bytes(b"")
    assert begin(storage, "two", 2.0).earlier.alike == ("unknown",)


def test_an_older_record_says_nothing() -> None:
    assert standing(study()) == standing(None) == ""
