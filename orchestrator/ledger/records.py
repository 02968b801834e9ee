"""The records of a ledger, by kind. All are frozen; what is read is checked against them once, at the edge.

Times are seconds since the epoch. ``spent`` is by budget unit, those that are known; ``overhead`` by cause, in seconds.
"""

import time
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter

from search_spaces import Configuration
from trainables.config import Amount, Config, Count, Name, Number, Positive, Several
from trainables.errors import printable
from trainables.evaluation.yardstick import Score
from trainables.models.config import Task
from trainables.objectives.objective import Scorer
from trainables.training.config import Unit
from trainables.training.state import Built, Environment, FileDigest, Floors, Measure, Measured, Overhead

TrainingPhase = Literal["search", "confirm", "anytime"]
TRAINING_PHASES: tuple[TrainingPhase, ...] = get_args(TrainingPhase)

Phase = Literal["prepare", "search", "confirm", "anytime", "fine_tuning", "compare"]
PHASES: tuple[Phase, ...] = get_args(Phase)

Status = Literal["begin", "end"]

Outcome = Literal["completed", "pruned", "diverged", "failed", "lost"]
"""How a trial ended. It ``failed`` by its own fault; it is ``lost`` where its process, machine or storage went away."""

BROKEN: tuple[Outcome, ...] = ("diverged", "failed")
"""Outcomes that are the trial's own, and so count against its arm."""

AttemptOutcome = Literal[Outcome, "interrupted", "retried"]  # of an attempt at one: after these two comes another

Text = Annotated[str, AfterValidator(printable)]  # a ledger may be a stranger's, and is shown on terminals


class _Record(Config):
    kind: str
    time: float = Field(default_factory=lambda: round(time.time(), 3), ge=0, le=1e11)  # when it was written


class ArmDesign(Config):
    """What the comparison reads of an arm."""

    objective: Name
    task: Task
    headless: bool


