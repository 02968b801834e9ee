"""What of a study a tracker is shown: its trials as runs and, once it has come to its end, its answer as one more.

A projection of the :class:`History`: a step that was rolled back is not in it, and each step is in it once. Of a trial
that runs only those steps are in it that cannot be rolled back any more, those before its last checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from orchestrator.analysis.report import report_of
from orchestrator.ledger.history import History
from orchestrator.ledger.records import MeasureRecord
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.page.page import report_page
from orchestrator.reporting.result_tables import arms_table, comparison_table
from orchestrator.reporting.table import Table
from search_spaces import Configuration
from trainables.config import Config, Count
from trainables.hashing import checksum
from trainables.training.config import Unit
from trainables.training.state import Spent

SUMMARY = "summary"
"""What the run of the answer is called, and its job type."""


@dataclass(frozen=True)
class Step:
    """A report of a trial."""

    number: int
    """Of training steps."""
    time: float
    """When it was reported, in seconds since the epoch."""
    spent: Spent
    """By the trial so far."""
    values: dict[str, float]
    """``loss``, ``learning_rate``, ``progress``, and by the text of the evaluations each yardstick, as ``NAME`` and
    ``NAME/LANGUAGE``."""


@dataclass(frozen=True)
class AnswerShown:
    """What the run of the answer holds beside its verdict."""

    tables: dict[str, Table]
    page: str
    """The report, HTML."""


@dataclass(frozen=True)
class Run:
    """A run as a tracker is to show it."""

    identity: str
    """16 hexadecimal digits, of the study's first record and the name."""
    study: str
    origin: str
    """16 hexadecimal digits, of the study's first record."""
    name: str
    group: str
    """The arm."""
    job_type: str
    """The phase."""
    unit: Unit
    """In which its budget binds."""
    began: float
    ended: float | None
    """Times in seconds since the epoch; None while ``final`` is False."""
    settings: Configuration
    """The configuration, with the trial's ``seed``."""
    steps: tuple[Step, ...]
    final: bool
    """Whether nothing comes any more, as far as the study has come."""
    said: dict[str, str | float] = field(default_factory=dict)
    """At the end: ``outcome``, ``reason``, ``final/NAME`` by yardstick; of the answer ``verdict``."""
    answer: AnswerShown | None = None

    @property
    def failed(self) -> bool:
        """Whether it broke, or was lost."""
        return self.said.get("outcome") in ("diverged", "failed", "lost")

    def digest(self, num_steps: int) -> str:
        """Of its first steps."""
        steps = [(step.number, step.spent, step.values) for step in self.steps[:num_steps]]
        return checksum(json.dumps(steps, sort_keys=True).encode())


class Mark(Config):
    """What of a run a tracker has: kept in the tracker itself, so that it goes where the tracker's copy goes."""

    steps: Count
    steps_digest: str
    final: bool
    said_digest: str

    @classmethod
    def of(cls, run: Run) -> Mark:
        """Of the whole run."""
        said = [run.said, None if run.answer is None else run.answer.page]
        count = len(run.steps)
        return cls(
            steps=count,
            steps_digest=run.digest(count),
            final=run.final,
            said_digest=checksum(json.dumps(said, sort_keys=True).encode()),
        )

    @classmethod
    def read(cls, text: str | bytes | None) -> Mark | None:
        """As it was written; None where there is none, or one that this program did not write."""
        try:
            return None if text is None else cls.model_validate_json(text)
        except ValidationError:
            return None

    def is_beginning_of(self, run: Run) -> bool:
        """Whether the run goes on from what the tracker has; else that is to be replaced."""
        return not self.final and self.steps <= len(run.steps) and self.steps_digest == run.digest(self.steps)


