"""A study as its author writes it: one YAML, validated whole before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from orchestrator.config.consistency import ends_of, require_consistent
from orchestrator.config.errors import input_error, yaml_problem
from search_spaces import Categorical, Dimension, Float, Space, load_space, space_names
from trainables.config import Config
from trainables.corpora.config import CorporaConfig, TokenizerConfig
from trainables.errors import InputError, nearest
from trainables.evaluation import YARDSTICKS, EvaluationConfig
from trainables.models.shapes import ModelConfig
from trainables.objectives import find_objective
from trainables.training.budget import BudgetConfig, CapConfig, Unit
from trainables.training.optimiser import TrainingConfig

LARGEST_REDUCTION = 1000
"""A trial may be stopped when it has spent one part in so many, not before."""


class ArmSpec(Config):
    """One side of the comparison."""

    objective: str
    """`h2h list` shows them."""
    space: str | None = None
    """Search space: a shipped one's name or a YAML file; null: the one named as the objective."""
    options: dict[str, bool | int | float | str | None] = Field(default_factory=dict)
    """Settings of the objective that are fixed for this arm, as `temperature`."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Training settings that this arm has otherwise than the study."""
    model: ModelConfig | None = None
    """Another model than the study's."""

    @field_validator("objective")
    @classmethod
    def _known_objective(cls, name: str) -> str:
        return find_objective(name).name

    @model_validator(mode="after")
    def _known_settings(self) -> ArmSpec:
        options = find_objective(self.objective).options
        _refuse_unknown(
            self.options, options.model_fields, f"the objective {self.objective} has no option", "options"
        )
        _refuse_unknown(
            self.training, TrainingConfig.model_fields, "there is no training setting", "training"
        )
        _validate(options, self.options, "options")
        _validate(TrainingConfig, self.training, "training")
        self._check_space(options)
        return self

    def _check_space(self, options: type[Config]) -> None:
        """Every value that the search may suggest is one that the setting can have."""
        space, key = self.load_space(), f"space ({self.space or self.objective})"
        fields = {**TrainingConfig.model_fields, **options.model_fields}
        _refuse_unknown(
            space.dimensions, fields, f"the search space varies what {self.objective} does not have:", key
        )
        for name, dimension in space.dimensions.items():
            owner = options if name in options.model_fields else TrainingConfig
            whole = int in _types(fields[name].annotation) and float not in _types(fields[name].annotation)
            if whole and isinstance(dimension, Float):
                raise InputError(
                    f"'{name}' is a whole number", where=key, remedy=f"{name}: {{type: int, ...}}"
                )
            for value in ends_of(dimension):
                _validate(owner, {name: value}, key)
        for configuration in space.first:
            for name, value in configuration.items():
                if not _contains(space.dimensions[name], value):
                    raise InputError(f"'first' has a {name} outside its dimension: {value}", where=key)

    def load_space(self) -> Space:
        """The arm's search space.

        Raises:
            InputError: there is no such space, or its file is wrong.
        """
        name = self.space or self.objective
        key = f"space ({name})"
        try:
            return load_space(name)
        except FileNotFoundError as error:
            own = (
                [path.name for path in Path(name).parent.glob("*.yaml")]
                if name.endswith((".yaml", ".yml"))
                else []
            )
            remedy = nearest(name, [*space_names(), *own])
            raise InputError(f"no search space '{name}'", where="space", remedy=remedy) from error
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the search space {name} cannot be read", where=key, why=str(error)) from error
        except yaml.YAMLError as error:
            raise InputError("the search space is not YAML", where=key, why=yaml_problem(error)) from error
        except ValidationError as error:
            raise _relative(error, Space, key) from error


