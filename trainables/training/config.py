"""How a trial is trained, and what it may spend. Nothing here needs torch."""

import math
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from trainables.config import Config, Positive
from trainables.errors import InputError
from trainables.evaluation.yardstick import EvaluationConfig
from trainables.models.config import ModelConfig

Unit = Literal["tokens", "steps", "flops", "hardware_flops", "device_seconds", "wall_seconds", "joules", "usd"]
UNITS: tuple[Unit, ...] = get_args(Unit)

MEASURED_UNITS: tuple[Unit, ...] = ("device_seconds", "wall_seconds", "joules", "usd")
"""What a step costs in these is known when it is done; in the others, before."""


class AmountConfig(Config):
    """An amount of exactly one unit."""

    key: ClassVar[str]  # where it is in a study

    tokens: Positive | None = None
    """Input tokens trained on."""
    steps: Positive | None = None
    """Optimiser steps."""
    flops: Positive | None = None
    """Floating-point operations that the model needs, forward and backward, in closed form: see Units of the budget."""
    hardware_flops: Positive | None = None
    """Those, and what activation checkpointing computes again."""
    device_seconds: Positive | None = None
    """Seconds in training steps, times the number of devices."""
    wall_seconds: Positive | None = None
    """Seconds in training steps, however many devices take part."""
    joules: Positive | None = None
    """Energy of the devices during training steps, where the machine tells (see docs/budgets.md)."""
    usd: Positive | None = None
    """Price of the devices during training steps, by `resources.prices`."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) > 1:
            raise InputError(
                f"{' and '.join(given)} are both set",
                why="exactly one unit binds; all are measured anyway",
                remedy=f"keep one; on the command line: --set {self.key}='{{{given[-1]}: AMOUNT}}'",
            )
        if not given:
            raise ValueError(f"no {self.key}: set exactly one of {', '.join(UNITS)}")
        return self

    @property
    def unit(self) -> Unit:
        """The binding unit."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def amount(self) -> float:
        """How much of it."""
        return float(getattr(self, self.unit))


class BudgetConfig(AmountConfig):
    """What each trial may spend: exactly one unit binds; all are measured."""

    key: ClassVar[str] = "budget"

    def scaled(self, share: float) -> Self:
        """A share of it."""
        return type(self).model_validate({self.unit: self.amount * share})


class CapConfig(AmountConfig):
    """What the whole study may spend: search and confirmation, with what failures cost and, where the unit is time,
    money or energy, with overhead. One unit, which need not be the budget's."""

    key: ClassVar[str] = "cap"


LARGEST_RATIO = 0.9999
"""Of beta1 to sqrt(beta2): above it, a row's missed steps count for hundreds of thousands of steps, or for ever."""

ROWS_PAY_FROM = 1 << 14
"""Rows of a table from which on updating the touched ones alone is faster: on a CPU dense took 4.4 ms and rows 4.4 ms
with 8,000 rows, 27 ms and 4.9 ms with 33,000 (2,000 of them touched, hidden size 256)."""

Parallelism = Literal["ddp", "fsdp"]  # fsdp: a layer's parameters are gathered while it is computed (arXiv 2304.11277)
Schedule = Literal["linear", "cosine", "constant", "wsd"]


class RestorationConfig(Config):
    """Head restoration (arXiv 2309.08351, section 4.3): at the end of a trial the model gets a vocabulary head, made of
    its embedding, and goes on as the vanilla objective. It is part of the trial's budget."""

    share: float = Field(0.02, gt=0, lt=1)
    """Of the budget."""
    learning_rate: float = Field(1e-4, gt=0)
    """Constant after the warm-up."""
    warmup: float = Field(0.2, ge=0, lt=1)
    """Share of the stage over which the learning rate rises."""