def identity_of(history: History, name: str = "") -> str:
    """Of a study that has begun, or of a run in it: the same whoever exports it, and from where."""
    first = history.first
    assert first is not None
    text = json.dumps([first.name, first.time, first.protocol_digest, name])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def run_of(history: History, trial: TrialHistory) -> Run:
    """A trial as a run."""
    assert history.study is not None
    final = _is_final(history, trial)
    attempts = trial.attempt_records
    return Run(
        identity=identity_of(history, trial.trial),
        study=history.study.name,
        origin=identity_of(history),
        name=trial.trial,
        group=trial.arm,
        job_type=trial.phase,
        unit=history.design.unit,
        began=attempts[0].asked,
        ended=attempts[-1].ended if final else None,
        settings={**trial.configuration, "seed": trial.seed},
        steps=tuple(_step(measure) for measure in _kept(trial, final=final)),
        final=final,
        said=dict(_said(trial, history.design.yardsticks.names)) if final else {},
    )


def summary_of(history: History) -> Run:
    """A finished study's answer as a run. Raises as :func:`orchestrator.analysis.report.report_of` does."""
    report = report_of(history)
    found = {"arms": arms_table(report.comparison), "comparison": comparison_table(report.comparison)}
    return Run(
        identity=identity_of(history, SUMMARY),
        study=report.name,
        origin=identity_of(history),
        name=f"{SUMMARY}-{report.name}",
        group=SUMMARY,
        job_type=SUMMARY,
        unit=history.design.unit,
        began=report.began,
        ended=report.updated,
        settings={},
        steps=(),
        final=True,
        said={"verdict": report.verdict, "question": report.question, "protocol": report.protocol_digest},
        answer=AnswerShown({name: table for name, table in found.items() if table.rows}, report_page([report])),
    )


def _is_final(history: History, trial: TrialHistory) -> bool:
    """A trial that stopped at a rung may go on while its search does."""
    if trial.phase == "search" and trial.outcome == "pruned":
        return history.phases.get("search") == "end"
    return trial.outcome is not None


def _kept(trial: TrialHistory, *, final: bool) -> list[MeasureRecord]:
    """The reports that no later attempt rolls back. A checkpoint comes with every evaluation and rung; it is written
    beside the training, and is there for sure when the next one comes."""
    if final:
        return list(trial.measures)
    checkpoints = [m.step for m in trial.measures if m.yardsticks or m.rung is not None]
    until = max([trial.furthest_start, *checkpoints[:-1]])
    return [measure for measure in trial.measures if measure.step <= until]


def _step(measure: MeasureRecord) -> Step:
    values = {"learning_rate": measure.learning_rate, "progress": measure.progress}
    if measure.loss is not None:
        values["loss"] = measure.loss
    for name, score in (measure.course or measure.yardsticks).items():
        values[name] = score.overall
        values |= {f"{name}/{language}": value for language, value in score.languages.items() if value is not None}
    return Step(measure.step, measure.time, measure.spent, values)


def _said(trial: TrialHistory, yardsticks: tuple[str, ...]) -> Iterator[tuple[str, str | float]]:
    yield "outcome", trial.outcome or ""
    yield "reason", trial.reason
    yield "attempts", trial.attempts
    if trial.by_hand:
        yield "chosen", "by hand"
    for name in yardsticks:
        if (score := trial.score(name)) is not None:
            yield f"final/{name}", score


AXES: Mapping[Unit, tuple[str, float]] = {
    "tokens": ("tokens", 1),
    "steps": ("steps", 1),
    "flops": ("mflops", 1e-6),
    "hardware_flops": ("hardware_mflops", 1e-6),
    "device_seconds": ("device_milliseconds", 1e3),
    "wall_seconds": ("wall_milliseconds", 1e3),
    "joules": ("joules", 1),
    "usd": ("usd_millionths", 1e6),
}
"""Where a tracker's axes are whole numbers of 64 bits: what a unit is counted in there, and how many of that it is."""


def axes_of(run: Run, step: Step) -> Iterator[tuple[str, int]]:
    """The names of the axes on which such a tracker has the run, that of the binding unit first, and the places of the
    step on them."""
    for unit in dict.fromkeys([run.unit, "tokens", "flops", "device_seconds"]):
        if unit in step.spent:
            name, factor = AXES[unit]
            yield name, round(step.spent[unit] * factor)


def on_axis(name: str, axis: str) -> str:
    """What a value is called on an axis: ``recovery_accuracy/tokens/en``."""
    head, slash, rest = name.partition("/")
    return f"{head}/{axis}{slash}{rest}"
