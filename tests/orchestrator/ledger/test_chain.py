"""Each line of a ledger says what lies before it, whatever happened in between."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from orchestrator.ledger.history import read_history
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import EventRecord
from orchestrator.ledger.segments import LedgerReader, LedgerWriter, read_ledger
from tests.helpers.ledgers import study, write_ledger
from trainables.storage import Location


def lines(folder: Path) -> list[bytes]:
    """Those that are whole, in their order."""
    return [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().split(b"\n")[:-1]]


def head_of(written: list[bytes]) -> str:
    """By hashlib alone: the digest of the head before, as text, and the line."""
    head = "0" * 32
    for line in written:
        head = hashlib.blake2b(head.encode() + line, digest_size=16).hexdigest()
    return head


def write(folder: Path, *messages: str) -> str:
    """A session; gives the head at its end."""
    writer = LedgerWriter(Location(folder))
    for message in messages:
        writer.append(EventRecord(message=message))
    writer.close()
    return writer.head


def assert_chained(folder: Path, unchained: int = 0) -> None:
    written = lines(folder)
    claimed = [json.loads(line).get("before") for line in written]
    assert claimed == [None] * unchained + [head_of(written[:n]) for n in range(unchained, len(written))]


def test_every_line_carries_the_digest_of_what_came_before_it(tmp_path: Path) -> None:
    """Over sessions, one of which wrote nothing, and one whose last line was torn."""
    write(tmp_path, "one", "two")
    write(tmp_path)
    with (tmp_path / "000002.jsonl").open("ab") as file:
        file.write(b'{"before":"0123')
    head = write(tmp_path, "three", "four")
    assert_chained(tmp_path)
    assert head == head_of(lines(tmp_path))
    assert [record.message for record in read_ledger(Location(tmp_path))] == ["one", "two", "three", "four"]


def test_a_ledger_from_before_there_was_a_chain_goes_on_with_one(tmp_path: Path) -> None:
    """Its lines count in the head from then on."""
    write_ledger(tmp_path, [study(), EventRecord(message="one")])
    write(tmp_path / "ledger", "two")
    assert_chained(tmp_path / "ledger", unchained=2)
    assert len(read_ledger(Location(tmp_path / "ledger"))) == 3


def test_the_head_is_known_to_whoever_reads_or_writes(tmp_path: Path) -> None:
    recorder = Recorder(Location(tmp_path))
    reader = LedgerReader(Location(tmp_path))
    for message in ("one", "two"):
        recorder.event(message)
        reader.poll()
        assert recorder.history.head == reader.head == head_of(lines(tmp_path))
    recorder.close()
    assert read_history(Location(tmp_path)).head == reader.head