class TrainingConfig(Config):
    """How a model is trained; an arm may override any of it, and a search space may vary it."""

    optimiser: Literal["adamw", "muon"] = "adamw"
    """muon: the body's matrices by Muon, scaled to AdamW's learning rate; embeddings, head, norms, biases by AdamW."""
    embedding_update: Literal["auto", "dense", "rows"] = "auto"
    """Of an embedding table that is only looked up: rows costs the touched rows alone; auto: if that is faster."""
    learning_rate: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    schedule: Schedule = "linear"
    """How the learning rate falls after the warm-up: a function of budget progress."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of the budget over which the learning rate rises."""
    cooldown: float = Field(0.2, gt=0, lt=1)
    """Share of the budget, its last, over which the schedule `wsd` (warm-up, stable, decay) falls."""
    learning_rate_floor: float = Field(0.0, ge=0, le=1)
    """Share of the peak learning rate at the end."""
    batch_sequences: int = Field(64, ge=1)
    """Sequences an optimiser step, over all workers."""
    micro_batch_sequences: int | Literal["auto"] | None = None
    """Sequences a forward pass of one worker, at least 1; auto: the most that fit in memory; null: its whole share.
    Only with `gathered: false` do an objective's negatives depend on it."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's and Muon's; matrices only, not biases and norms."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment decay."""
    beta2: float = Field(0.98, ge=0, lt=1)
    """AdamW's second moment decay."""
    epsilon: float = Field(1e-8, gt=0)
    """AdamW's."""
    clip_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm."""
    mask_rate: float = Field(0.15, gt=0, le=0.9)
    """Share of the tokens that a masked objective recovers; every sequence has the same number."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products under autocast; auto: bfloat16 on CUDA, float32 on a CPU."""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Weights are also averaged, with this decay a step; yardsticks and export use the average."""
    activation_checkpointing: bool = False
    """Compute each layer again in the backward pass instead of storing it: less memory, about a third more time."""
    compile: bool = False
    """Compile the model with `torch.compile`: slower to start, faster steps on a GPU."""
    restoration: RestorationConfig | None = None
    """Give a headless model a vocabulary head in the last part of its budget; null: its embedding scores tokens."""
    parallel: Parallelism = "ddp"
    """How workers share a model: each has a whole copy (ddp) or a part of its weights and optimiser state (fsdp)."""

    @field_validator("micro_batch_sequences")
    @classmethod
    def _some_sequences(cls, sequences: int | str | None) -> int | str | None:
        if isinstance(sequences, int) and sequences < 1:
            raise ValueError("must be at least 1, auto or null")
        return sequences

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        obstacle = self._obstacle_to_rows()
        if self.embedding_update == "rows" and obstacle:
            raise _no_rows(obstacle)
        if self.schedule == "wsd" and self.warmup + self.cooldown > 1:
            raise ValueError("'warmup' and 'cooldown' are longer than the budget: their sum must be at most 1")
        if self.parallel == "fsdp" and self.micro_batch_sequences == "auto":
            raise ValueError("'micro_batch_sequences: auto' is tried out on whole weights: give fsdp a number")
        for setting, without in (("restoration", None), ("ema_decay", None), ("optimiser", "adamw")):
            if self.parallel == "fsdp" and getattr(self, setting) != without:
                raise ValueError(f"'{setting}' needs whole weights: set parallel to ddp, or leave it out")
        return self

    def _obstacle_to_rows(self) -> str:
        if self.parallel == "fsdp":
            return "with parallel: fsdp every worker has a part of the table"
        if self.ema_decay is not None:
            return "with ema_decay every row of the average moves at every step"
        if not can_defer(self.beta1, self.beta2):
            return "with a beta1 not below sqrt(beta2) the rows that a step leaves out never come to rest"
        return ""

    def rate_at(self, progress: float, *, restored: bool) -> float:
        """The learning rate at a share of the budget. The schedule ends where restoration begins."""
        restoration = self.restoration
        begin = 1.0 - restoration.share if restoration is not None else 1.0
        if restored:
            assert restoration is not None
            into = (progress - begin) / restoration.share
            return restoration.learning_rate * learning_rate_share(into, restoration.warmup, "constant", 0.0)
        return self.learning_rate * learning_rate_share(
            progress / begin, self.warmup, self.schedule, self.learning_rate_floor, self.cooldown
        )

    @property
    def stable_share(self) -> float:
        """Share of a budget after which its end decides the learning rate: up to there ``wsd`` is the same for any."""
        before_restoration = 1.0 if self.restoration is None else 1.0 - self.restoration.share
        return before_restoration * (1.0 - self.cooldown)

    def updates_rows(self, *, only_looked_up: bool, num_rows: int) -> bool:
        """Whether a table is updated by the touched rows alone; InputError where that is demanded and cannot be."""
        obstacle = self._obstacle_to_rows()
        if not only_looked_up:
            obstacle = "the table is the vocabulary head too, whose gradient has every row"
        if self.embedding_update == "rows" and obstacle:
            raise _no_rows(obstacle)
        if self.embedding_update == "auto":
            return not obstacle and num_rows >= ROWS_PAY_FROM
        return self.embedding_update == "rows"


def learning_rate_share(
    progress: float, warmup: float, schedule: Schedule, floor: float, cooldown: float = 0.2
) -> float:
    """Share of the peak learning rate when this share of the budget is spent.

    It rises linearly from 0 over the warm-up's share of the budget, then falls to the floor (``constant`` does not).
    ``wsd`` (warm-up, stable, decay) stays at the peak until the cooldown, the last share of the budget, over which it
    falls as 1 - sqrt (arXiv 2405.18392, section 4): what came before it is part of any longer run too.
    """
    if progress < warmup:
        return progress / warmup
    if schedule == "constant":
        return 1.0
    if schedule == "wsd":
        into = min(1.0, max(0.0, (progress - (1.0 - cooldown)) / cooldown))
        return floor + (1.0 - floor) * (1.0 - math.sqrt(into))
    left = min(1.0, max(0.0, (1.0 - progress) / (1.0 - warmup)))
    shape = left if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * left))
    return floor + (1.0 - floor) * shape


def _no_rows(why: str) -> InputError:
    return InputError(
        "the embedding table cannot be updated by rows",
        where="training.embedding_update",
        why=why,
        remedy="embedding_update: auto",
    )


def can_defer(beta1: float, beta2: float) -> bool:
    """Whether the moves of a missed row die out, so that they can be made later."""
    return beta1 <= LARGEST_RATIO * math.sqrt(beta2) and beta2 > 0


class Branch(Config):
    """A shorter run that begins with a longer one's state: the trial saves that as the branch's first checkpoint."""

    trial: str  # its name
    progress: float = Field(gt=0, lt=1)  # of the longer run, where its state is saved for the branch


class TrialConfig(Config):
    """Everything that one trial depends on."""

    trial: str  # its name, unique in the study; its checkpoints lie under it
    objective: str
    options: dict[str, Any] = Field(default_factory=dict)  # the objective's settings
    model: ModelConfig
    training: TrainingConfig
    budget: BudgetConfig
    seed: int
    corpus: str  # folder of the packed corpus
    alpha: float
    maximum_repetition: float
    document_attention: bool = False  # attention stays inside documents, and positions restart with them
    evaluation: EvaluationConfig
    split: Literal["validation", "test"]
    tasks: str | None = None  # folder of the prepared examples of downstream tasks
    yardsticks: tuple[str, ...]  # all are taken at the end; at evaluations before it only the first, the primary
    rungs: tuple[float, ...] = ()  # progress where the search may stop the trial: an evaluation and a checkpoint each
    evaluations: tuple[float, ...] = ()  # further progress points with an evaluation and a checkpoint
    branches: tuple[Branch, ...] = ()  # runs that begin with this one's state on its way
    floors: bool = False  # whether it measures, before its first step, what the yardsticks are where nothing is learned
    reports: int = 20  # reports over the run, evenly by progress
