"""Handing a study on to a tracker, once or while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from orchestrator.config.folder import LEDGER, STUDY_FILE, no_study
from orchestrator.config.trackers import TrackerName
from orchestrator.ledger.history import History
from orchestrator.ledger.records import (
    BegunRecord,
    ComparisonRecord,
    EndRecord,
    MeasureRecord,
    PhaseRecord,
    Record,
    TrialRecord,
)
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting.listening import Silence
from orchestrator.reporting.track.projection import Run, run_of, summary_of
from orchestrator.reporting.track.tracker import Tracker, TrackerError, library_of
from trainables.config import Config
from trainables.errors import InputError
from trainables.storage import Location

POLL_SECONDS, REMOTE_POLL_SECONDS = 2.0, 10.0


class Tracked(Config):
    """What a tracker was given of a study."""

    format: Literal["headtohead.tracked/1"] = "headtohead.tracked/1"
    study: str
    """Its folder."""
    tracker: TrackerName
    written: tuple[str, ...]
    """The runs for which there was something new."""
    unchanged: int
    """The others'."""
    finished: bool
    """Whether the study has its answer, which the tracker then has too."""


class Export:
    """A study on its way to a tracker.

    Args:
        folder: the study's.
        name: the tracker's.
        at: where to write; None: where the library itself has it.

    Raises InputError where there is no study, the tracker's library is not installed, or ``at`` is nothing that it can
    write to; TrackerError where the library refuses.
    """

    def __init__(self, folder: Location, name: TrackerName, at: str | None = None) -> None:
        if not (folder / STUDY_FILE).exists():
            raise no_study(folder)
        self._library = library_of(name)
        try:
            self.tracker: Tracker = self._library.open(folder, at)
        except InputError:
            raise
        except self._library.failures as error:
            raise TrackerError(f"{name} cannot be opened: {error}") from error
        self.folder, self.history = folder, History(folder=folder)
        self.written = set[str]()
        """The runs for which there was anything to do."""
        self._reader, self._silence = LedgerReader(folder / LEDGER), Silence()
        self._due: dict[str, None] = {}  # trials of which there may be something new, in the order of the ledger
        self._answered = False

    @property
    def tracked(self) -> Tracked:
        """What was done so far."""
        runs = len(self.history.trials) + self.history.finished
        return Tracked(
            study=str(self.folder),
            tracker=self._library.name,
            written=tuple(sorted(self.written)),
            unchanged=runs - len(self.written),
            finished=self.history.finished,
        )

    def catch_up(self) -> None:
        """Hand on what is new in the ledger. Raises InputError where that is damaged, TrackerError where the tracker
        does not take it: then the next call gives it once more."""
        for record in self._silence.heard(self._reader.poll):
            self._take(record)
        self.history.head = self._reader.head
        while self._due:
            name = next(iter(self._due))
            self._put(run_of(self.history, self.history.trials[name]))
            del self._due[name]
        if self.history.finished and not self._answered:
            self._put(summary_of(self.history))
            self._answered = True

    def _take(self, record: Record) -> None:
        self.history.apply(record)
        match record:
            case TrialRecord() | BegunRecord() | MeasureRecord() | EndRecord():
                self._due[record.trial] = None
            case PhaseRecord(phase="search", status="end"):  # now none that stopped at a rung goes on
                self._due |= {trial.trial: None for trial in self.history.trials_of("search")}
            case ComparisonRecord():
                self._answered = False

    def _put(self, run: Run) -> None:
        try:
            if self.tracker.put(run):
                self.written.add(run.name)
        except self._library.failures as error:
            raise TrackerError(f"{self._library.name} did not take {run.name}: {error}") from error


def export(folder: Location, name: TrackerName, at: str | None, say: Callable[[str], None]) -> Export:
    """Once, a study as it is now; ``say`` is told where to. Raises as :class:`Export` and
    :meth:`Export.catch_up` do."""
    exporting = Export(folder, name, at)
    say(exporting.tracker.place)
    exporting.catch_up()
    return exporting


def follow(
    folder: Location,
    name: TrackerName,
    at: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    until: Callable[[float], bool] | None = None,
) -> Export:
    """Likewise, and then all that is new, until the study has its answer, or ``until`` says so, which waits so many
    seconds for that to be the case."""
    pause = POLL_SECONDS if folder.local is not None else REMOTE_POLL_SECONDS
    exporting = Export(folder, name, at)
    say(exporting.tracker.place)
    while True:
        exporting.catch_up()
        if until is None:
            if exporting.history.finished:
                return exporting
            time.sleep(pause)
        elif until(pause):
            exporting.catch_up()
            return exporting