class HalvingSpec(Config):
    """Successive halving inside an arm: a trial goes on from a rung if it is among the best 1/reduction there."""

    kind: Literal["stopping", "promotion"] = "stopping"
    """`stopping`: decided when a trial comes to a rung, the others stop there. `promotion`: every trial pauses at every
    rung, and goes on from its checkpoint once it is among the best there."""
    reduction: int = Field(3, ge=2)
    """eta: of the trials at a rung one in so many goes on."""
    rungs: int = Field(3, ge=1)
    """Budgets a trial may end with: reduction^-(rungs-1), ..., 1/reduction, 1. One rung: no halving."""

    @model_validator(mode="after")
    def _first_rung_is_something(self) -> HalvingSpec:
        if self.reduction ** (self.rungs - 1) > LARGEST_REDUCTION:
            raise InputError(
                f"the first rung would be at {self.reduction}^-{self.rungs - 1} of a trial",
                where="rungs",
                why=f"less than 1/{LARGEST_REDUCTION} of a trial tells nothing of it",
                remedy="fewer rungs or a smaller reduction",
            )
        return self

    @property
    def fractions(self) -> tuple[float, ...]:
        """Progress at the rungs below the whole budget, ascending."""
        return tuple(round(self.reduction ** -float(power), 9) for power in range(self.rungs - 1, 0, -1))

    @property
    def finishing_budget(self) -> float:
        """The least that brings a trial to its end, in trial budgets."""
        # With promotion, one trial at the last rung takes `reduction` of them at each rung to the next.
        return 1.0 if self.kind == "stopping" else 1.0 + (self.rungs - 1) * (1.0 - 1.0 / self.reduction)

    @property
    def finishing_trials(self) -> int:
        """The least that bring one of them to its end, whatever they come to."""
        return 1 if self.kind == "stopping" else int(self.reduction ** (self.rungs - 1))


class SearchSpec(Config):
    """How each arm is tuned."""

    budget_per_arm: float = Field(8, ge=0)
    """What each arm's search may spend, in trial budgets; 0: no search, arms are confirmed as they are written."""
    algorithm: Literal["tpe", "gp", "cma_es", "random", "qmc", "grid"] = "tpe"
    """Optuna's sampler: tree-structured Parzen estimator, Gaussian process, CMA-ES, uniform, Sobol' sequence; or every
    point of a grid, and then no more."""
    startup_trials: int = Field(4, ge=1)
    """Random trials before `tpe` or `gp` models anything; more are better for many dimensions."""
    grid_points: int = Field(3, ge=1)
    """Of each numeric dimension, for `grid`; of a choice all."""
    cost: Unit | None = None
    """A second objective beside the primary yardstick: of this unit a trial is to spend little. Not the unit of the
    budget, which all spend alike; no halving with it. The cheapest that `confirm.margin` cannot tell from the best is
    confirmed."""
    halving: HalvingSpec = HalvingSpec()
    """Stopping trials early."""
    concurrent_per_arm: int = Field(1, ge=1)
    """Trials of one arm at a time. With 1 the same seed gives the same search; more fill a cluster, and then the
    order in which trials happen to end decides what is tried next."""

    @model_validator(mode="after")
    def _a_trial_or_none(self) -> SearchSpec:
        if 0 < self.budget_per_arm < 1:
            raise ValueError("'budget_per_arm' below 1 buys no trial: at least 1, or 0 for no search")
        least = self.halving.finishing_budget
        if 0 < self.budget_per_arm < least:
            raise InputError(
                f"{self.budget_per_arm:g} trial budgets bring no trial to its end by promotion",
                where="budget_per_arm",
                why=f"with {self.halving.rungs} rungs and a reduction of {self.halving.reduction} it takes {least:.2f}",
                remedy="a larger budget, fewer rungs, or search.halving.kind: stopping",
            )
        return self

    @model_validator(mode="after")
    def _two_objectives(self) -> SearchSpec:
        if self.cost is not None and self.algorithm == "cma_es":
            raise InputError(
                "cma_es has one objective",
                where="algorithm",
                why="search.cost is a second one",
                remedy="tpe or gp, or leave out search.cost",
            )
        if self.cost is not None and self.halving.rungs > 1:
            raise InputError(
                "a search with search.cost stops no trials",
                where="halving.rungs",
                why="what a stopped trial would have cost is not known",
                remedy="--set search.halving.rungs=1",
            )
        return self


class StoppingSpec(Config):
    """Seeds are added one pair at a time until the question is answered (see docs/statistics.md)."""

    minimum: int = Field(6, ge=2)
    """Seeds before the first look."""


