"""What writes the ledger, and at once knows what it adds up to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from orchestrator.ledger.history import read_history
from orchestrator.ledger.records import EventRecord, Phase, PhaseRecord, Record
from orchestrator.ledger.segments import LedgerWriter
from trainables.storage import Location


class Recorder:
    """The study's one writer. Every record goes to the ledger, and into the :class:`History` that decisions read; what
    an earlier session wrote there is read first. Safe for threads of one process: the history has the records in the
    ledger's order."""

    def __init__(self, folder: Location, say: Callable[[str], None] = lambda _: None) -> None:
        self._lock = threading.Lock()
        self._writer = LedgerWriter(folder, say)  # first: from here on nobody else writes
        with ExitStack() as undo:
            undo.callback(self._writer.close)
            self.history = read_history(folder, keeps_curves=False)
            undo.pop_all()

    def record(self, record: Record, *, durable: bool = False) -> None:
        """Add one record; see :meth:`LedgerWriter.append`."""
        with self._lock:
            self._writer.append(record, durable=durable)
            self.history.apply(record)
            self.history.head = self._writer.head

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """A phase begins, and ends unless something is raised inside."""
        self.record(PhaseRecord(phase=name, status="begin"))
        yield
        self.record(PhaseRecord(phase=name, status="end"))

    def event(self, message: str) -> None:
        """Add a message for a person."""
        self.record(EventRecord(message=message))

    def flush(self) -> None:
        """Wait until all is durable. Raises what :meth:`check` does."""
        self._writer.flush()

    def check(self) -> None:
        """Raises InputError where nothing can be written any more: another process leads the study, or the storage is
        lost."""
        self._writer.check()

    def close(self) -> None:
        """Make everything durable."""
        self._writer.close()
