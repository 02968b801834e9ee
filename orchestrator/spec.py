"""A study as its author writes it: one YAML, validated whole before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from orchestrator.validation import input_error, yaml_problem
from search_spaces import Categorical, Dimension, Float, Integer, Space, load_space, space_names
from trainables.config import Config
from trainables.corpora.config import CorporaConfig
from trainables.errors import InputError, nearest
from trainables.evaluation import YARDSTICKS, EvaluationConfig
from trainables.models.shapes import ModelConfig
from trainables.models.tokenizers import TokenizerConfig
from trainables.objectives import find_objective
from trainables.training.budget import UNITS, BudgetConfig, CapConfig, Unit
from trainables.training.optimiser import TrainingConfig

LARGEST_GRID = 100_000
"""Points."""

LEAST_COOLDOWN_STEPS = 2
"""Of a run that leaves another on its way."""

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
    """Configurations of each arm."""
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
    """Starts a trial gets before it counts as failed; each goes on from the last checkpoint."""
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
        for name, arm in self.arms.items():
            if not name.replace("_", "").replace("-", "").isalnum():
                raise InputError(
                    f"an arm cannot be called '{name}'", where="arms", remedy="letters, digits, '-' and '_'"
                )
            self._require_whole_shares(name, arm)
            self._require_fitting_stages(name, arm)
            self._require_own_tokenizer(name, arm)
            self._require_branches(name, arm)
            self._require_searchable(name, arm)
        if self.search.cost == self.budget.unit:
            raise InputError(
                f"the budget is in {self.budget.unit}, so that all trials cost the same",
                where="search.cost",
                remedy=f"another unit: {', '.join(unit for unit in UNITS if unit != self.budget.unit)}",
            )
        self._require_a_step()
        stopping = self.confirm.stopping
        if stopping is not None and stopping.minimum >= self.confirm.seeds:
            raise InputError(
                f"there is nothing to stop: the first look is after {stopping.minimum} seeds of {self.confirm.seeds}",
                where="confirm.stopping.minimum",
                remedy=f"--set confirm.seeds={2 * stopping.minimum}, the most there may be",
            )
        if stopping is not None and self.confirm.top > 1:
            raise InputError(
                "adaptive stopping looks at one configuration of each arm",
                where="confirm.top",
                why=f"with {self.confirm.top} the best is picked with all seeds in view, and looks would count more",
                remedy="--set confirm.top=1, or leave out confirm.stopping",
            )
        if self.confirm_budget.unit != self.budget.unit:
            raise InputError(
                f"confirm.budget is in {self.confirm_budget.unit}, the study's budget in {self.budget.unit}",
                where="confirm.budget",
                why="the search finds settings that are good for a budget of its unit",
                remedy=f"confirm: {{budget: {{{self.budget.unit}: AMOUNT}}}}",
            )
        self._require_prices()
        if "minimal_pair_accuracy" in self.yardsticks.names and not self.corpora.has_minimal_pairs:
            raise InputError(
                "there are no minimal pairs to take minimal_pair_accuracy on",
                where="yardsticks",
                why="a source with a grammar brings them, corpora.minimal_pairs_per_language says how many",
                remedy="add such a source, or leave out this yardstick: --set yardsticks.others=[]",
            )
        return self

    def _require_whole_shares(self, name: str, arm: ArmSpec) -> None:
        searched = arm.load_space().dimensions.get("batch_sequences")
        sizes = {self.training_of(arm).batch_sequences} if searched is None else set(ends_of(searched))
        if isinstance(searched, Integer) and self.resources.workers > 1:
            sizes |= {searched.low + 1}
        for size, workers in product(sizes, self.resources.possible_workers):
            if size % workers:
                inside = "space" if searched is not None else "training.batch_sequences"
                own = searched is not None or "batch_sequences" in arm.training
                raise InputError(
                    f"a batch of {size} sequences cannot be shared out evenly among {workers} workers",
                    where=f"arms.{name}.{inside}" if own else "training.batch_sequences",
                    why="then an arm's result would depend on resources.workers",
                    remedy=f"a multiple of {workers}, such as {-(-size // workers) * workers}",
                )

    def _require_searchable(self, name: str, arm: ArmSpec) -> None:
        """The arm's space is one that the algorithm can search."""
        algorithm, space, where = self.search.algorithm, arm.load_space(), f"arms.{name}.space"
        varied = [dimension for dimension in space.dimensions.values() if len(set(ends_of(dimension))) > 1]
        if algorithm == "cma_es" and not any(isinstance(d, Float | Integer) for d in varied):
            raise InputError(
                "cma_es has nothing to search",
                where=where,
                why="it knows numbers only, and the space has none that vary",
                remedy="--set search.algorithm=tpe",
            )
        if algorithm != "grid":
            return
        size = math.prod(
            len(dimension.grid(self.search.grid_points)) for dimension in space.dimensions.values()
        )
        if size > LARGEST_GRID:
            raise InputError(
                f"the grid has {size} points, more than {LARGEST_GRID}",
                where=where,
                remedy="a smaller search.grid_points, or search.algorithm: qmc",
            )
        for configuration in space.first:
            if missing := sorted(space.dimensions.keys() - configuration.keys()):
                raise InputError(
                    f"'first' leaves out {', '.join(missing)}",
                    where=where,
                    why="a grid has nothing to suggest for what is left out",
                    remedy="name every setting of the space",
                )

    def _require_own_tokenizer(self, name: str, arm: ArmSpec) -> None:
        if (arm.model or self.model).pretrained is not None and self.tokenizer.train is not None:
            raise InputError(
                "a pretrained model needs the tokenizer it was trained with",
                where=f"arms.{name}.model.pretrained" if arm.model else "model.pretrained",
                why="a newly trained one gives its embeddings to other pieces of text",
                remedy="tokenizer: {pretrained: the same folder or name}",
            )

    def _require_fitting_stages(self, name: str, arm: ArmSpec) -> None:
        objective, training = find_objective(arm.objective), self.training_of(arm)
        options = objective.options.model_validate(arm.options)
        own = f"arms.{name}.training" if arm.training else "training"
        if training.restoration is not None and all(t.candidates == "vocabulary" for t in objective.terms):
            raise InputError(
                f"the objective {objective.name} has a vocabulary head already",
                where=f"{own}.restoration",
                why="restoration gives a headless model a head",
                remedy="set it in the training of the headless arms alone",
            )
        if training.micro_batch_sequences == "auto" and not getattr(options, "gathered", True):
            raise InputError(
                "micro-batches that fit themselves to the memory would change the loss",
                where=f"{own}.micro_batch_sequences",
                why="with 'gathered: false' negatives come from the micro-batch",
                remedy="a number, or options: {gathered: true}",
            )

    def _require_branches(self, name: str, arm: ArmSpec) -> None:
        """A branch leaves its trunk where the learning rate is at its peak, whatever the search finds."""
        if not self.confirm.anytime:
            return
        training, own = self.training_of(arm), f"arms.{name}.training" if arm.training else "training"
        searched = sorted({"schedule", "warmup", "cooldown"} & arm.load_space().dimensions.keys())
        if searched:
            raise InputError(
                f"the search of the arm {name} varies {' and '.join(searched)}",
                where=f"arms.{name}.space",
                why="confirm.anytime needs one schedule for all runs",
                remedy="leave it out of the space, or leave out confirm.anytime",
            )
        if training.schedule != "wsd":
            raise InputError(
                f"the schedule '{training.schedule}' is that of one budget alone",
                where=f"{own}.schedule",
                why="confirm.anytime compares at shares of a run, and only wsd is the same up to there",
                remedy=f"--set {own}.schedule=wsd, or leave out confirm.anytime",
            )
        first = self.confirm.anytime[0] * (1.0 - training.cooldown)
        if training.warmup >= first:
            raise InputError(
                f"at {self.confirm.anytime[0]:g} of the budget the warm-up is not over",
                where="confirm.anytime",
                why=f"its run leaves at {first:g} of the budget, the warm-up lasts to {training.warmup:g}",
                remedy=f"a larger share, or --set training.warmup={first / 2:g}",
            )

        self._require_cooldown_steps(training)

    def _require_cooldown_steps(self, training: TrainingConfig) -> None:
        """A branch of less than a few steps would be judged as if it had cooled down."""
        amount = self.confirm_budget.amount
        per_step = {"steps": 1.0, "tokens": training.batch_sequences * self.corpora.sequence_length}
        if self.confirm_budget.unit in per_step:
            steps = self.confirm.anytime[0] * training.cooldown * amount / per_step[self.confirm_budget.unit]
            if steps < LEAST_COOLDOWN_STEPS:
                raise InputError(
                    f"a cooldown of {steps:.2g} steps at {self.confirm.anytime[0]:g} of the budget is none",
                    where="confirm.anytime",
                    why=f"it takes {LEAST_COOLDOWN_STEPS} steps at least, and many more to tell anything",
                    remedy="a larger share, a longer training.cooldown, or a larger budget",
                )

    @property
    def confirm_budget(self) -> BudgetConfig:
        """Of a confirmation run."""
        return self.confirm.budget or self.budget

    def branch_share(self, arm: str, share: float) -> float:
        """Share of a confirmation run's budget that a run that leaves it for a ``share`` of it spends by itself."""
        return share * (1.0 - self.training_of(self.arms[arm]).stable_share)

    def _require_a_step(self) -> None:
        for budget, key in ((self.budget, "budget"), (self.confirm_budget, "confirm.budget")):
            unit, amount = budget.unit, budget.amount
            least = {"tokens": self.corpora.sequence_length * self.resources.workers, "steps": 1}.get(unit, 0)
            if amount < least:
                raise InputError(
                    f"a budget of {amount:g} {unit} buys no training step",
                    where=f"{key}.{unit}",
                    why="the smallest step is one sequence of corpora.sequence_length tokens a worker",
                    remedy=f"at least {least}, and many times that to learn anything",
                )

    @property
    def units_in_use(self) -> dict[str, Unit]:
        """The units that something is bound by or tuned for, by key."""
        units: dict[str, Unit | None] = {
            "budget": self.budget.unit,
            "cap": None if self.cap is None else self.cap.unit,
            "search.cost": self.search.cost,
        }
        return {key: unit for key, unit in units.items() if unit is not None}

    def _require_prices(self) -> None:
        for key, unit in self.units_in_use.items():
            if unit == "usd" and self.resources.prices == PricesSpec():
                raise InputError(
                    f"a {key} in usd needs prices",
                    where=key if key == "search.cost" else f"{key}.usd",
                    why="what a device costs is not known otherwise",
                    remedy="resources: {prices: {gpu_hour: 2.5, cpu_hour: 0.04}}, or those that apply",
                )

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


def ends_of(dimension: Dimension) -> tuple[Any, ...]:
    """The outermost values of a dimension, or its choices."""
    return dimension.choices if isinstance(dimension, Categorical) else (dimension.low, dimension.high)


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