class ConfirmSpec(Config):
    """How the best configurations are compared."""

    seeds: int = Field(6, ge=1)
    """Paired runs of each arm's best configuration. With fewer than 6 no arm can win: p cannot reach 0.05."""
    stopping: StoppingSpec | None = None
    """Look after every seed, and stop when the question is answered: then `seeds` is the most there are."""
    top: int = Field(1, ge=1)
    """Configurations of each arm. Above 1 the verdict is exploratory: the best is chosen by the values compared."""
    margin: float = Field(0.005, gt=0)
    """Differences of the primary yardstick below it do not matter."""
    evaluations: int = Field(5, ge=1)
    """Evaluations over a run, for the curves."""
    budget: BudgetConfig | None = None
    """Of each of these runs, in the unit of the study's budget; null: the study's budget."""
    anytime: tuple[float, ...] = ()
    """Shares of that budget at which the arms are compared too, by runs that leave the confirmation runs on their way
    and cool down by themselves. The schedule must be `wsd`; only the cooldowns cost anything."""

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

    primary: str = "recovery_accuracy"
    """Guides the search and decides the comparison."""
    others: tuple[str, ...] = ("recovery_mrr",)
    """Measured beside it."""
    target: float | None = None
    """Value of the primary one that arms race to; null: the worse of two arms' final means."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """On what."""

    @model_validator(mode="after")
    def _known(self) -> YardstickSpec:
        for name in self.names:
            if name not in YARDSTICKS:
                key = "primary" if name == self.primary else "others"
                raise InputError(f"unknown yardstick '{name}'", where=key, remedy=nearest(name, YARDSTICKS))
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The primary one first."""
        return (self.primary, *(name for name in self.others if name != self.primary))


class PricesSpec(Config):
    """What devices cost. A worker with GPUs costs its GPUs, one without its CPU cores."""

    gpu_hour: float | None = Field(None, gt=0)
    """US dollars for an hour of one GPU, with its part of the machine around it."""
    cpu_hour: float | None = Field(None, gt=0)
    """US dollars for an hour of one CPU core."""

    @property
    def known(self) -> bool:
        """Whether there is any."""
        return self != PricesSpec()


class ResourcesSpec(Config):
    """On what a trial runs."""

    workers: int = Field(1, ge=1)
    """Workers that train one model together (data-parallel)."""
    minimum_workers: int | None = Field(None, ge=1)
    """A trial may also start on fewer workers, down to so many, where there is no room for all; null: it waits."""
    cpus_per_worker: int = Field(1, ge=1)
    """CPU cores of a worker."""
    gpus_per_worker: int | None = Field(None, ge=0)
    """GPUs of a worker; null: 1 where there are GPUs, else 0."""
    concurrent_trials: int | None = Field(None, ge=1)
    """Trials at a time; null: as many as fit."""
    launcher: Literal["auto", "direct", "ray_train"] = "auto"
    """`ray_train`: every trial is a Ray Train run. `direct`: in the Tune process, one worker only. auto: `direct` for
    one CPU worker, else `ray_train`."""
    attempts: int = Field(3, ge=1)
    """Failed starts in a row that leave a trial no newer checkpoint, until it counts as failed; each start goes on from
    the last checkpoint."""
    prices: PricesSpec = PricesSpec()
    """With them, what is spent is also told in dollars."""

    def usd_per_hour(self, gpus_per_worker: int) -> float | None:
        """Price of a worker with so many GPUs; None where the study has none."""
        if gpus_per_worker:
            price = self.prices.gpu_hour
            return None if price is None else gpus_per_worker * price
        return None if self.prices.cpu_hour is None else self.cpus_per_worker * self.prices.cpu_hour

    @property
    def possible_workers(self) -> range:
        """Numbers of workers that a trial may run on."""
        return range(self.minimum_workers or self.workers, self.workers + 1)

    @model_validator(mode="after")
    def _fewer_than_all(self) -> ResourcesSpec:
        if self.minimum_workers is not None and self.minimum_workers > self.workers:
            raise ValueError(f"minimum_workers is above workers, which is {self.workers}")
        return self

    @model_validator(mode="after")
    def _direct_is_alone(self) -> ResourcesSpec:
        if self.launcher == "direct" and self.workers > 1:
            raise ValueError("the direct launcher has one worker: set workers to 1 or launcher to ray_train")
        return self


