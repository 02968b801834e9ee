"""What writes the ledger, and at once knows what it adds up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.ledger.history import History
from orchestrator.ledger.segments import LedgerWriter, Record, read_ledger
from trainables.storage import Location


class Recorder:
    """The study's one writer. Every record goes to the ledger and into the :class:`History` that decisions read.

    Args:
        folder: the study's ``ledger`` folder; what an earlier session wrote there is read first.
    """

    def __init__(self, folder: Location) -> None:
        self._writer = LedgerWriter(folder)  # first: from here on nobody else writes
        self.history = History.of(read_ledger(folder))
        self.then: Callable[[Record], None] = lambda record: None
        """Called with every record once it is written and part of the history."""

    def record(self, kind: str, *, flush: bool = True, **fields: Any) -> None:
        """Add one record (see ``orchestrator.ledger.segments``)."""
        record = self._writer.append(kind, flush=flush, **fields)
        self.history.apply(record)
        if kind == "end" and record["phase"] == "search":
            self.history.trials[record["trial"]].forget_curve()
        self.then(record)

    def event(self, message: str) -> None:
        """Add a message for a person."""
        self.record("event", message=message)

    def close(self) -> None:
        """Make everything durable."""
        self._writer.close()
