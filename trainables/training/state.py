"""What a trial says of itself, and what it goes on from beside its tensors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from trainables.config import Amount, Config, Count, Name, Number
from trainables.errors import printable
from trainables.evaluation.yardstick import Score
from trainables.training.config import UNITS, Unit

Status = Literal["running", "completed", "interrupted", "diverged"]

FileDigest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
Spent = dict[Unit, Amount]
Overhead = dict[str, Amount]  # seconds, by cause

_ALWAYS_MEASURED = set(UNITS) - {"joules", "usd"}


def _with_all_units(spent: Spent) -> Spent:
    if missing := _ALWAYS_MEASURED - spent.keys():
        raise ValueError(f"{', '.join(sorted(missing))} missing")
    return spent


Measured = Annotated[Spent, AfterValidator(_with_all_units)]  # in every unit that every machine tells


@dataclass
class Spending:
    """What training steps have spent. Evaluation, start-up, checkpoints and waiting are not in it."""

    tokens: int = 0
    steps: int = 0
    flops: int = 0
    hardware_flops: int = 0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0
    joules: float | None = None  # None where the machine does not tell, or some machine that the trial was on did not
    usd: float | None = None  # None without a price

    def record(self) -> dict[str, float]:
        """By unit, those that are known."""
        return {unit: amount for unit, amount in asdict(self).items() if amount is not None}


class Measure(Config):
    """What is measured at a report."""

    step: Count
    progress: float = Field(ge=0, le=1)  # share of the budget that is spent
    spent: Measured
    overhead: Overhead  # of this attempt
    loss: Number | None  # mean since the report before; None where there was no step, or it was not finite or too large
    learning_rate: float = Field(ge=0)
    digest: Digest  # of the sequences trained on
    mix: Mapping[Name, Count]  # sequences trained on, by language
    rung: Count | None  # the last of those passed since the report before
    yardsticks: Mapping[Name, Score]  # empty but at evaluations, and on all workers but the first
    scorer: Name | None = None  # how the model scored the vocabulary for them; None where there are none
    items: FileDigest | None = None  # digest of the file of the items' scores
    other_scorers: Mapping[Name, Mapping[Name, Score]] = {}  # the yardsticks by the model's other ones, at the end
    course: Mapping[Name, Score] = {}  # at the end, on the text of the evaluations before; empty where there were none
    other_cpus: float | None = Field(None, ge=0)  # cores that others kept busy since the report before
    checkpoint: FileDigest | None = None  # of a completed run: digest of the files of the model that was scored


class Built(Config):
    """What an attempt trains, and on what."""

    parameters: Count
    device: Annotated[str, AfterValidator(printable)]  # ``cpu``, or the GPU's name
    precision: Literal["float32", "bfloat16"]  # of matrix products


class Environment(Config):
    """In what an attempt runs; of several workers the first one's."""

    versions: Mapping[Name, Annotated[str, AfterValidator(printable)]]  # of Python and packages
    processor: Annotated[str, AfterValidator(printable)]
    threads: Count  # of operations on the CPU


class Floors(Config):
    """What the yardsticks are where nothing was learned, on a trial's own held-out text."""

    untrained: Mapping[Name, Score]  # by yardstick, of its model before the first step
    tables: Mapping[Name, Mapping[Name, Score]]  # by table (``evaluation.tables``) and yardstick
    items: FileDigest | None  # of the file of the items' scores


class Report(NamedTuple):
    """What a trial says of itself."""

    status: Status  # all but ``running`` are a trial's last word
    measure: Measure
    messages: tuple[str, ...] = ()  # for a person: what was found out or went otherwise than asked for

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return self._asdict() | {"measure": self.measure.model_dump()}


class TrialState(Config):
    """What a trial goes on from beside its tensors; of several workers the sum."""

    restored: bool  # whether a head was made of the embedding
    micro_batch_sequences: int | Literal["auto"] | None
    spent: Spending
    next_sequence: int = Field(ge=0)  # place in the stream
    digest: Digest
    seen: tuple[Annotated[int, Field(ge=0)], ...]  # sequences of each language
    loss_sum: float
    loss_steps: int = Field(ge=0)  # since the last report
    step_cost: float  # of the last step, in the budget's unit
    reports: tuple[Measure, ...]  # those so far, a few hundred bytes each
    floors: Floors | None = None  # where it measured them
