"""The ledger's files: the append-only record of everything a study spent and measured.

A ledger is a folder of segments, ``ledger/000001.jsonl`` and on, one JSON object a line
(``orchestrator.ledger.records``), chained to those before (``orchestrator.ledger.chain``). On this machine every
writing session opens a segment of its own, so a line torn by a power cut can only be a segment's last one and is passed
over by the reader. On an object store the last segment is written again whole until it is large enough for another.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from pydantic import ValidationError

from orchestrator.ledger.chain import HEAD_OF_NOTHING, head_after, link, unlink
from orchestrator.ledger.layout import segments_of
from orchestrator.ledger.lease import Lease
from orchestrator.ledger.local_log import LocalLog
from orchestrator.ledger.records import Record, parse_record, to_line
from orchestrator.ledger.remote_log import RemoteLog
from trainables.errors import InputError
from trainables.storage import Location


class LedgerWriter:
    """The one writer of a study's ledger. Safe for the threads of one process; a second process is refused with
    InputError, or what it would write. ``say`` is told what is waited for."""

    def __init__(self, folder: Location, say: Callable[[str], None] = lambda _: None) -> None:
        self._lock = threading.Lock()
        self._log: LocalLog | RemoteLog
        if folder.local is not None:
            self._log = LocalLog(folder.local)
        else:
            lease = Lease(folder, say)
            with ExitStack() as undo:
                undo.callback(lease.release)
                self._log = RemoteLog(folder, lease)
                undo.pop_all()
        reader = LedgerReader(folder)
        with ExitStack() as undo:
            undo.callback(self._log.close)
            for _ in reader.lines():  # only now: nobody else writes any more
                pass
            undo.pop_all()
        self.head = reader.head
        """The digest of all that was given to be written."""

    def append(self, record: Record, *, durable: bool = False) -> None:
        """Add one record; on an object store it is there within moments, with ``durable`` on return. Raises
        FullDiskError if there is no space left for it, and then nothing of it is written; InputError where nothing can
        be written any more."""
        with self._lock:
            line = link(self.head, to_line(record))
            self._log.append(line)
            self.head = head_after(self.head, line.rstrip(b"\n"))
        if durable:
            self._log.flush()

    def flush(self) -> None:
        """Wait until all is durable. Raises InputError where nothing can be written any more."""
        self._log.flush()

    def check(self) -> None:
        """Raises InputError where nothing can be written any more."""
        self._log.check()

    def close(self) -> None:
        """Make everything written durable, as far as that can be."""
        with self._lock:
            self._log.close()


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
        self._closed: set[str] = set()  # segments that do not grow any more
        self._found: list[Record] = []
        self.head = HEAD_OF_NOTHING
        """The digest of what was read."""

    def poll(self) -> list[Record]:
        """The new records, in their order; the next call gives those that were read before an OSError. Raises
        InputError if a line is not as this program writes it."""
        self._found.extend(map(parse_line, self.lines()))
        found, self._found = self._found, []
        return found

    def lines(self) -> Iterator[Line]:
        """The lines that are new, as they are."""
        *closed, last = segments_of(self._folder) or [""]
        for name in filter(None, [*closed, last]):
            if name not in self._closed:
                yield from self._read_segment(name)
                if name != last and self._folder.local is None:
                    self._closed.add(name)

    def _read_segment(self, name: str) -> Iterator[Line]:
        segment = self._folder / name
        offset, number = self._read.get(name, (0, 0))
        if segment.local is not None:
            try:
                size = segment.local.stat().st_size
                if size == offset:
                    return
                with segment.local.open("rb") as file:
                    file.seek(offset)
                    data = file.read()
            except (IsADirectoryError, FileNotFoundError) as error:  # the second: a link that leads nowhere
                raise damaged(str(segment), str(error)) from error
        else:
            data = segment.read_bytes()
            size, data = len(data), data[offset:]
        if size < offset:
            raise damaged(str(segment), f"{offset} bytes of it were read, and now it has {size}")
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
