"""The plan of a study: what it will train and spend, in closed form, before anything runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.config.arms import ArmSpec
from orchestrator.config.study import StudySpec
from orchestrator.scheduling.study_budget import require_confirmation
from search_spaces import Dimension
from trainables.corpora.tokenizers import load_tokenizer, require_mask_token
from trainables.errors import InputError, nearest
from trainables.models.body_config import body_config
from trainables.models.config import ModelConfig
from trainables.models.flops import body_flops, recomputed_flops, scoring_flops
from trainables.objectives import Objective, vanilla_objective
from trainables.objectives.corruption import num_masked
from trainables.objectives.learner import Learner
from trainables.training.config import MEASURED_UNITS, TrainingConfig, Unit

# What torch and transformers raise where settings do not go together.
_MISFITS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class ArmPlan:
    """What a trial of one arm trains and spends, at the settings that the search does not vary. Letters: L tokens a
    sequence, K target positions, C candidates, V vocabulary."""

    spec: StudySpec
    name: str
    vocabulary_size: int

    @property
    def arm(self) -> ArmSpec:
        """Its part of the study."""
        return self.spec.arms[self.name]

    @cached_property
    def objective(self) -> Objective:
        """The arm's objective, with its options."""
        return self.arm.learned.of(self.arm.options)

    @property
    def training(self) -> TrainingConfig:
        """How it is trained: the study's settings with the arm's own on top."""
        return self.spec.training_of(self.name)

    @property
    def searched(self) -> dict[str, Dimension]:
        """The settings that the search varies, by name; empty where there is no search."""
        return self.arm.search_space.dimensions if self.spec.search.budget_per_arm else {}

    @cached_property
    def learner(self) -> Learner:
        """The model, without memory for its weights. Raises InputError if it does not fit the arm or the text."""
        own = self.arm.model
        model, where = own or self.spec.model, f"arms.{self.name}.model" if own else "model"
        length = self.spec.corpora.sequence_length
        if model.position_limit is not None and model.position_limit < length:
            raise InputError(
                f"the model takes {model.position_limit} tokens, a sequence has {length}",
                where=f"{where}.position_limit",
                remedy=f"--set {where}.position_limit={length}, or a smaller corpora.sequence_length",
            )
        import torch
        from huggingface_hub.errors import StrictDataclassError

        _refuse_unknown_settings(model, f"{where}.config")
        try:
            body = body_config(
                model, self.objective.task, vocabulary_size=self.vocabulary_size, sequence_length=length, where=where
            )
            with torch.device("meta"):
                learner = Learner(body, self.objective)
        except InputError:
            raise
        except (*_MISFITS, StrictDataclassError) as error:
            reason = str(error).strip().splitlines()[-1].strip().removeprefix("ValueError: ")
            remedy = "h2h list shows shapes that work"
            raise InputError("there is no such model", where=f"{where}.config", why=reason, remedy=remedy) from error
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
        return self.objective.targets_per_sequence(length, self.training.mask_rate)

    @property
    def tokens_per_step(self) -> int:
        """Input tokens of a step, over all workers."""
        return self.training.batch_sequences * self.spec.corpora.sequence_length

    def candidates(self, num_sequences: int) -> int:
        """C in a step of so many sequences; where they depend on the text, the most there can be."""
        pool = num_sequences * self.targets_per_sequence
        if not self.objective.gathered:
            rows = self.training.micro_batch_sequences
            pool //= max(1, -(-num_sequences // rows)) if isinstance(rows, int) else self.spec.resources.workers
        return self.objective.most_candidates(pool, self.vocabulary_size, self.searched)

    def step_flops(self, num_sequences: int, *, restored: bool = False) -> int:
        """FLOPs of a step with so many sequences over all workers, once the head is restored or before; where they
        depend on the text, at most."""
        objective = vanilla_objective(self.objective.task) if restored else self.objective
        config, num_targets = self.learner.config, num_sequences * self.targets_per_sequence
        body = body_flops(config, num_sequences, self.spec.corpora.sequence_length, num_targets)
        return body + objective.flops(config, num_targets, self.candidates(num_sequences))

    def recomputed_flops(self, num_sequences: int) -> int:
        """FLOPs that activation checkpointing adds to a step with so many sequences."""
        if not self.training.activation_checkpointing:
            return 0
        length, num_targets = self.spec.corpora.sequence_length, num_sequences * self.targets_per_sequence
        return recomputed_flops(self.learner.config, num_sequences, length, num_targets)

    def _mean_step_flops(self, num_sequences: int) -> float:
        """Over a trial in which each part of a head's restoration sees its share of the sequences."""
        restoration = self.training.restoration
        if restoration is None:
            return self.step_flops(num_sequences)
        parts = self.step_flops(num_sequences), self.step_flops(num_sequences, restored=True)
        return (1 - restoration.share) * parts[0] + restoration.share * parts[1]

    def trial_in_units(self) -> dict[Unit, float]:
        """What a trial's budget comes to, by unit; the binding one alone where the others depend on the machine.
        Hardware FLOPs are named where they differ. For a headless objective FLOPs are at most, and what FLOPs buy at
        least, as much."""
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
        trial: dict[Unit, float] = {"tokens": sequences * length, "steps": full + (rest > 0), "flops": flops}
        return trial | ({"hardware_flops": flops + sequences * again} if again else {})

    def evaluation_flops(self, *, final: bool) -> int:
        """FLOPs of one evaluation on held-out text, at most: a small language has less of it than the study allows."""
        evaluation, length = self.spec.yardsticks.evaluation, self.spec.corpora.sequence_length
        languages = {source.language for source in self.spec.corpora.sources}
        sequences = len(languages) * evaluation.sequences(final=final)
        causal = self.objective.task == "causal"
        targets = sequences * (length - 1 if causal else num_masked(length, evaluation.mask_rate))
        return scoring_flops(self.learner.config, sequences, length, targets)

    @property
    def run_flops(self) -> float | None:
        """FLOPs of a confirmation run's training; None where they depend on the machine."""
        flops = self.trial_in_units().get("flops")
        return None if flops is None else flops * self.spec.confirm_budget.amount / self.spec.budget.amount

    @property
    def evaluation_share(self) -> float | None:
        """FLOPs of a confirmation run's evaluations as a share of its training's; None where those are not known."""
        if (run := self.run_flops) is None:
            return None
        on_the_way = (self.spec.confirm.evaluations - 1) * self.evaluation_flops(final=False)
        return (on_the_way + self.evaluation_flops(final=True)) / run


