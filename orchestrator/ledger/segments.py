"""The ledger's files: the append-only record of everything a study spent and measured.

A ledger is a folder of segments, ``ledger/000001.jsonl`` and on, one JSON object a line
(``orchestrator.ledger.records``), chained to those before (``orchestrator.ledger.chain``). Every writing session opens
a segment of its own, so a line torn by a power cut can only be a segment's last one and is passed over by the reader.
On an object store, which cannot append, the open segment is written again whole, now and then.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from io import FileIO
from typing import NamedTuple

from pydantic import ValidationError

from orchestrator.ledger.chain import HEAD_OF_NOTHING, head_after, link, unlink
from orchestrator.ledger.records import Record, parse_record, to_line
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location, space_for

SEGMENT_BYTES = 1 << 20  # on an object store a segment is closed at this size, which bounds what a flush writes again
REMOTE_FLUSH_SECONDS = 2.0  # on an object store, the least between two flushes, unless a record asks for one


class LedgerWriter:
    """The one writer of a study's ledger. Not safe for two processes; safe for the threads of one."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._exclusive = _exclusive(folder)
        self._file: FileIO | None = None
        self._flushed = 0.0
        reader = LedgerReader(folder)
        for _ in reader.lines():  # only now: nobody else writes any more
            pass
        self.head = reader.head
        """The digest of all that is written."""
        self._open_segment()

    def _open_segment(self) -> None:
        self._segment = self._folder / f"{max(_segments(self._folder).values(), default=0) + 1:06d}.jsonl"
        self._lines: list[bytes] = []
        if self._segment.local is not None:
            with space_for(self._segment.local):
                self._file = self._segment.local.open("xb", buffering=0)
        else:
            self._segment.write_bytes(b"")

    def append(self, record: Record, *, flush: bool = True) -> None:
        """Add one record; on an object store, with ``flush`` it is there on return, else it may wait a moment. Raises
        FullDiskError if there is no space left for it; then nothing of it is written."""
        with self._lock:
            line = link(self.head, to_line(record))
            head = head_after(self.head, line.rstrip(b"\n"))
            if self._file is not None:
                self._write_local(self._file, line)
                self.head = head
                return
            self._lines.append(line)
            self.head = head
            if flush or time.monotonic() - self._flushed > REMOTE_FLUSH_SECONDS:
                self._flush_remote()

    def _write_local(self, file: FileIO, line: bytes) -> None:
        assert self._segment.local is not None
        before = file.tell()
        try:
            with space_for(self._segment.local):
                while line:  # on a disk that is nearly full a part of it is written
                    line = line[file.write(line) :]
        except FullDiskError:
            # When there is space again the next record must not be joined to half a line.
            file.truncate(before)
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


def _segments(folder: Location) -> dict[str, int]:
    """The files of a ledger, with their numbers, in their order."""
    stems = {name: name.removesuffix(".jsonl") for name in folder.names() if name.endswith(".jsonl")}
    return {name: int(stem) for name, stem in stems.items() if stem.isascii() and stem.isdecimal()}


def _exclusive(folder: Location) -> int | None:
    """A lock on a local ledger's folder, for this process. Raises InputError if another one writes the ledger."""
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


class Line(NamedTuple):
    """A line of a ledger."""

    place: str  # its file and number, for errors
    text: bytes
    head: str  # of all before it


class LedgerReader:
    """Reads a ledger while it is written, also before it is there; :meth:`poll` returns what is new since the last."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._read: dict[str, tuple[int, int]] = {}  # bytes and lines, by segment
        self.head = HEAD_OF_NOTHING
        """The digest of what was read."""

    def poll(self) -> list[Record]:
        """The new records, in their order. Raises InputError if a line is not as this program writes it."""
        return [parse_line(line) for line in self.lines()]

    def lines(self) -> Iterator[Line]:
        """The lines that are new, as they are."""
        for name in _segments(self._folder):
            yield from self._read_segment(name)

    def _read_segment(self, name: str) -> Iterator[Line]:
        segment = self._folder / name
        offset, number = self._read.get(name, (0, 0))
        if segment.local is not None:
            try:
                if segment.local.stat().st_size == offset:
                    return
                with segment.local.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
            except (IsADirectoryError, FileNotFoundError) as error:  # the second: a link that leads nowhere
                raise damaged(str(segment), str(error)) from error
        else:
            data = segment.read_bytes()[offset:]
        # A line still being written, or torn by a crash, has no newline yet.
        *lines, torn = data.split(b"\n")
        self._read[name] = offset + len(data) - len(torn), number + len(lines)
        for count, text in enumerate(lines, number + 1):
            line = Line(f"{segment}, line {count}", text, self.head)
            self.head = head_after(self.head, text)
            yield line


def parse_line(line: Line) -> Record:
    """The record of a line. Raises InputError if it is none."""
    try:
        return parse_record(unlink(line.text).record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"][1:])
        raise damaged(line.place, f"{key}: {first['msg']}" if key else str(first["msg"])) from error


def damaged(place: str, why: str) -> InputError:
    """That a ledger is not as this program writes it."""
    return InputError(
        "the ledger is damaged",
        where=place,
        why=why,
        remedy="h2h verify FOLDER says which records are whole; copy the folder again from where the study ran, or "
        "read it with the version of headtohead that wrote it",
    )


def read_ledger(folder: Location) -> list[Record]:
    """All records of a ledger, oldest first. Raises InputError if a line is not as this program writes it."""
    return LedgerReader(folder).poll()
