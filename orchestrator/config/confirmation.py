"""How the best configurations are compared, and on which yardsticks."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from orchestrator.config.task_files import TasksSpec
from trainables.config import Config, Number, Positive, Several
from trainables.errors import InputError
from trainables.evaluation import EvaluationConfig, find_yardstick
from trainables.training.config import BudgetConfig

MARGIN_SHARE = 0.25
"""The margin where the study names none: of what the second half of the budget brings."""

TASKS = "tasks"
"""The yardstick of downstream tasks."""
EMBEDDING_BAG = "embedding_bag"
"""That of the control of probes."""
ALPHA = 0.05  # level of every test: the chance, over all pairs of arms, of naming a winner where there is none


class StoppingSpec(Config):
    """Seeds are added one pair at a time until the question is answered (see docs/statistics.md)."""

    minimum: int = Field(6, ge=2)
    """Seeds before the first look."""


class ConfirmSpec(Config):
    """How the best configurations are compared."""

    seeds: Several = 14
    """Paired runs of each arm's best configuration. With fewer than 4 no arm can win."""
    stopping: StoppingSpec | None = StoppingSpec()
    """Look after every seed, and stop when the question is answered: then `seeds` is the most there are. null: all are
    run, as where `seeds` or a `top` above 1 are given without it."""
    describe_only: bool = False
    """Let the study begin with too few seeds for any answer."""
    control: str | None = None
    """The arm that all others of its task are compared with, and they not with each other; null: every two arms."""
    top: int = Field(1, ge=1)
    """Configurations of each arm. Above 1 the verdict is exploratory: the best is chosen by the values compared."""
    margin: Positive | None = None
    """Differences of the primary yardstick below it do not matter. null: a quarter of what the second half of the
    budget brings the arms."""
    evaluations: int = Field(5, ge=1)
    """Evaluations over a run, for the curves."""
    budget: BudgetConfig | None = None
    """Of each of these runs, in the unit of the study's budget; null: the study's budget."""
    anytime: tuple[float, ...] = ()
    """Shares of that budget at which the arms are compared too, by branches: runs that begin with a confirmation run's
    state at that share and cool down by themselves. The schedule must be `wsd`; only the cooldowns cost anything."""

    @model_validator(mode="after")
    def _fixed_number(self) -> ConfirmSpec:
        given = self.model_fields_set
        if "stopping" not in given and ("seeds" in given or self.top > 1):
            self.__dict__["stopping"] = None  # the instance is frozen, and still being made
        return self

    @field_validator("anytime")
    @classmethod
    def _shares(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < share < 1 for share in shares) or len(set(shares)) < len(shares):
            raise InputError(
                f"confirm.anytime is {list(shares)}",
                why="it takes different shares of the budget, between 0 and 1",
                remedy="as [0.25, 0.5]",
            )
        return tuple(sorted(shares))


class YardstickSpec(Config):
    """What is measured; the primary one decides."""

    primary: str = "bits_per_byte"
    """Guides the search and decides the comparison."""
    others: tuple[str, ...] = ("recovery_accuracy", "recovery_mrr")
    """Measured beside it."""
    target: Number | None = None
    """Value of the primary one that arms race to; null: the worse of two arms' final means."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """On what."""
    tasks: TasksSpec | None = None
    """Downstream tasks, whose yardstick is `tasks`: the mean over them of what is right beyond chance."""

    @model_validator(mode="after")
    def _known(self) -> YardstickSpec:
        named = [name for name in (TASKS, EMBEDDING_BAG) if name in (self.primary, *self.others)]
        if self.tasks is None and named:
            raise InputError(
                "no downstream tasks are named",
                where="tasks",
                why=f"the yardstick {named[0]} is taken on them",
                remedy="--set yardsticks.tasks='{suite: quick, folder: FOLDER}'",
            )
        if self.tasks is not None and not self.tasks.probes and EMBEDDING_BAG in named:
            raise InputError(
                f"{EMBEDDING_BAG} has no task to be taken on",
                where="others",
                why="no task of the suite has training examples, and it is the control of probes",
                remedy="leave it out",
            )
        for name in self.names:
            found = find_yardstick(name, "primary" if name == self.primary else "others")
            if name == self.primary and found.only_at_end:
                raise InputError(
                    f"{name} cannot be the primary yardstick",
                    where="primary",
                    why="it is taken at a trial's end alone, and the primary one also guides the search",
                    remedy=f"--set yardsticks.primary=bits_per_byte --set yardsticks.others='[{name}]'",
                )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The primary one first."""
        own = () if self.tasks is None else (TASKS, EMBEDDING_BAG)[: 1 + self.tasks.probes]
        return tuple(dict.fromkeys((self.primary, *self.others, *own)))
