"""What ``h2h plan`` says, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue

from orchestrator.config.files import freeze
from orchestrator.config.study import StudySpec
from orchestrator.planning.arm_plan import ArmPlan, checked_plans
from orchestrator.planning.design import notes, warnings_of
from orchestrator.planning.forecast import Forecast
from trainables.config import Config
from trainables.models.config import Task
from trainables.training.config import Unit


class PlannedArm(Config):
    """What a trial of an arm trains, and what it takes here."""

    name: str
    objective: str
    task: Task
    headless: bool
    model_type: str
    layers: int
    hidden_size: int
    body_parameters: int
    """With the embeddings."""
    head_parameters: int
    """Those that it does not share with the body."""
    vocabulary_size: int
    tokens_per_step: int
    flops_per_step: int
    """At most, where the number of candidates depends on the text."""
    trial: dict[Unit, float]
    """The budget in the other units, as far as they follow from it."""
    searched: tuple[str, ...]
    """Settings that the search varies."""
    step_seconds: float | None
    """Measured here; None where it was not."""
    trial_device_seconds: float | None
    memory_bytes: int | None
    """Of a worker."""


class PlanReport(Config):
    """What a study will train and spend."""

    format: Literal["headtohead.plan/1"] = "headtohead.plan/1"
    name: str
    question: str
    unit: Unit
    """That binds."""
    amount: float
    """Of a search trial."""
    confirm_amount: float
    search_budget_per_arm: float
    """In search trials."""
    seeds: int
    """At most."""
    arms: tuple[PlannedArm, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    """What the design can find, and of the text."""
    device_seconds: float | None
    """In the steps of the whole study, at most; None where it was not measured."""
    usd: float | None
    disk_bytes: float | None
    study: dict[str, JsonValue]
    """The whole of it, every default written out, as it would be frozen."""


def plan_report(spec: StudySpec, forecast: Forecast | None, more: Sequence[str] = ()) -> PlanReport:
    """A study's plan, with its forecast and ``more`` notes. Raises InputError as :func:`checked_plans` does."""
    content: dict[str, JsonValue] = freeze(spec).model_dump(mode="json")
    return PlanReport(
        name=spec.name,
        question=spec.question,
        unit=spec.budget.unit,
        amount=spec.budget.amount,
        confirm_amount=spec.confirm_budget.amount,
        search_budget_per_arm=spec.search.budget_per_arm,
        seeds=spec.confirm.seeds,
        arms=tuple(_arm(plan, forecast) for plan in checked_plans(spec)),
        warnings=tuple(warnings_of(spec)),
        notes=(*notes(spec), *more),
        device_seconds=None if forecast is None else forecast.device_seconds,
        usd=None if forecast is None else forecast.usd,
        disk_bytes=None if forecast is None else forecast.disk_bytes,
        study=content,
    )


def _arm(plan: ArmPlan, forecast: Forecast | None) -> PlannedArm:
    own = next((arm for arm in forecast.arms if arm.plan.name == plan.name), None) if forecast else None
    calibration, model = own and own.calibration, plan.learner.config
    return PlannedArm(
        name=plan.name,
        objective=plan.objective.name,
        task=plan.objective.task,
        headless=plan.objective.headless,
        model_type=model.model_type,
        layers=model.num_hidden_layers,
        hidden_size=model.hidden_size,
        body_parameters=plan.body_parameters,
        head_parameters=plan.head_parameters,
        vocabulary_size=plan.vocabulary_size,
        tokens_per_step=plan.tokens_per_step,
        flops_per_step=plan.step_flops(plan.training.batch_sequences),
        trial=plan.trial_in_units(),
        searched=tuple(plan.searched),
        step_seconds=calibration.step_seconds if calibration else None,
        trial_device_seconds=own.trial_seconds if own else None,
        memory_bytes=own.memory_bytes if own else None,
    )
