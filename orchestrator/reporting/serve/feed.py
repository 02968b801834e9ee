"""A study as its live page shows it: read again and again, drawn no more often than a small share of a core allows."""

from __future__ import annotations

import time
from dataclasses import dataclass

from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.report import StudyReport, report_of
from orchestrator.config.folder import LEDGER
from orchestrator.ledger.chain import head_after
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord, Record
from orchestrator.ledger.segments import LedgerReader, Line, parse_line
from orchestrator.reporting.listening import Silence
from orchestrator.reporting.now import now_of
from orchestrator.reporting.paced import Paced, changes_answer
from orchestrator.reporting.page.page import answer_part, render, report_part
from orchestrator.reporting.studies import StudyLine, study_line
from trainables.errors import InputError
from trainables.storage import Location

ANSWER_SECONDS, REPORT_SECONDS = 5.0, 30.0  # the least between two
AGAIN_SECONDS = 20.0  # between two readings of a damaged ledger


@dataclass(frozen=True)
class View:
    """What of a study is shown at one moment; all three are HTML of our templates."""

    now: str
    answer: str
    report: str
    versions: tuple[int, int, int]


class Feed:
    """One study. Its methods take time: call them in one thread at a time, but for :meth:`draw`."""

    def __init__(self, folder: Location) -> None:
        self.folder, self.name = folder, folder.name
        self._undrawn, self._silent = "", Silence()
        self._begin()
        self._now, self._now_version = "", 0
        self._answer, self.report = Paced("", ANSWER_SECONDS), Paced("", REPORT_SECONDS)

    def _begin(self) -> None:
        self.history, self._reader = History(folder=self.folder), LedgerReader(self.folder / LEDGER)
        self._damage, self._again = "", 0.0
        self._lines: list[Line] = []  # that were read, and not taken in

    @property
    def problem(self) -> str:
        """Why what is shown is not all; empty where it is."""
        return self._damage or self._undrawn

    def read(self) -> None:
        """Take in what is new in the ledger. Of a damaged one what came before the damage is shown, and now and then it
        is read from its beginning: it may have been mended, or be that of another study, begun in the same folder."""
        if self._damage:
            if time.monotonic() < self._again:
                return
            self._begin()
        try:
            for line in self._silent.heard(self._new_lines):
                self._take(parse_line(line))
                self.history.head = head_after(line.head, line.text)
        except (InputError, OSError) as error:
            self._damage, self._again = str(error), time.monotonic() + AGAIN_SECONDS

    def _new_lines(self) -> list[Line]:
        """Those that were read before an OSError are given the next time."""
        self._lines.extend(self._reader.lines())
        found, self._lines = self._lines, []
        return found

    def _take(self, record: Record) -> None:
        self.history.apply(record)
        if isinstance(record, EndRecord):
            self.history.trial(record.trial).forget_curve()
        if changes_answer(record):
            self._answer.stale = self.report.stale = True

    @property
    def resting(self) -> bool:
        """Whether nothing is expected to come soon."""
        return bool(self.problem) or self.history.rests

    def view(self) -> View:
        """What is shown now; the report in it is the last that was drawn."""
        if self.history.study is not None and self._answer.is_due():
            try:
                self._answer.refresh(self._make_answer)
                self._undrawn = ""
            except (InputError, OSError) as error:  # a file that the answer needs is gone, or the storage is silent
                self._undrawn = str(error)
        now = self._make_now()
        if now != self._now:
            self._now, self._now_version = now, self._now_version + 1
        versions = (self._now_version, self._answer.version, self.report.version)
        return View(self._now, self._answer.made, self.report.made, versions)

    def state(self) -> StudyReport | None:
        """What the report is drawn of; None where there is nothing yet, or a file is gone."""
        try:
            return None if self.history.study is None else report_of(self.history)
        except (InputError, OSError):  # as of the answer, which says it
            return None

    def draw(self, state: StudyReport | None) -> None:
        """Draw the report. It takes seconds, and nothing but a state: the ledger may be read beside it."""
        self.report.refresh(lambda: "" if state is None else report_part(state))

    def _make_now(self) -> str:
        now = None if self.history.study is None else now_of(self.history, time.time(), str(self._silent))
        return render("now.html", now=now, problem=self.problem)

    def _make_answer(self) -> str:
        answer = answer_of(self.history)
        return answer_part(answer.comparison, answer.verdict)

    def line(self) -> StudyLine:
        """The study in a storage's index."""
        history = self.history
        recorded = history.comparison and Comparison.from_json(history.comparison.comparison)
        return study_line(self.folder, history, recorded or None, self.problem)
