"""Several studies: those of a storage in a line each, and those of a comparison side by side."""

from __future__ import annotations

import time
from typing import Literal

from orchestrator import formatting
from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.report import Standing, StudyReport, standing_of
from orchestrator.config.folder import LEDGER, STUDY_FILE
from orchestrator.ledger.history import History, read_history
from orchestrator.ledger.records import Phase
from orchestrator.reporting.glances import verdicts
from orchestrator.reporting.pace import SILENT_SECONDS
from orchestrator.reporting.report_tables import day
from orchestrator.reporting.table import Table
from trainables.config import Config
from trainables.errors import InputError
from trainables.storage import Location


class StudyLine(Config):
    """A study in a line."""

    name: str
    """Of its folder."""
    folder: str
    standing: Literal[Standing, "not begun"]
    phase: Phase | None
    """That runs; None between phases."""
    trials: int
    """That have begun."""
    ended: int
    """Of these."""
    verdicts: tuple[str, ...]
    """So far, in words, one of each pair of arms."""
    updated: float | None
    """Time of the last record, in seconds since the epoch."""
    problem: str
    """Why this is not all; empty where it is."""

    def standing_in_words(self, now: float) -> str:
        """With the phase, and for how long nothing was heard of a study that runs; ``now`` in seconds since the epoch.
        May break where a line ends."""
        said = [self.standing, *filter(None, [self.phase])]
        if self.standing == "running" and self.updated is not None and now - self.updated > SILENT_SECONDS:
            said.append(f"silent for {formatting.duration(now - self.updated)}")
        return ",\n".join(said)

    @property
    def trials_in_words(self) -> str:
        """Empty before the study has begun."""
        return "" if self.standing == "not begun" else f"{self.ended} of {self.trials} ended"


class StudyList(Config):
    """The studies of a storage."""

    format: Literal["headtohead.studies/1"] = "headtohead.studies/1"
    storage: str
    studies: tuple[StudyLine, ...]
    """The last that wrote a record first."""


class Reports(Config):
    """Several studies. Each is as it is alone: nothing is computed across them."""

    format: Literal["headtohead.reports/1"] = "headtohead.reports/1"
    studies: tuple[StudyReport, ...]


def study_line(folder: Location, history: History, comparison: Comparison | None, problem: str = "") -> StudyLine:
    """A study in a line, with the verdicts of a comparison."""
    begun = history.study is not None
    return StudyLine(
        name=folder.name,
        folder=folder.uri,
        standing=standing_of(history) if begun else "not begun",
        phase=history.phase,
        trials=len(history.trials),
        ended=sum(trial.outcome is not None for trial in history.trials.values()),
        verdicts=verdicts(comparison) if comparison else (),
        updated=history.updated if begun else None,
        problem=problem.partition("\n")[0],
    )


def studies_of(storage: Location) -> StudyList:
    """The studies that lie in a storage, with what each says so far; a study's own folder gives that study. Raises
    InputError if there is no such folder."""
    if storage.local is not None and not storage.local.is_dir():
        raise InputError(f"there is no folder {storage}", where="STORAGE", remedy="the folder that studies lie in")
    if (storage / STUDY_FILE).exists():
        folders = [storage]
    else:
        folders = [storage / name for name in storage.names() if (storage / name / STUDY_FILE).exists()]
    lines = sorted(map(_read, folders), key=lambda line: -(line.updated or 0.0))
    return StudyList(storage=storage.uri, studies=tuple(lines))


def _read(folder: Location) -> StudyLine:
    """Of a damaged study the damage is told, and the others are shown."""
    history, comparison, problem = History(), None, ""
    try:
        history = read_history(folder / LEDGER, keeps_curves=False)
        if history.study is not None:
            comparison = answer_of(history).comparison
    except (InputError, OSError) as error:
        problem = str(error)
    return study_line(folder, history, comparison, problem)


def studies_table(found: StudyList) -> Table:
    """A row for each."""
    now = time.time()
    rows = [
        [
            line.name,
            line.standing_in_words(now),
            line.problem or "\n".join(line.verdicts) or "–",
            line.trials_in_words or "–",
            "–" if line.updated is None else day(line.updated),
        ]
        for line in found.studies
    ]
    return Table.of(["study", "standing", "verdict so far", "trials", "last record"], rows)
