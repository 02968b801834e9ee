"""What takes long to compute of a study that goes on: made again when it is out of date, for a share of the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from orchestrator.ledger.records import ComparisonRecord, EndRecord, MeasureRecord, PhaseRecord, Record, StudyRecord

SHARE = 0.03
"""Of a core that one such thing takes: what took a second is made again after half a minute."""

_NEWS = (EndRecord, PhaseRecord, ComparisonRecord, StudyRecord)
_Made = TypeVar("_Made")


def changes_answer(record: Record) -> bool:
    """Whether what a study says may be another after a record."""
    evaluated = isinstance(record, MeasureRecord) and record.phase != "search" and bool(record.yardsticks)
    return evaluated or isinstance(record, _NEWS)


class Paced(Generic[_Made]):
    """Something that is made again when it is out of date, but only for a share of the time."""

    def __init__(self, first: _Made, least_seconds: float, share: float = SHARE) -> None:
        self._least, self._share, self._due = least_seconds, share, 0.0
        self.stale, self.made, self.version = True, first, 0

    def is_due(self) -> bool:
        """Whether it is to be made now."""
        return self.stale and time.monotonic() >= self._due

    def refresh(self, make: Callable[[], _Made]) -> None:
        """Make it, in this thread, whose time counts."""
        began, self.stale = time.thread_time(), False
        try:
            made = make()
        finally:
            took = time.thread_time() - began
            self._due = time.monotonic() + max(self._least, took / self._share)
        if made != self.made:
            self.made, self.version = made, self.version + 1