class StudySpec(Config):
    """One study, one question."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Also the name of its folder in the storage."""
    question: str = ""
    """What it is to answer."""
    seed: int = Field(0, ge=0)
    """Of the search and of the confirmation runs."""
    corpora: CorporaConfig
    """The text."""
    tokenizer: TokenizerConfig = TokenizerConfig.model_validate({"train": {}})
    """Trained on the text, or a pretrained one."""
    model: ModelConfig
    """What every arm trains, unless it says otherwise."""
    training: TrainingConfig = TrainingConfig()
    """How."""
    arms: dict[str, ArmSpec] = Field(min_length=1)
    """By name."""
    budget: BudgetConfig
    """Of each trial."""
    cap: CapConfig | None = None
    """Of the whole study; null: the search ends when its budget does, and all seeds are confirmed."""
    search: SearchSpec = SearchSpec()
    """Tuning."""
    confirm: ConfirmSpec = ConfirmSpec()
    """Comparing."""
    yardsticks: YardstickSpec = YardstickSpec()
    """Measuring."""
    resources: ResourcesSpec = ResourcesSpec()
    """Running."""
    storage: str = "studies"
    """Folder or `s3://`, `gs://` location of studies and prepared corpora."""

    @model_validator(mode="after")
    def _fits_together(self) -> StudySpec:
        require_consistent(self)
        return self

    @property
    def confirm_budget(self) -> BudgetConfig:
        """Of a confirmation run."""
        return self.confirm.budget or self.budget

    def branch_share(self, arm: str, share: float) -> float:
        """Share of a confirmation run's budget that a run that leaves it for a ``share`` of it spends by itself."""
        return share * (1.0 - self.training_of(self.arms[arm]).stable_share)

    @property
    def units_in_use(self) -> dict[str, Unit]:
        """The units that something is bound by or tuned for, by key."""
        units: dict[str, Unit | None] = {
            "budget": self.budget.unit,
            "cap": None if self.cap is None else self.cap.unit,
            "search.cost": self.search.cost,
        }
        return {key: unit for key, unit in units.items() if unit is not None}

    def cooldown_share(self, arm: str) -> float:
        """What the runs that leave a confirmation run of an arm spend by themselves, in that run's budget."""
        return math.fsum(self.branch_share(arm, share) for share in self.confirm.anytime)

    def training_of(self, arm: ArmSpec, configuration: Mapping[str, Any] | None = None) -> TrainingConfig:
        """The training settings of an arm, with a configuration of the search on top."""
        fields = TrainingConfig.model_fields
        chosen = {name: value for name, value in (configuration or {}).items() if name in fields}
        return TrainingConfig.model_validate({**self.training.model_dump(), **arm.training, **chosen})

    def options_of(self, arm: ArmSpec, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """The objective's options of an arm, with a configuration of the search on top."""
        fields = find_objective(arm.objective).options.model_fields
        return {**arm.options, **{name: value for name, value in configuration.items() if name in fields}}


def _contains(dimension: Dimension, value: Any) -> bool:
    if isinstance(dimension, Categorical):
        return value in dimension.choices
    whole = isinstance(value, int) or isinstance(dimension, Float)
    return whole and isinstance(value, int | float) and dimension.low <= value <= dimension.high


def _types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _validate(record: type[Config], values: Mapping[str, Any], key: str) -> None:
    try:
        record.model_validate(values)
    except ValidationError as error:
        raise _relative(error, record, key) from error


def _relative(error: ValidationError, record: type[BaseModel], key: str) -> InputError:
    """As :func:`input_error`, found below a key of the record that is being validated."""
    found = input_error(error, record, "")
    return InputError(
        found.what, where=key + found.where.replace(": ", "."), why=found.why, remedy=found.remedy
    )


def _refuse_unknown(given: Mapping[str, Any], valid: Mapping[str, Any], what: str, key: str) -> None:
    for name in given:
        if name not in valid:
            raise InputError(f"{what} '{name}'", where=key, remedy=nearest(name, valid))
