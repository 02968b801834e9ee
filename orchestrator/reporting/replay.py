"""A study once more, as it was: its records one after the other, as fast as they came or faster."""

from __future__ import annotations

import time

from orchestrator.ledger.history import History
from orchestrator.ledger.records import Record
from orchestrator.ledger.segments import LedgerReader, parse_line
from trainables.storage import Location

WHOLE_SECONDS = 60.0
"""That the replay of a study takes, unless a speed is asked for."""


def speed_of(history: History) -> float:
    """How many times as fast a study is shown unless a speed is asked for; never slower than it was."""
    return max(1.0, history.worked(history.updated) / WHOLE_SECONDS)


class Replay:
    """A source of the records of a ledger, ``speed`` times as fast as they were written. The time between sessions is
    left out."""

    silence = ""

    def __init__(self, ledger: Location, speed: float) -> None:
        self._records = map(parse_line, LedgerReader(ledger).lines())
        self._speed, self._began = speed, time.monotonic()
        self._shown = History(keeps_curves=False)  # up to the record that comes next
        self._next: Record | None = None
        self._advance()

    def _advance(self) -> None:
        self._next = next(self._records, None)
        if self._next is not None:
            self._shown.apply(self._next)

    def _passed(self) -> float:
        """Seconds of the study."""
        return (time.monotonic() - self._began) * self._speed

    @property
    def ended(self) -> bool:
        """Whether all records were handed out."""
        return self._next is None

    def heard(self) -> list[Record]:
        """The records whose time has come."""
        found, passed = [], self._passed()
        while self._next is not None and self._shown.worked(self._next.time) <= passed:
            found.append(self._next)
            self._advance()
        return found

    def last(self) -> list[Record]:
        """The records whose time has come."""
        return self.heard()

    def now(self) -> float:
        """The study's own time, seconds since the epoch."""
        told = (self._shown.started or 0.0) + self._shown.idle + self._passed()
        return min(told, self._shown.updated)

    def close(self) -> None:
        """There is nothing to do."""