class YardstickDesign(Config):
    """Which yardsticks are taken, and what the primary one is raced to."""

    primary: Name
    others: tuple[Name, ...]
    target: Number | None
    lower_is_better: tuple[Name, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The primary one first."""
        return (self.primary, *self.others)


class Design(Config):
    """What the search and the comparison read of a study's protocol."""

    question: Text
    seed: Count
    unit: Unit  # that binds
    amount: Positive  # of a search trial
    confirm_amount: Positive  # of a confirmation run
    search_budget: Amount  # of each arm, in search trials
    parallel: Several  # steps of an arm's search that are decided on side by side
    arms: dict[Name, ArmDesign] = Field(min_length=1)
    seeds: Several
    minimum_seeds: int | None = Field(ge=2)  # before the first look of adaptive stopping; None: all are run
    anytime: tuple[Amount, ...]
    margin: Amount | None  # None: a share of what the second half of the budget brings
    yardsticks: YardstickDesign
    control: Name | None = None  # the arm that the others are compared with; None: every two arms

    def lower_is_better(self, yardstick: str) -> bool:
        """Whether smaller values of a yardstick are the better ones."""
        return yardstick in self.yardsticks.lower_is_better


class MachineRecord(Config):
    """The machine of a session's driver."""

    system: Text
    cpus: int | None


class Earlier(Config):
    """The other studies that were begun in a study's storage."""

    studies: Count
    alike: tuple[Name, ...]  # of these, those of the same question or text


class StudyRecord(_Record):
    """A session began."""

    kind: Literal["study"] = "study"
    name: Name
    folder: Text
    digest: Text  # of the frozen study's file
    protocol: dict[str, JsonValue]
    protocol_digest: Text
    design: Design  # follows from the protocol
    versions: dict[Name, Text]
    machine: MachineRecord
    usd_per_hour: Amount | None  # price of a worker; None where there is none
    earlier: Earlier | None = None  # of the first session


class ExtensionRecord(_Record):
    """The study was let spend more."""

    kind: Literal["extension"] = "extension"
    changes: dict[str, tuple[JsonValue, JsonValue]]  # before and after, by dotted key of the study


class CorpusLanguage(Config):
    """Of one language's training split."""

    documents: Count
    tokens: Count
    sequences: Count
    target_share: Amount  # of the stream


class CorpusRecord(_Record):
    """The prepared text."""

    kind: Literal["corpus"] = "corpus"
    fingerprint: Name
    vocabulary_size: Count
    sequence_length: Count
    languages: dict[Name, CorpusLanguage]
    files: Mapping[Text, FileDigest] = {}  # digests of those beside the shards, of which the manifest has the shards'


class TaskDescription(Config):
    """Of one downstream task."""

    kind: Name
    items: dict[Name, Count]  # by language, examples of its test split
    chance: dict[Name, Amount]  # by language, what an answer without a look gets right
    licence: Text
    metric: Name = "accuracy"  # what is shown beside the share that is right, where it is another
    metric_chance: Mapping[Name, Number] = {}  # by language, what one answer to all comes to; empty of accuracy


class TasksRecord(_Record):
    """The prepared downstream tasks."""

    kind: Literal["tasks"] = "tasks"
    digest: Name  # the name of their folder in the storage
    items: Count  # of each task and language, that a trial's end is measured on at most
    tasks: dict[Name, TaskDescription]
    exploratory: bool = False  # chosen when the study had ended


class EvaluationRecord(_Record):
    """A trained model was asked tasks that were chosen when the study had ended."""

    kind: Literal["evaluation"] = "evaluation"
    trial: Name
    tasks: Name  # the digest of their record
    scores: dict[Scorer, Score]
    items: Text  # the digest of the file of scores by item
    environment: Environment


class TuningRecord(_Record):
    """A trained model was fine-tuned to a task, once with each seed."""

    kind: Literal["tuning"] = "tuning"
    arm: Name
    trial: Name
    task: Name
    split: Literal["dev", "test"]  # dev: of a search model, to choose the arm's learning rate
    rate: Positive
    scores: tuple[Score, ...] = Field(min_length=1)  # by seed, what is right beyond chance
    diverged: Count  # of the fitted models
    flops: Amount
    device_seconds: Amount
    items: Text  # the digest of the file of scores by item

    @property
    def score(self) -> float:
        """The mean over its seeds."""
        return sum(score.overall for score in self.scores) / len(self.scores)


class PhaseRecord(_Record):
    """A phase begins or ends."""

    kind: Literal["phase"] = "phase"
    phase: Phase
    status: Status


class _AttemptRecord(_Record):
    phase: TrainingPhase
    arm: Name
    trial: Name
    attempt: Count


class TrialRecord(_AttemptRecord):
    """An attempt at a trial is asked for."""

    kind: Literal["trial"] = "trial"
    number: Count  # in the arm's sequence of trials of the phase, from 0
    configuration: Configuration
    seed: Count
    amount: Positive  # its budget, in the study's unit
    share: Amount | None = None  # of a branch: the share of its confirmation run's budget at which it is compared
    start_step: Count
    workers: Count


class DecisionRecord(_Record):
    """An arm's search decided whose step is next: a new trial's first, or one more of a trial at a rung."""

    kind: Literal["decision"] = "decision"
    arm: Name
    decision: Count  # which of the arm's, from 0
    number: Count  # of the trial
    after: Count  # so many results of the arm, those that it could depend on


class EnqueuedRecord(_Record):
    """A person wants an arm's search to try a configuration: it is that of the trial of this number."""

    kind: Literal["enqueued"] = "enqueued"
    arm: Name
    number: Count  # of the trial
    configuration: Configuration
    request: Name  # by which it was asked for: each is taken up once


class BegunRecord(_AttemptRecord):
    """The attempt's process has built the trial."""

    kind: Literal["begun"] = "begun"
    step: Count
    workers: Count
    spent: Measured  # up to that step
    overhead: Overhead  # so far
    built: Built | None = None
    environment: Environment | None = None
    floors: Floors | None = None  # of the attempt that measured them


class MeasureRecord(Measure, _AttemptRecord):
    """A trial's report."""

    kind: Literal["measure"] = "measure"


class EndRecord(_AttemptRecord):
    """An attempt ended."""

    kind: Literal["end"] = "end"
    outcome: AttemptOutcome
    reason: Text
    spent: Measured | None = None  # of an attempt that saved itself: the next one goes on from there
    overhead: Overhead | None = None


class ResourcesRecord(_Record):
    """What of the cluster is in use, and what there is."""

    kind: Literal["resources"] = "resources"
    cluster: dict[Name, tuple[Amount, Amount]]


class WaitingRecord(_Record):
    """Trials' workers wait for room on the cluster; ``workers`` is 0 once none does any more."""

    kind: Literal["waiting"] = "waiting"
    workers: Count
    each: dict[Name, Amount]  # what a worker takes, by Ray's kinds of resources
    reason: Text  # why there is no room


class StopRecord(_Record):
    """The session was asked to save and stop (``begin``), or has stopped so (``end``)."""

    kind: Literal["stop"] = "stop"
    status: Status


class EventRecord(_Record):
    """A message for a person."""

    kind: Literal["event"] = "event"
    message: Text


class CapRecord(_Record):
    """The study's cap ended a phase early."""

    kind: Literal["cap"] = "cap"
    message: Text
    phase: TrainingPhase
    seeds: Count | None  # that were confirmed; None of the search


class ComparisonRecord(_Record):
    """What the study answered (see ``orchestrator.analysis.comparison``)."""

    kind: Literal["comparison"] = "comparison"
    comparison: dict[str, JsonValue]


Record = (
    StudyRecord
    | ExtensionRecord
    | CorpusRecord
    | TasksRecord
    | EvaluationRecord
    | TuningRecord
    | PhaseRecord
    | DecisionRecord
    | EnqueuedRecord
    | TrialRecord
    | BegunRecord
    | MeasureRecord
    | EndRecord
    | ResourcesRecord
    | WaitingRecord
    | StopRecord
    | EventRecord
    | CapRecord
    | ComparisonRecord
)


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def parse_record(line: bytes) -> Record:
    """The record of one line of a ledger. Raises pydantic.ValidationError if it is none."""
    return _adapter().validate_json(line)


def to_line(record: Record) -> bytes:
    """A record as a line of a ledger."""
    return record.model_dump_json().encode() + b"\n"
