"""The ledger: the append-only record of everything a study spent and measured.

A ledger is a folder of segments, ``ledger/000001.jsonl`` and on, one JSON object a line. Every writing session
opens a segment of its own, so a line torn by a power cut can only be a segment's last one and is passed over by
the reader. On an object store, which cannot append, the open segment is written again whole, now and then.

Records, by ``kind`` (all carry ``time``, seconds since the epoch; those of a trial carry ``phase``, ``arm``,
``trial`` and ``attempt``):

=============  ======================================================================================================
``study``      a session began: ``name``, ``folder``, ``digest`` of the frozen study, ``protocol`` and its
               ``protocol_digest``, what the comparison reads of it (``orchestrator.ledger.protocol.deciding``),
               ``versions``, ``machine``, ``usd_per_hour`` of a worker (or null)
``extension``  the study was let spend more: ``changes``, by key of the study ``[before, after]``
``corpus``     ``fingerprint``, ``vocabulary_size``, ``sequence_length``, ``languages``: per language ``tokens``,
               ``sequences``, ``documents`` of the training split, ``target_share``
``phase``      ``phase`` (``prepare``, ``search``, ``confirm``, ``anytime``, ``compare``), ``status`` (``begin`` or
               ``end``)
``trial``      an attempt is asked for: ``number``, ``configuration``, ``seed``, ``amount`` of its budget, ``share`` of
               the budget of the confirmation run that it leaves (``anytime``; else null), ``start_step``, ``workers``
``begun``      its process has built the trial: ``step``, ``workers``, ``spent`` up to that step, ``overhead`` so far
``measure``    a trial's report: ``step``, ``progress`` (0 to 1), ``spent`` (by the trial, in all units that are known),
               ``overhead`` (by the attempt, seconds by cause), ``loss``, ``learning_rate``, ``digest`` of the data
               seen, ``mix`` (sequences seen per language), ``rung`` (its number, or null), ``yardsticks`` ({} between
               evaluations)
``end``        an attempt ended: ``outcome`` (``completed``, ``pruned``, ``diverged``, ``failed``; or, with more to
               come, ``interrupted``, ``retried``, ``paused``), ``reason``; of one that saved itself ``spent`` and
               ``overhead``
``resources``  ``cluster``: ``{"CPU": [used, total], ...}``
``stop``       the session was asked to save and stop (``status``: ``begin``), or has stopped so (``end``)
``event``      ``message`` for a person
``cap``        the study's cap ended a phase early: ``message``, ``phase``, ``seeds`` that were confirmed (or null)
``comparison`` what the ``compare`` phase concluded (see ``orchestrator.analysis.comparison``)
=============  ======================================================================================================
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from io import FileIO
from typing import Any

from trainables.errors import InputError
from trainables.storage import FullDiskError, Location, space_for

Record = dict[str, Any]

SEGMENT_BYTES = 1 << 20
"""On an object store a segment is closed at this size, which bounds what a flush writes again."""

REMOTE_FLUSH_SECONDS = 2.0
"""On an object store at least so long passes between two flushes, unless a record asks for one."""


class LedgerWriter:
    """The one writer of a study's ledger. Not safe for two processes; safe for the threads of one.

    Args:
        folder: the study's ``ledger`` folder.
    """

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._exclusive = _exclusive(folder)
        self._file: FileIO | None = None
        self._lines: list[bytes] = []
        self._flushed = 0.0
        self._open_segment()

    def _open_segment(self) -> None:
        numbers = [int(name.split(".")[0]) for name in self._folder.names() if name.endswith(".jsonl")]
        self._segment = self._folder / f"{max(numbers, default=0) + 1:06d}.jsonl"
        self._lines = []
        if self._segment.local is not None:
            with space_for(self._segment.local):
                self._file = self._segment.local.open("xb", buffering=0)
        else:
            self._segment.write_bytes(b"")

    def append(self, kind: str, *, flush: bool = True, **fields: Any) -> Record:
        """Add one record, stamped with the time; returns it as written.

        Args:
            kind: see the module's table.
            flush: on an object store, whether it must be there on return (True) or may wait a moment.
            **fields: JSON values; NaN and infinities are refused, as JSON has none.

        Raises:
            FullDiskError: there is no space left for the record; of it nothing is written.
        """
        record: Record = {"kind": kind, "time": round(time.time(), 3), **fields}
        line = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file is not None:
                self._write_local(self._file, line)
                return record
            self._lines.append(line)
            if flush or time.monotonic() - self._flushed > REMOTE_FLUSH_SECONDS:
                self._flush_remote()
        return record

    def _write_local(self, file: FileIO, line: bytes) -> None:
        assert self._segment.local is not None
        before = file.tell()
        try:
            with space_for(self._segment.local):
                while line:  # on a disk that is nearly full a part of it is written
                    line = line[file.write(line) :]
        except FullDiskError:
            file.truncate(
                before
            )  # when there is space again the next record must not be joined to half a line
            file.seek(before)
            raise

    def _flush_remote(self) -> None:
        data = b"".join(self._lines)
        self._segment.write_bytes(data)
        self._flushed = time.monotonic()
        if len(data) >= SEGMENT_BYTES:
            self._open_segment()

    def close(self) -> None:
        """Make everything written durable."""
        with self._lock:
            if self._file is not None:
                os.fsync(self._file.fileno())
                self._file.close()
                self._file = None
                assert self._exclusive is not None
                os.close(self._exclusive)
            elif self._lines:
                self._flush_remote()


def _exclusive(folder: Location) -> int | None:
    """A lock on a local ledger's folder, which ends with this process; an object store has none.

    Raises:
        InputError: another process writes this ledger.
    """
    if folder.local is None:
        return None
    folder.local.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.local, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise InputError(
            "another process runs this study",
            where=str(folder),
            why="a ledger has one writer",
            remedy="look at it with h2h watch, or stop that process first",
        ) from error
    return descriptor


class LedgerReader:
    """Reads a ledger while it is being written: every call of :meth:`poll` returns what is new since the last.

    Args:
        folder: the study's ``ledger`` folder; it may not be there yet.
    """

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}

    def poll(self) -> list[Record]:
        """The records that are new, in the order in which they were written."""
        records: list[Record] = []
        for name in self._folder.names():
            if name.endswith(".jsonl"):
                records += self._read_segment(name)
        return records

    def _read_segment(self, name: str) -> Iterator[Record]:
        segment = self._folder / name
        offset = self._offsets.get(name, 0)
        if segment.local is not None:
            if segment.local.stat().st_size == offset:
                return
            with segment.local.open("rb") as file:
                file.seek(offset)
                data = file.read()
        else:
            data = segment.read_bytes()[offset:]
        complete = data.rfind(b"\n") + 1  # a line still being written, or torn by a crash, has no newline yet
        self._offsets[name] = offset + complete
        for line in data[:complete].splitlines():
            yield json.loads(line)


def read_ledger(folder: Location) -> list[Record]:
    """All records of a ledger, oldest first."""
    return LedgerReader(folder).poll()
