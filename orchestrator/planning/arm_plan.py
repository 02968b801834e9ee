"""The plan of a study: what it will train and spend, in closed form, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch
from huggingface_hub.errors import StrictDataclassError
from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from transformers import AutoConfig

from orchestrator import formatting
from orchestrator.analysis.statistics import ALPHA, fewest_pairs
from orchestrator.config.study import ArmSpec, StudySpec
from orchestrator.reporting.panels import SideBySide
from orchestrator.scheduling.study_budget import require_confirmation
from search_spaces import Categorical, Dimension
from trainables.corpora.tokenizers import load_tokenizer
from trainables.errors import InputError, nearest
from trainables.models.flops import recomputed_flops
from trainables.models.learner import Learner
from trainables.models.shapes import ModelConfig, body_config
from trainables.objectives import Objective, find_objective
from trainables.objectives.corruption import targets_per_sequence
from trainables.objectives.registry import ContrastiveOptions, SampledOptions
from trainables.training.budget import MEASURED_UNITS, Unit
from trainables.training.optimiser import TrainingConfig

ARM_WIDTH = 58
"""Columns an arm's panel needs."""

MOST_LANGUAGES = 8
"""Languages shown by name."""


@dataclass(frozen=True)
class ArmPlan:
    """What a trial of one arm trains and spends, at the settings that the search does not vary.

    Letters: L tokens a sequence, K target positions, C candidates, V vocabulary.
    """

    spec: StudySpec
    name: str
    vocabulary_size: int

    @property
    def arm(self) -> ArmSpec:
        """Its part of the study."""
        return self.spec.arms[self.name]

    @property
    def objective(self) -> Objective:
        """What is learned."""
        return find_objective(self.arm.objective)

    @property
    def training(self) -> TrainingConfig:
        """How."""
        return self.spec.training_of(self.arm)

    @property
    def searched(self) -> dict[str, Dimension]:
        """What the search varies."""
        return self.arm.load_space().dimensions if self.spec.search.budget_per_arm else {}

    @cached_property
    def learner(self) -> Learner:
        """The model, without memory for its weights.

        Raises:
            InputError: it does not fit the arm or the text, or is no model.
        """
        own = self.arm.model
        model, where = own or self.spec.model, f"arms.{self.name}.model" if own else "model"
        length = self.spec.corpora.sequence_length
        if model.position_limit is not None and model.position_limit < length:
            raise InputError(
                f"the model takes {model.position_limit} tokens, a sequence has {length}",
                where=f"{where}.position_limit",
                remedy=f"--set {where}.position_limit={length}, or a smaller corpora.sequence_length",
            )
        _refuse_unknown_settings(model, f"{where}.config")
        options = self.objective.options.model_validate(self.arm.options)
        try:
            body = body_config(
                model,
                self.objective.task,
                vocabulary_size=self.vocabulary_size,
                sequence_length=length,
                where=where,
            )
            with torch.device("meta"):
                learner = Learner(body, self.objective, options)
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, ZeroDivisionError, StrictDataclassError) as error:
            reason = str(error).strip().splitlines()[-1].strip().removeprefix("ValueError: ")
            remedy = "h2h list shows shapes that work"
            raise InputError(
                "there is no such model", where=f"{where}.config", why=reason, remedy=remedy
            ) from error
        tables = learner.tables
        self.training.updates_rows(only_looked_up="embedding" in tables, num_rows=self.vocabulary_size)
        return learner

    @property
    def body_parameters(self) -> int:
        """Embeddings included."""
        return sum(parameter.numel() for parameter in self.learner.body.parameters())

    @property
    def head_parameters(self) -> int:
        """Those that the head does not share with the body; 0 where there is no head."""
        return sum(parameter.numel() for parameter in self.learner.parameters()) - self.body_parameters

    @property
    def targets_per_sequence(self) -> int:
        """K of one sequence."""
        length = self.spec.corpora.sequence_length
        return targets_per_sequence(self.objective.task, length, self.training.mask_rate)

    @property
    def tokens_per_step(self) -> int:
        """Input tokens of a step, over all workers."""
        return self.training.batch_sequences * self.spec.corpora.sequence_length

    def candidates(self, num_sequences: int) -> int:
        """C in a step of so many sequences; where they depend on the text, the most there can be."""
        options, vocabulary_size = self.learner.options, self.vocabulary_size
        if isinstance(options, SampledOptions):
            return min(options.samples, vocabulary_size) + 1
        if not isinstance(options, ContrastiveOptions):
            return vocabulary_size
        pool = num_sequences * self.targets_per_sequence
        if not options.gathered:
            rows = self.training.micro_batch_sequences
            pool //= (
                max(1, -(-num_sequences // rows)) if isinstance(rows, int) else self.spec.resources.workers
            )
        unique = min(pool, vocabulary_size)
        if options.negatives is None or "negatives" in self.searched:
            return unique
        if options.beyond_batch != "nothing":
            return min(max(options.negatives, pool), vocabulary_size)
        return min(options.negatives, unique) + 1

    @property
    def candidates_depend_on_the_text(self) -> bool:
        """Whether C, and with it the FLOPs of a step, is known afterwards only."""
        return any(term.candidates != "vocabulary" for term in self.objective.terms)

    def step_flops(self, num_sequences: int, *, restored: bool = False) -> int:
        """FLOPs of a step with so many sequences; where they depend on the text, at most.

        Args:
            num_sequences: over all workers.
            restored: after the head was restored.
        """
        learner = self._restored_learner if restored else self.learner
        length, num_targets = self.spec.corpora.sequence_length, num_sequences * self.targets_per_sequence
        return learner.flops(num_sequences, length, num_targets, self.candidates(num_sequences))

    def recomputed_flops(self, num_sequences: int) -> int:
        """FLOPs that activation checkpointing adds to a step with so many sequences."""
        if not self.training.activation_checkpointing:
            return 0
        length, num_targets = self.spec.corpora.sequence_length, num_sequences * self.targets_per_sequence
        return recomputed_flops(self.learner.config, num_sequences, length, num_targets)

    @cached_property
    def _restored_learner(self) -> Learner:
        vanilla = find_objective("mlm" if self.objective.task == "masked" else "clm")
        with torch.device("meta"):
            return Learner(self.learner.config, vanilla, vanilla.options())

    def _mean_step_flops(self, num_sequences: int) -> float:
        """Over a trial in which each part of a head's restoration sees its share of the sequences."""
        restoration = self.training.restoration
        if restoration is None:
            return self.step_flops(num_sequences)
        parts = self.step_flops(num_sequences), self.step_flops(num_sequences, restored=True)
        return (1 - restoration.share) * parts[0] + restoration.share * parts[1]

    def trial_in_units(self) -> dict[Unit, float]:
        """What a trial's budget comes to, by unit; the binding one alone where the others depend on the machine.

        Hardware FLOPs are named where they differ from the model's.

        For a headless objective FLOPs are at most, and what FLOPs buy at least, as much.
        """
        unit, amount = self.spec.budget.unit, self.spec.budget.amount
        batch, length = self.training.batch_sequences, self.spec.corpora.sequence_length
        if unit in MEASURED_UNITS:
            return {unit: amount}
        again = self.recomputed_flops(1)
        if unit in ("flops", "hardware_flops"):

            def cost(*, restored: bool = False) -> float:
                extra = batch * again if unit == "hardware_flops" else 0
                return self.step_flops(batch, restored=restored) + extra

            steps = amount / cost()
            if (restoration := self.training.restoration) is not None:
                steps = (1 - restoration.share) * steps + restoration.share * amount / cost(restored=True)
            units: dict[Unit, float] = {unit: amount}
            if again:
                other: Unit = "flops" if unit == "hardware_flops" else "hardware_flops"
                sign = -1 if other == "flops" else 1
                units[other] = amount + sign * steps * batch * again
            return units | {"tokens": steps * batch * length, "steps": math.ceil(steps)}
        workers = self.spec.resources.workers
        # The last step is cut so that it does not overshoot.
        sequences = int(amount) * batch if unit == "steps" else int(amount) // (length * workers) * workers
        full, rest = divmod(sequences, batch)
        flops = full * self._mean_step_flops(batch) + self._mean_step_flops(rest)
        trial: dict[Unit, float] = {
            "tokens": sequences * length,
            "steps": full + (rest > 0),
            "flops": flops,
        }
        return trial | ({"hardware_flops": flops + sequences * again} if again else {})


def _refuse_unknown_settings(model: ModelConfig, where: str) -> None:
    """transformers takes any name in a configuration, and passes over what it does not know."""
    given = dict(model.config or {})
    known = AutoConfig.for_model(given.pop("model_type")).to_dict() if given else {}
    for name in given:
        if name not in known:
            raise InputError(f"unknown key '{name}'", where=f"{where}.{name}", remedy=nearest(name, known))


def arm_plans(spec: StudySpec) -> list[ArmPlan]:
    """The plans of a study's arms, in its order.

    Raises:
        InputError: a model does not fit its arm, or there is no such pretrained tokenizer.
    """
    train, pretrained = spec.tokenizer.train, spec.tokenizer.pretrained
    if train is not None:
        vocabulary_size = train.vocabulary_size
    else:
        assert pretrained is not None
        vocabulary_size = max(load_tokenizer(pretrained).get_vocab().values()) + 1
    return [ArmPlan(spec, name, vocabulary_size) for name in spec.arms]


def require_confirmable(plans: Sequence[ArmPlan]) -> None:
    """Refuse a cap that cannot pay for confirmation, where that can be told before anything runs.

    Args:
        plans: of all arms of a study.

    Raises:
        InputError: it cannot.
    """
    spec = plans[0].spec
    if spec.cap is None:
        return
    unit, amount, resources = spec.budget.unit, spec.budget.amount, spec.resources
    price = None if resources.gpus_per_worker is None else resources.usd_per_hour(resources.gpus_per_worker)
    # Fewer workers than there may be make fewer device-seconds of a wall second.
    device_seconds = {"device_seconds": 1.0, "wall_seconds": float(resources.possible_workers[0])}
    if price is not None:
        device_seconds["usd"] = 3600 / price
    if unit in device_seconds and spec.cap.unit in device_seconds and unit != spec.cap.unit:
        cost = amount * device_seconds[unit] / device_seconds[spec.cap.unit]
        if spec.cap.unit == "wall_seconds":
            cost *= resources.possible_workers[0] / resources.workers
        costs = dict.fromkeys(spec.arms, cost)
    else:
        costs = {
            plan.name: plan.trial_in_units().get(spec.cap.unit, 0.0)
            for plan in plans
            if spec.cap.unit == unit or not plan.candidates_depend_on_the_text
        }
    require_confirmation(spec, costs)


def num_compared_pairs(spec: StudySpec) -> int:
    """Pairs of arms that have the same task."""
    tasks = [find_objective(arm.objective).task for arm in spec.arms.values()]
    return sum(a == b for a, b in combinations(tasks, 2))


def warnings_of(spec: StudySpec) -> list[str]:
    """What the study cannot do, though nothing in it is wrong."""
    num_pairs = num_compared_pairs(spec)
    fewest = fewest_pairs(max(num_pairs, 1))
    warnings = []
    if len(spec.arms) < 2:
        warnings.append("There is one arm, and nothing to compare it with.")
    elif not num_pairs:
        warnings.append("No two arms have the same task, masked or causal: they cannot be compared.")
    elif num_pairs < math.comb(len(spec.arms), 2):
        warnings.append("Arms of different tasks, masked and causal, are not compared with each other.")
    if num_pairs and spec.confirm.seeds < fewest:
        warnings.append(
            f"No arm can win: with {formatting.plural(spec.confirm.seeds, 'seed')} and "
            f"{formatting.plural(num_pairs, 'pair')} of arms p cannot reach {ALPHA}. "
            f"It takes {fewest}: --set confirm.seeds={fewest}"
        )
    if num_pairs and spec.confirm.top > 1:
        warnings.append(
            f"The verdict will be exploratory: of confirm.top={spec.confirm.top} configurations of an arm the best is "
            "chosen by the values that are compared."
        )
    return warnings


def plan_table(spec: StudySpec) -> RenderableType:
    """What the study will train and spend.

    Raises:
        InputError: as :func:`arm_plans` does.
    """
    plans = arm_plans(spec)
    require_confirmable(plans)
    panels = [
        Panel(_arm_grid(plan), title=Text(plan.name), title_align="left", border_style="dim")
        for plan in plans
    ]
    return Group(
        _headline(spec, plans[0].vocabulary_size),
        SideBySide(panels, ARM_WIDTH),
        _phases_table(spec),
        *(Text(f"! {warning}", style="yellow") for warning in warnings_of(spec)),
        *(
            [Text("* At most: how many candidates a position has depends on the text.", style="dim")]
            if any(plan.candidates_depend_on_the_text for plan in plans)
            else []
        ),
    )


def _headline(spec: StudySpec, vocabulary_size: int) -> RenderableType:
    languages = sorted({source.language for source in spec.corpora.sources})
    shown = ", ".join(languages[:MOST_LANGUAGES]) + (", ..." if len(languages) > MOST_LANGUAGES else "")
    train = spec.tokenizer.train
    kind = f"{train.type}, trained on the text" if train else spec.tokenizer.pretrained
    grid = _grid()
    grid.add_row("text", f"{formatting.plural(len(languages), 'language')}: {shown}")
    grid.add_row("tokenizer", f"{vocabulary_size:,} pieces ({kind})")
    grid.add_row("trial", formatting.quantity(spec.budget.amount, spec.budget.unit))
    if spec.cap is not None:
        grid.add_row("cap", f"{formatting.quantity(spec.cap.amount, spec.cap.unit)} for the whole study")
    return Group(
        Text(spec.name, style="bold"),
        *([Text(spec.question)] if spec.question else []),
        Text(),
        grid,
    )


def _arm_grid(plan: ArmPlan) -> Table:
    training, learner = plan.training, plan.learner
    star = "*" if plan.candidates_depend_on_the_text else ""
    kind = f"{plan.objective.task}, {'headless' if plan.objective.headless else 'vocabulary head'}"
    num_targets = training.batch_sequences * plan.targets_per_sequence
    candidates = plan.candidates(training.batch_sequences)
    embeddings = formatting.quantity(learner.embedding_VD.numel(), "").strip()
    flops = formatting.quantity(plan.step_flops(training.batch_sequences), "flops")
    grid = _grid()
    grid.add_row("objective", f"{plan.objective.name} ({kind})")
    if plan.arm.options:
        grid.add_row("", formatting.settings(plan.arm.options, separator=", "))
    grid.add_row(
        "model",
        f"{learner.config.model_type}, {formatting.plural(learner.config.num_hidden_layers, 'layer')} of "
        f"{learner.config.hidden_size}",
    )
    grid.add_row("body", f"{plan.body_parameters:,} parameters, {embeddings} of them the embedding table")
    grid.add_row("head", f"{plan.head_parameters:,} parameters" if learner.head is not None else "none")
    if training.restoration is not None:
        grid.add_row("", f"restored over the last {training.restoration.share:.3g} of a trial")
    grid.add_row(
        "step",
        f"{formatting.plural(training.batch_sequences, 'sequence')} of "
        f"{plan.spec.corpora.sequence_length} tokens, {num_targets:,} targets",
    )
    grid.add_row("", f"{candidates:,}{star} candidates each, {flops}{star}")
    grid.add_row("trial", _trial_in_words(plan))
    for number, (name, dimension) in enumerate(plan.searched.items()):
        grid.add_row("searched" if number == 0 else "", f"{name}: {dimension_in_words(dimension)}")
    if not plan.searched:
        grid.add_row("fixed", formatting.settings({"learning_rate": training.learning_rate}, separator=", "))
    return grid


def _trial_in_words(plan: ArmPlan) -> str:
    units = plan.trial_in_units()
    binding = plan.spec.budget.unit
    others = []
    for unit, amount in units.items():
        if unit != binding:
            bound = plan.candidates_depend_on_the_text and "flops" in (unit, binding)
            prefix = ("at least " if binding == "flops" else "at most ") if bound else ""
            others.append(prefix + formatting.quantity(amount, unit))
    if not others:
        others = ["tokens and FLOPs depend on the machine"]
    return f"{formatting.quantity(units[binding], binding)}: {', '.join(others)}"


def dimension_in_words(dimension: Dimension) -> str:
    """``0.0001 to 0.01, logarithmic``, or the choices."""
    if isinstance(dimension, Categorical):
        return " | ".join(
            "null" if choice is None else formatting.setting(choice) for choice in dimension.choices
        )
    scale = ", logarithmic" if dimension.log else ""
    return f"{formatting.setting(dimension.low)} to {formatting.setting(dimension.high)}{scale}"


_ALGORITHMS = {
    "tpe": "TPE",
    "gp": "Gaussian process",
    "cma_es": "CMA-ES",
    "random": "random search",
    "qmc": "Sobol' sequence",
    "grid": "grid",
}


def _phases_table(spec: StudySpec) -> RenderableType:
    unit, amount, arms = spec.budget.unit, spec.budget.amount, len(spec.arms)
    search, confirm = spec.search, spec.confirm
    algorithm = _ALGORITHMS[search.algorithm]
    rungs = ", ".join(f"{fraction:.0%}" for fraction in search.halving.fractions)
    verb = {"stopping": "stops", "promotion": "pauses"}[search.halving.kind]
    stops = (
        f"{verb} at {rungs} unless among the best 1/{search.halving.reduction}" if rungs else "no early stops"
    )
    runs = arms * confirm.seeds * confirm.top * spec.confirm_budget.amount / amount
    cooldowns = runs / arms * math.fsum(map(spec.cooldown_share, spec.arms))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("phase")
    table.add_column("what", ratio=1)
    table.add_column("trial\nbudgets", justify="right")
    table.add_column(Text(formatting.UNIT_TITLES[unit]), justify="right")

    def row(phase: str, what: str, budgets: float, style: str = "") -> None:
        cost = formatting.quantity(budgets * amount, unit).removesuffix(f" {unit}")
        table.add_row(phase, Text(what), f"{budgets:g}", cost, style=style)

    if search.budget_per_arm:
        row(
            "search",
            f"each arm {search.budget_per_arm:g}; {algorithm}; {stops}",
            arms * search.budget_per_arm,
        )
    seeds, top = formatting.plural(confirm.seeds, "seed"), formatting.plural(confirm.top, "configuration")
    if confirm.stopping is not None:
        seeds = f"{confirm.stopping.minimum} to {seeds}, until it is answered,"
    row("confirm", f"{formatting.plural(arms, 'arm')} x {seeds} x {top}", runs)
    if confirm.anytime:
        shares = " and ".join(f"{share:.0%}" for share in confirm.anytime)
        row("anytime", f"runs that cool down at {shares} of the budget", cooldowns)
    row("all", "at most", arms * search.budget_per_arm + runs + cooldowns, "bold")
    return table


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    return grid
