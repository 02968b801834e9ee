"""What writes a ledger: a failure of it is told, and leaves nothing taken."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from orchestrator.ledger.history import read_history
from orchestrator.ledger.local_log import lock
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import Record
from orchestrator.ledger.remote_log import RemoteLog
from orchestrator.ledger.segments import LedgerWriter, read_ledger
from tests.helpers.ledgers import event, write_ledger
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


def test_whatever_ends_the_thread_that_writes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's own mistake, as of one that cannot read its credentials: no error of the store's."""

    def fail(*_: object) -> None:
        raise KeyError("credentials")

    monkeypatch.setattr(Location, "replace", fail)
    log = RemoteLog(Location(tmp_path), Unlimited())  # type: ignore[arg-type]
    log.append(b"{}\n")
    with pytest.raises(KeyError, match="credentials"):
        log.flush()
    with pytest.raises(KeyError, match="credentials"):
        log.append(b"{}\n")
    log.close()


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
