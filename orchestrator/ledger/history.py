"""What the ledger's records add up to: the state of a study, made by reading alone.

Everything that shows or decides something starts from a :class:`History`: the dashboard, the comparison, the results
and, after a restart, the search itself. It is the one fold over the records: a function for each kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import NamedTuple

from orchestrator.ledger.records import (
    AttemptOutcome,
    BegunRecord,
    CapRecord,
    ComparisonRecord,
    CorpusRecord,
    Design,
    EndRecord,
    EventRecord,
    ExtensionRecord,
    MeasureRecord,
    Phase,
    PhaseRecord,
    Record,
    ResourcesRecord,
    Status,
    StopRecord,
    StudyRecord,
    TrainingPhase,
    TrialRecord,
)
from orchestrator.ledger.segments import LedgerReader, damaged, parse_line
from orchestrator.ledger.spending import Attempt, AttemptSpending, total
from orchestrator.ledger.trials import TrialHistory
from trainables.storage import Location
from trainables.training.config import Unit


class Asked(NamedTuple):
    """An arm's search began a trial."""

    number: int


class Arrived(NamedTuple):
    """One of its trials came to a rung."""

    number: int
    rung: int
    score: float
    """Of the primary yardstick."""


class Ended(NamedTuple):
    """An attempt at one of its trials ended."""

    number: int
    outcome: AttemptOutcome


SearchEvent = Asked | Arrived | Ended
"""What the decisions of an arm's search depend on, in its order."""


