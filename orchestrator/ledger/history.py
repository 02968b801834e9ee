"""What the ledger's records add up to: the state of a study, made by reading alone.

Everything that shows or decides something starts from a :class:`History`: the dashboard, the comparison, the results
and, after a restart, the search itself. It is the one fold over the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from orchestrator.ledger import records
from orchestrator.ledger.segments import LedgerReader, damaged, parse_line
from orchestrator.ledger.spending import Attempt, AttemptSpending
from orchestrator.ledger.trials import TrialHistory
from search_spaces import Configuration
from trainables.storage import Location
from trainables.training.config import Unit
from trainables.training.state import Built, Environment


class Arrived(NamedTuple):
    """One of its trials came to a rung."""

    number: int
    rung: int
    score: float  # of the primary yardstick
    progress: float


class Ended(NamedTuple):
    """An attempt at one of its trials ended."""

    number: int
    outcome: records.AttemptOutcome


class Decision(NamedTuple):
    """An arm's search decided whose step is next."""

    number: int  # of the trial
    after: int  # so many results of the arm, those that it could depend on


SearchEvent = Arrived | Ended  # what the decisions of an arm's search depend on, in its order


@dataclass
class History:
    """A study's state. Feed it records in the ledger's order; it never looks ahead."""

    folder: Location | None = field(default=None, compare=False)  # the study's, where files lie beside the ledger
    keeps_curves: bool = field(default=True, compare=False)  # of search trials that have ended; else they are forgotten
    sessions: int = 0  # so many began
    study: records.StudyRecord | None = None  # of the last session
    first: records.StudyRecord | None = None  # of the first one
    corpus: records.CorpusRecord | None = None
    tasks: records.TasksRecord | None = None  # of the study's protocol
    task_sets: dict[str, records.TasksRecord] = field(default_factory=dict)  # these and later ones, by digest
    tunings: dict[tuple[str, str, float], records.TuningRecord] = field(default_factory=dict)  # by trial, task, rate
    evaluations: dict[str, dict[str, records.EvaluationRecord]] = field(default_factory=dict)  # by tasks and trial
    phases: dict[records.Phase, records.Status] = field(default_factory=dict)  # in the order of their beginnings
    trials: dict[str, TrialHistory] = field(default_factory=dict)  # by trial name, in the order of their beginnings
    resources: records.ResourcesRecord | None = None
    waiting: records.WaitingRecord | None = None  # for room on the cluster
    events: list[records.EventRecord | records.CapRecord] = field(default_factory=list)
    extensions: list[records.ExtensionRecord] = field(default_factory=list)  # what it was later let spend more of
    plans: int = 0  # how often an extension changed which runs a confirmation seed has
    comparison: records.ComparisonRecord | None = None  # the study's answer; None while it has none that holds
    floors: dict[str, str] = field(default_factory=dict)  # by arm, the confirmation run that measured its floors first
    search: dict[str, list[SearchEvent]] = field(default_factory=dict)  # by arm
    decisions: dict[str, dict[int, Decision]] = field(default_factory=dict)  # of searches, by arm
    enqueued: dict[str, dict[int, Configuration]] = field(default_factory=dict)  # by arm and trial's number
    requests: set[str] = field(default_factory=set)  # by which these were asked for
    stop: records.Status | None = None  # `begin` once this session was asked to save and stop, `end` once it has
    seeds_paid: int | None = None  # confirmation seeds that the study's cap paid for, where it ended the phase early
    started: float | None = None  # time of the first record, seconds since the epoch
    updated: float = 0.0  # time of the last one
    idle: float = 0.0  # seconds between sessions, in which nobody worked on it
    head: str = field(default="", compare=False)  # of the ledger that it was read of (``orchestrator.ledger.chain``)
    _environments: list[Environment] = field(default_factory=list, repr=False)  # of all trials, each once
    _built: list[tuple[Built, ...]] = field(default_factory=list, repr=False)
    _line: bytes = field(default=b"", compare=False, repr=False)  # of a report, which all others resemble

    @classmethod
    def of(cls, written: Iterable[records.Record], folder: Location | None = None) -> History:
        """The state after what is ``written``. Raises InputError if one does not follow from those before it."""
        history = cls(folder=folder)
        for record in written:
            history.apply(record)
        return history

    def apply(self, record: records.Record) -> None:
        """Take one record in. Raises InputError if it does not follow from those before it."""
        before = self.updated
        if self.started is None:
            self.started = before = record.time
        if self.rests or (self.study is not None and isinstance(record, records.StudyRecord)):
            self.idle += max(0.0, record.time - before)
        match record:
            case records.StudyRecord():
                self.sessions += 1
                self.study, self.first, self.stop, self.waiting = record, self.first or record, None, None
                self.close_attempts(before)  # of a session that was cut off: they ran up to its last record at least
            case records.CorpusRecord():
                self.corpus = record
            case records.TasksRecord():
                before_it = self.task_sets.get(record.digest)
                if before_it is not None and before_it.items != record.items:
                    # What was asked of so many examples is not compared with what is asked of others.
                    self.evaluations.pop(record.digest, None)
                self.task_sets[record.digest] = record
                if not record.exploratory:
                    self.tasks = record
            case records.TuningRecord():
                self.tunings[record.trial, record.task, record.rate] = record
            case records.EvaluationRecord():
                self.evaluations.setdefault(record.tasks, {})[record.trial] = record
            case records.ResourcesRecord():
                self.resources = record
            case records.WaitingRecord():
                self.waiting = record if record.workers else None
            case records.ComparisonRecord():
                self.comparison, self.waiting = record, None
            case records.EventRecord():
                self.events.append(record)
            case records.CapRecord():
                self.events.append(record)
                self.seeds_paid = record.seeds
            case records.PhaseRecord():
                self.phases[record.phase] = record.status
                if (record.phase, record.status) == ("confirm", "begin"):
                    self.seeds_paid = None
            case records.StopRecord():
                self.stop = record.status
                if record.status == "end":
                    self.close_attempts(record.time)
                    self.resources = self.waiting = None
            case records.ExtensionRecord():
                self._extend(record)
            case records.DecisionRecord():
                self.decisions.setdefault(record.arm, {})[record.decision] = Decision(record.number, record.after)
            case records.EnqueuedRecord():
                if record.number < self.next_number(record.arm):
                    raise damaged(record.request, f"it enqueues trial {record.number} of {record.arm}, which is taken")
                self.enqueued.setdefault(record.arm, {})[record.number] = record.configuration
                self.requests.add(record.request)
            case records.TrialRecord():
                self._ask(record, before)
            case records.BegunRecord():
                trial = self.trial(record.trial)
                trial.attempt_records[-1].begin(record)
                trial.floors = trial.floors or record.floors  # a file of items is of the first
                if record.environment is not None:
                    trial.environment = _one_of(self._environments, record.environment)
                if record.floors is not None and record.phase == "confirm":
                    self.floors.setdefault(record.arm, record.trial)
                if record.built is not None and record.built not in trial.built:
                    trial.built = _one_of(self._built, (*trial.built, record.built))
            case records.MeasureRecord():
                self._measure(record)
            case records.EndRecord():
                self._end(record)
        self.updated = record.time

    def _extend(self, record: records.ExtensionRecord) -> None:
        changed = [key for key in record.changes if not key.startswith("resources.")]
        if not changed:  # other machines change no answer
            return
        self.extensions.append(record)
        searched = any(key.startswith("search.") for key in changed)
        if any(key.partition(".")[0] == "cap" for key in changed):
            searched |= any(isinstance(e, records.CapRecord) and e.phase == "search" for e in self.events)
        self.plans += searched or any(key.startswith(("confirm.top", "confirm.budget")) for key in changed)
        again: tuple[records.Phase, ...] = ("search", "confirm", "anytime", "fine_tuning", "compare")
        for phase in again[0 if searched else 1 :]:
            self.phases.pop(phase, None)
        self.comparison = self.seeds_paid = None

    def _ask(self, record: records.TrialRecord, before: float) -> None:
        """An attempt begins; ``before`` is the time of the record before it."""
        trial = self.trials.get(record.trial)
        if trial is None:
            trial = self.trials[record.trial] = TrialHistory(
                phase=record.phase,
                arm=record.arm,
                trial=record.trial,
                number=record.number,
                seed=record.seed,
                configuration=record.configuration,
                amount=record.amount,
                share=record.share,
                plan=self.plans,
                by_hand=record.phase == "search" and record.number in self.enqueued.get(record.arm, ()),
            )
        if trial.runs:
            trial.attempt_records[-1].ended = before
        trial.attempts = record.attempt
        if record.start_step > trial.furthest_start:
            trial.furthest_start, trial.stalls = record.start_step, 0
        trial.outcome, trial.reason, trial.settled = None, "", None
        # A new attempt starts from a checkpoint: what an earlier one reported beyond it was rolled back.
        trial.measures = trial.measures.kept(lambda measure: measure.step <= record.start_step)
        price = None if self.study is None else self.study.usd_per_hour
        trial.attempt_records.append(Attempt(trial.attempts, record.time, record.workers, price))

    def _measure(self, record: records.MeasureRecord) -> None:
        trial, primary = self.trial(record.trial), self.design.yardsticks.primary
        trial.measures.append(record)
        trial.attempt_records[-1].report(record.spent, record.overhead)
        if trial.phase == "search" and record.rung is not None and primary in record.yardsticks:
            score = record.yardsticks[primary].overall
            self.search.setdefault(trial.arm, []).append(Arrived(trial.number, record.rung, score, record.progress))

    def _end(self, record: records.EndRecord) -> None:
        trial, outcome = self.trial(record.trial), record.outcome
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
            self.search.setdefault(trial.arm, []).append(Ended(trial.number, outcome))
            if not self.keeps_curves:
                trial.forget_curve()
            self._line = self._line or next(map(records.to_line, trial.measures), b"")
            trial.measures.pack(self._line)

    @property
    def design(self) -> records.Design:
        """What the search and the comparison read of the protocol. Raises InputError if the study has not begun."""
        if self.study is None:
            raise damaged("its first records", "the study's own record is missing")
        return self.study.design

    @property
    def phase(self) -> records.Phase | None:
        """The phase that runs; None between phases."""
        running = [phase for phase, status in self.phases.items() if status == "begin"]
        return running[-1] if running else None

    @property
    def finished(self) -> bool:
        """Whether the study has its answer and nothing runs after it."""
        return self.phases.get("compare") == "end" and self.phase is None

    @property
    def rests(self) -> bool:
        """Whether its session has ended: it has its answer, or was stopped."""
        return self.finished or self.stop == "end"

    def worked(self, now: float) -> float:
        """Seconds that were worked on it until ``now``, seconds since the epoch: the time between its sessions does not
        count, nor does what came after the last one's end."""
        return max(0.0, (self.updated if self.rests else now) - (self.started or 0.0) - self.idle)

    def trials_of(self, phase: records.TrainingPhase, arm: str | None = None) -> list[TrialHistory]:
        """The trials of a phase, and of one arm if asked, by number."""
        chosen = [t for t in self.trials.values() if t.phase == phase and arm in (None, t.arm)]
        return sorted(chosen, key=lambda t: (t.arm, t.number))

    def spent(self, phase: records.TrainingPhase, arm: str, unit: Unit) -> float:
        """What an arm has spent in a phase, in one budget unit."""
        return sum(trial.spent.get(unit, 0.0) for trial in self.trials_of(phase, arm))

    def spending(self, phase: records.TrainingPhase | None = None, arm: str | None = None) -> AttemptSpending:
        """What a phase and an arm, or all, have cost so far: useful, lost and overhead apart."""
        chosen = (t for t in self.trials.values() if phase in (None, t.phase) and arm in (None, t.arm))
        return sum((trial.spending(self.updated) for trial in chosen), AttemptSpending())

    def next_number(self, arm: str) -> int:
        """Of an arm's search, the number of the first trial that is neither decided nor enqueued."""
        decided = (decision.number for decision in self.decisions.get(arm, {}).values())
        return 1 + max([*decided, *self.enqueued.get(arm, ())], default=-1)

    @property
    def planned_seeds(self) -> int:
        """Confirmation seeds that are run: those of the study and a spare one for each of which a run was lost, at most
        as many again; or as many as its cap could pay for."""
        amount, seeds = self.design.confirm_amount, self.design.seeds
        lost = {t.seed for t in self.trials_of("confirm") if t.outcome == "lost" and t.amount == amount}
        seeds += min(len(lost), seeds)
        return seeds if self.seeds_paid is None else min(seeds, self.seeds_paid)

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


_Value = TypeVar("_Value")


def _one_of(known: list[_Value], value: _Value) -> _Value:
    """The equal one that is known: what thousands of trials have in common is in memory once."""
    if value not in known:
        known.append(value)
    return known[known.index(value)]


def read_history(folder: Location, *, keeps_curves: bool = True) -> History:
    """What a ledger adds up to. Raises InputError, with file and line, if a record is damaged or does not follow."""
    history = History(folder=folder.parent, keeps_curves=keeps_curves)
    reader = LedgerReader(folder)
    for line in reader.lines():
        try:
            history.apply(parse_line(line))
        except ValueError as error:
            why = getattr(error, "why", str(error))
            raise damaged(line.place, why) from error
    history.head = reader.head
    return history
