"""What writes a ledger: a failure of it is told, and leaves nothing taken."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from orchestrator.ledger import lease, remote_log
from orchestrator.ledger.history import read_history
from orchestrator.ledger.layout import segments_of
from orchestrator.ledger.local_log import lock
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import Record
from orchestrator.ledger.remote_log import RemoteLog
from orchestrator.ledger.segments import LedgerWriter, read_ledger
from tests.helpers.ledgers import event, write_ledger
from trainables import object_store
from trainables.errors import InputError
from trainables.storage import Location


class Unlimited:
    """A lease that is never due."""

    def seconds_left(self) -> float:
        return 100.0

    def renew_if_due(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def release(self) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Location:
    """On an object store, in memory."""
    store = MemoryStore()
    monkeypatch.setattr(object_store, "_store", lambda *_: store)
    return Location("s3://bucket/study?region=us-east-1")


def test_whatever_ends_the_thread_that_writes_is_told(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's own mistake, as of one that cannot read its credentials: no error of the store's."""

    def fail(*_: object) -> None:
        raise KeyError("credentials")

    log = RemoteLog(bucket / "ledger", Unlimited())  # type: ignore[arg-type]
    monkeypatch.setattr(Location, "replace", fail)
    log.append(b"{}\n")
    with pytest.raises(KeyError, match="credentials"):
        log.flush()
    with pytest.raises(KeyError, match="credentials"):
        log.append(b"{}\n")
    log.close()


@pytest.mark.parametrize("lines", [0, 1, 9], ids=["none yet", "some", "a full segment"])
def test_a_writer_that_was_thought_dead_writes_nothing_once_another_has_taken_over(
    bucket: Location, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Also before the other has written its first line: it may be starting Ray."""
    monkeypatch.setattr(lease, "HELD_SECONDS", 0.1)
    monkeypatch.setattr(remote_log, "SEGMENT_BYTES", 500)
    monkeypatch.setattr(remote_log, "FLUSH_SECONDS", 0.0)
    stopped, ledger = LedgerWriter(bucket / "ledger"), bucket / "ledger"
    first = [event(f"before {number}") for number in range(lines)]
    for record in first:
        stopped.append(record, durable=True)
    assert lines < 9 or len(segments_of(ledger)) > 1
    leading = LedgerWriter(ledger)
    with pytest.raises(InputError, match="another process"):
        stopped.append(event("late"), durable=True)
    stopped.close()
    leading.append(event("of who leads"), durable=True)
    assert read_ledger(ledger) == [*first, event("of who leads")]
    leading.close()
    third = LedgerWriter(ledger)
    third.append(event("of the third"), durable=True)
    third.close()
    assert read_ledger(ledger) == [*first, event("of who leads"), event("of the third")]


def test_a_writer_that_slept_while_it_took_over_leaves_the_leader_alone(
    bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So long that another had its lease, before it had shut anybody out."""
    monkeypatch.setattr(lease, "HELD_SECONDS", 0.1)
    ledger, leaders = bucket / "ledger", list[LedgerWriter]()
    segments = remote_log.segments_of

    def asleep(folder: Location) -> dict[str, int]:
        if not leaders:
            monkeypatch.setattr(remote_log, "segments_of", segments)
            leaders.append(LedgerWriter(ledger))
            leaders[0].append(event("of who leads"), durable=True)
            monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.0)  # it is due long since
        return segments(folder)

    monkeypatch.setattr(remote_log, "segments_of", asleep)
    with pytest.raises(InputError, match="another process"):
        LedgerWriter(ledger)
    leaders[0].append(event("of who leads still"), durable=True)
    leaders[0].close()
    assert read_ledger(ledger) == [event("of who leads"), event("of who leads still")]


def test_a_writer_that_finds_damage_lets_go_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger" / "000001.jsonl").mkdir(parents=True)
    with pytest.raises(InputError, match="damaged"):
        LedgerWriter(Location(tmp_path / "ledger"))
    os.close(lock(tmp_path / "ledger"))


def test_a_recorder_that_finds_damage_lets_go_of_the_ledger(tmp_path: Path) -> None:
    write_ledger(tmp_path, [event("one")])
    with (tmp_path / "ledger" / "000001.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(InputError, match="damaged"):
        Recorder(Location(tmp_path / "ledger"))
    os.close(lock(tmp_path / "ledger"))


def test_the_history_has_what_threads_record_in_the_order_of_the_ledger(tmp_path: Path) -> None:
    recorder = Recorder(Location(tmp_path / "ledger"))
    append, written = recorder._writer.append, threading.Event()

    def slow_append(record: Record, *, durable: bool = False) -> None:
        append(record, durable=durable)
        if record == first:
            written.set()
            time.sleep(0.2)

    first, second = event("first"), event("second")
    recorder._writer.append = slow_append  # type: ignore[method-assign]
    thread = threading.Thread(target=recorder.record, args=(first,))
    thread.start()
    written.wait()
    recorder.record(second)
    thread.join()
    recorder.close()
    assert read_ledger(Location(tmp_path / "ledger")) == recorder.history.events == [first, second]
    assert recorder.history.head == read_history(Location(tmp_path / "ledger")).head