@dataclass
class History:
    """A study's state. Feed it records in the ledger's order; it never looks ahead."""

    study: StudyRecord | None = None
    """Of the last session."""
    corpus: CorpusRecord | None = None
    phases: dict[Phase, Status] = field(default_factory=dict)
    """In the order of their beginnings."""
    trials: dict[str, TrialHistory] = field(default_factory=dict)
    """By trial name, in the order of their beginnings."""
    resources: ResourcesRecord | None = None
    events: list[EventRecord | CapRecord] = field(default_factory=list)
    extensions: list[ExtensionRecord] = field(default_factory=list)
    """What the study was later let spend more of."""
    plans: int = 0
    """How often an extension changed which runs a confirmation seed has."""
    comparison: ComparisonRecord | None = None
    """What the study answered; None while it has no answer that holds."""
    search: dict[str, list[SearchEvent]] = field(default_factory=dict)
    """By arm."""
    stop: Status | None = None
    """``begin`` once this session was asked to save and stop, ``end`` once it has."""
    seeds_paid: int | None = None
    """Confirmation seeds that the study's cap paid for, where it ended the phase early."""
    started: float | None = None
    """Time of the first record, seconds since the epoch."""
    updated: float = 0.0
    """Time of the last one."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> History:
        """The state after ``records``. Raises InputError if one does not follow from those before it."""
        history = cls()
        for record in records:
            history.apply(record)
        return history

    def apply(self, record: Record) -> None:
        """Take one record in. Raises InputError if it does not follow from those before it."""
        before = self.updated
        if self.started is None:
            self.started = before = record.time
        _apply(record, self, before)
        self.updated = record.time

    @property
    def design(self) -> Design:
        """What the search and the comparison read of the protocol. Raises InputError if the study has not begun."""
        if self.study is None:
            raise damaged("its first records", "the study's own record is missing")
        return self.study.design

    @property
    def phase(self) -> Phase | None:
        """The phase that runs; None between phases."""
        running = [phase for phase, status in self.phases.items() if status == "begin"]
        return running[-1] if running else None

    @property
    def finished(self) -> bool:
        """Whether the study has its answer and nothing runs after it."""
        return self.phases.get("compare") == "end" and self.phase is None

    def trials_of(self, phase: TrainingPhase, arm: str | None = None) -> list[TrialHistory]:
        """The trials of a phase, and of one arm if asked, by number."""
        chosen = [t for t in self.trials.values() if t.phase == phase and arm in (None, t.arm)]
        return sorted(chosen, key=lambda t: (t.arm, t.number))

    def spent(self, phase: TrainingPhase, arm: str, unit: Unit) -> float:
        """What an arm has spent in a phase, in one budget unit."""
        return sum(trial.spent.get(unit, 0.0) for trial in self.trials_of(phase, arm))

    def spending(self, phase: TrainingPhase | None = None, arm: str | None = None) -> AttemptSpending:
        """What a phase and an arm, or all, have cost so far: useful, lost and overhead apart."""
        return total(
            trial.spending(self.updated)
            for trial in self.trials.values()
            if phase in (None, trial.phase) and arm in (None, trial.arm)
        )

    @property
    def planned_seeds(self) -> int:
        """Confirmation seeds that are run: those of the study, or as many as its cap could pay for."""
        return self.design.seeds if self.seeds_paid is None else min(self.design.seeds, self.seeds_paid)

    def trial(self, name: str) -> TrialHistory:
        """A trial that has begun. Raises InputError if none of that name was ever asked for."""
        if name not in self.trials:
            raise damaged(name, "there is a record of a trial that was never asked for")
        return self.trials[name]

    def close_attempts(self, time: float) -> None:
        """The session is over: no attempt runs any more."""
        for trial in self.trials.values():
            if trial.runs:
                trial.attempt_records[-1].ended = time


def read_history(folder: Location) -> History:
    """What a study's ledger adds up to. Raises InputError, with file and line, if a record is damaged or does not
    follow from those before it."""
    history = History()
    for line in LedgerReader(folder).lines():
        try:
            history.apply(parse_line(line))
        except ValueError as error:
            why = getattr(error, "why", str(error))
            raise damaged(line.place, why) from error
    return history


@singledispatch
def _apply(record: object, history: History, before: float) -> None:
    """Take a record in. ``before`` is the time of the one before it."""
    raise TypeError(f"a record of an unknown kind: {record}")


@_apply.register
def _(record: StudyRecord, history: History, before: float) -> None:
    history.study, history.stop = record, None
    history.close_attempts(before)  # a session before it was cut off: its trials ran up to its last record at least


@_apply.register
def _(record: CorpusRecord, history: History, before: float) -> None:
    history.corpus = record


@_apply.register
def _(record: ResourcesRecord, history: History, before: float) -> None:
    history.resources = record


@_apply.register
def _(record: ComparisonRecord, history: History, before: float) -> None:
    history.comparison = record


@_apply.register
def _(record: EventRecord, history: History, before: float) -> None:
    history.events.append(record)


@_apply.register
def _(record: StopRecord, history: History, before: float) -> None:
    history.stop = record.status
    if record.status == "end":
        history.close_attempts(record.time)
        history.resources = None


@_apply.register
def _(record: PhaseRecord, history: History, before: float) -> None:
    history.phases[record.phase] = record.status
    if (record.phase, record.status) == ("confirm", "begin"):
        history.seeds_paid = None


@_apply.register
def _(record: CapRecord, history: History, before: float) -> None:
    history.events.append(record)
    history.seeds_paid = record.seeds


@_apply.register
def _(record: ExtensionRecord, history: History, before: float) -> None:
    changed = [key for key in record.changes if not key.startswith("resources.")]
    if not changed:  # other machines change no answer
        return
    history.extensions.append(record)
    searched = any(key.startswith("search.") for key in changed)
    if any(key.partition(".")[0] == "cap" for key in changed):
        searched |= any(isinstance(e, CapRecord) and e.phase == "search" for e in history.events)
    history.plans += searched or any(key.startswith(("confirm.top", "confirm.budget")) for key in changed)
    again: tuple[Phase, ...] = ("search", "confirm", "anytime", "compare")
    for phase in again[0 if searched else 1 :]:
        history.phases.pop(phase, None)
    history.comparison = None


@_apply.register
def _(record: TrialRecord, history: History, before: float) -> None:
    trial = history.trials.get(record.trial)
    if trial is None:
        trial = history.trials[record.trial] = TrialHistory(
            phase=record.phase,
            arm=record.arm,
            trial=record.trial,
            number=record.number,
            seed=record.seed,
            configuration=record.configuration,
            amount=record.amount,
            share=record.share,
            plan=history.plans,
        )
        if record.phase == "search":
            history.search.setdefault(record.arm, []).append(Asked(record.number))
    if trial.runs:
        trial.attempt_records[-1].ended = before
    trial.attempts = record.attempt
    if record.start_step > trial.furthest_start:
        trial.furthest_start, trial.stalls = record.start_step, 0
    trial.outcome, trial.reason, trial.settled = None, "", None
    # A new attempt starts from a checkpoint: what an earlier one reported beyond it was rolled back.
    trial.measures = [m for m in trial.measures if m.step <= record.start_step]
    price = None if history.study is None else history.study.usd_per_hour
    trial.attempt_records.append(Attempt(trial.attempts, record.time, record.workers, price))


@_apply.register
def _(record: BegunRecord, history: History, before: float) -> None:
    history.trial(record.trial).attempt_records[-1].begin(record)


@_apply.register
def _(record: MeasureRecord, history: History, before: float) -> None:
    trial, primary = history.trial(record.trial), history.design.yardsticks.primary
    trial.measures.append(record)
    trial.attempt_records[-1].report(record.spent, record.overhead)
    if trial.phase == "search" and record.rung is not None and primary in record.yardsticks:
        arrived = Arrived(trial.number, record.rung, record.yardsticks[primary].overall)
        history.search[trial.arm].append(arrived)


@_apply.register
def _(record: EndRecord, history: History, before: float) -> None:
    trial, outcome = history.trial(record.trial), record.outcome
    attempt = trial.attempt_records[-1]
    if record.spent is not None:
        attempt.report(record.spent, record.overhead or {})
    if trial.runs:
        attempt.ended, attempt.outcome = record.time, outcome
    trial.reason = record.reason
    if outcome == "retried":
        trial.failures += 1
        trial.stalls += 1
    trial.outcome = None if outcome == "interrupted" or outcome == "retried" else outcome
    if trial.phase == "search":
        history.search[trial.arm].append(Ended(trial.number, outcome))
