"""A storage that fails or says nothing while somebody watches."""

from __future__ import annotations

import threading

import pytest

from orchestrator.ledger.records import EventRecord
from orchestrator.ledger.segments import LedgerReader, LedgerWriter
from orchestrator.reporting.listening import Listening
from trainables.object_store import REQUEST_SECONDS, Patience
from trainables.storage import Location


class Ledger:
    """One whose storage does what is asked of it."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.error: OSError | None = None
        self.patience: float | None = None
        self.polls = 0

    def poll(self) -> list[EventRecord]:
        self.polls += 1
        self.patience = Patience.of_this_thread.get()
        self.answers.wait(30)
        if self.error is not None:
            raise self.error
        return [EventRecord(message=str(self.polls))]


@pytest.fixture
def ledger():
    return Ledger()


def listening(ledger, patience=None):
    return Listening(ledger, patience)


def messages(records):
    return [record.message for record in records]


def test_a_storage_that_says_nothing_holds_nobody_up_and_is_told(ledger):
    heard = listening(ledger)
    ledger.answers.clear()
    assert heard.heard(0.05) == heard.heard(0.05) == []
    assert ledger.polls == 1, "one question at a time"
    assert "the storage has not answered since" in heard.silence
    assert heard.silence.endswith("is asked again")
    ledger.answers.set()
    assert messages(heard.heard(10)) == ["1"]
    assert heard.silence == ""


def test_a_storage_that_fails_is_told_with_its_reason_and_how_long_the_study_waits(ledger):
    heard = listening(ledger, patience=300.0)
    ledger.error = OSError("connection refused")
    assert heard.heard() == []
    first = heard.silence
    assert heard.heard() == []
    assert heard.silence == first, "since the first question that was not answered"
    assert "is waited for until" in first
    assert "h2h resume" in first
    assert first.endswith("connection refused")
    ledger.error = PermissionError("no")
    with pytest.raises(PermissionError):
        heard.heard()


def test_who_only_looks_is_brief_in_a_process_that_leads(ledger, monkeypatch):
    monkeypatch.setattr(Patience, "seconds", Patience.FOR_STUDIES)
    listening(ledger).heard()
    assert ledger.patience == REQUEST_SECONDS
    assert Patience.of_this_thread.get() is None


def test_the_last_records_are_those_of_a_question_that_was_asked_at_the_end(ledger):
    heard = listening(ledger)
    ledger.answers.clear()
    heard.heard(0.01)
    threading.Timer(0.2, ledger.answers.set).start()
    assert messages(heard.last()) == ["1", "2"]
    ledger.error = OSError("gone")
    heard.heard()
    ledger.error = None
    assert messages(heard.last()) == ["4"], "it answers again"


def test_no_record_is_lost_where_a_later_segment_cannot_be_read(tmp_path, monkeypatch):
    folder, whole = Location(tmp_path), LedgerReader._read_segment
    for message in ("one", "two"):
        writer = LedgerWriter(folder)
        writer.append(EventRecord(message=message))
        writer.close()
    failing = {"000002.jsonl"}

    def read(reader, name):
        if name in failing:
            raise OSError("no answer")
        return whole(reader, name)

    monkeypatch.setattr(LedgerReader, "_read_segment", read)
    reader = LedgerReader(folder)
    with pytest.raises(OSError, match="no answer"):
        reader.poll()
    failing.clear()
    assert messages(reader.poll()) == ["one", "two"]
    assert reader.poll() == []