def _refuse_unknown_settings(model: ModelConfig, where: str) -> None:
    """transformers takes any name in a configuration, and passes over what it does not know."""
    from transformers import AutoConfig

    given = dict(model.config or {})
    known = AutoConfig.for_model(given.pop("model_type")).to_dict() if given else {}
    for name in given:
        if name not in known:
            raise InputError(f"unknown key '{name}'", where=f"{where}.{name}", remedy=nearest(name, known))


def checked_plans(spec: StudySpec) -> list[ArmPlan]:
    """As :func:`arm_plans`. Raises InputError also if a model cannot be built, a budget or a restoration is below one
    step, or the cap cannot pay for confirmation."""
    plans = arm_plans(spec)
    for plan in plans:
        require_a_step(plan)
    require_confirmable(plans)
    return plans


def arm_plans(spec: StudySpec) -> list[ArmPlan]:
    """The plans of a study's arms, in its order. Raises InputError if there is no such pretrained tokenizer, or it has
    no mask token for an objective that masks."""
    train, pretrained = spec.tokenizer.train, spec.tokenizer.pretrained
    if train is not None:
        return [ArmPlan(spec, name, train.vocabulary_size) for name in spec.arms]
    assert pretrained is not None
    tokenizer = load_tokenizer(pretrained)
    plans = [ArmPlan(spec, name, max(tokenizer.get_vocab().values()) + 1) for name in spec.arms]
    for plan in plans:
        if plan.objective.task == "masked":
            require_mask_token(tokenizer, plan.arm.objective)
    return plans


def require_a_step(plan: ArmPlan) -> None:
    """Raises InputError if a budget or a restoration is below one step, or the model cannot be built."""
    unit, workers = plan.spec.budget.unit, plan.spec.resources.workers
    least = plan.step_flops(workers) + (plan.recomputed_flops(workers) if unit == "hardware_flops" else 0)
    if unit in ("flops", "hardware_flops") and plan.spec.budget.amount < least:
        raise InputError(
            f"a budget of {plan.spec.budget.amount:g} FLOPs buys no training step of the arm {plan.name}",
            where=f"budget.{unit}",
            why=f"a step of one sequence a worker costs {least:.3g}",
            remedy="h2h plan STUDY shows what a step costs; a trial wants hundreds of them",
        )
    _require_a_restoration(plan)


def _require_a_restoration(plan: ArmPlan) -> None:
    restoration, steps = plan.training.restoration, plan.trial_in_units().get("steps")
    if restoration is not None and steps is not None and restoration.share * steps < 1:
        raise InputError(
            f"the arm {plan.name} has no step left to restore a head in",
            where=f"arms.{plan.name}.training.restoration.share",
            why=f"{restoration.share:g} of {steps:g} steps is less than one",
            remedy="a larger share, or a larger budget",
        )


def require_confirmable(plans: Sequence[ArmPlan]) -> None:
    """Raises InputError if a cap cannot pay for confirmation, where that can be told before anything runs."""
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
            if spec.cap.unit == unit or not plan.objective.candidates_vary
        }
    require_confirmation(spec, spec.cap, costs)
