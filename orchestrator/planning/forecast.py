"""What a study would take on this machine: steps measured by a short calibration, the rest by multiplication."""

import os
from dataclasses import dataclass
from functools import cached_property

import torch

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.planning.arm_plan import ArmPlan, arm_plans
from orchestrator.planning.machine import Machine
from orchestrator.planning.preflight import require_placeable
from orchestrator.scheduling.trials import Planner
from trainables.errors import InputError
from trainables.training.calibration import Calibration, calibrate

SECONDS = 2.0  # of a calibration, for each arm
CPU_FLOPS = 5e9  # a second, of a core: rather too few, to see beforehand which step would take too long to try
LONGEST_STEP_SECONDS = 20.0  # a step that would take longer is not tried

WEIGHT_BYTES = 16  # of a parameter in training: the weight, its gradient and AdamW's two moments, four bytes each
LEAST_BYTES = 12  # of a parameter at least: the weight, and two of gradient and moments, in rows or not
CHECKPOINT_BYTES, FINAL_BYTES = 12, 4  # of a parameter in a checkpoint to go on from, and in that of a finished trial


@dataclass(frozen=True)
class ArmForecast:
    """An arm's trials on this machine."""

    plan: ArmPlan
    calibration: Calibration | None  # None where a step is too large to be tried here

    @cached_property
    def parameters(self) -> int:
        """Trained ones."""
        return self.plan.body_parameters + self.plan.head_parameters

    @property
    def sharded(self) -> bool:
        """Whether a worker has a part of the weights."""
        return self.plan.training.parallel == "fsdp"

    @property
    def trial_seconds(self) -> float | None:
        """Device-seconds in the steps of a trial with the study's budget."""
        spec, units = self.plan.spec, self.plan.trial_in_units()
        if "device_seconds" in units:
            return units["device_seconds"]
        if "wall_seconds" in units:
            return units["wall_seconds"] * spec.resources.workers
        if "usd" in units:
            price = usd_per_hour(spec)
            return None if price is None else units["usd"] / price * 3600
        if self.calibration is None or "tokens" not in units:  # joules are known afterwards only
            return None
        return units["tokens"] / self.plan.tokens_per_step * self.calibration.step_seconds

    @property
    def memory_bytes(self) -> int:
        """Of a worker: measured, and no less than weights and optimiser take."""
        if self.sharded:  # a step was tried on whole weights
            return WEIGHT_BYTES * self.parameters // self.plan.spec.resources.workers
        measured = self.calibration.memory_bytes if self.calibration is not None else None
        return max(measured or 0, WEIGHT_BYTES * self.parameters)


@dataclass(frozen=True)
class Forecast:
    """All arms together."""

    spec: StudySpec
    arms: list[ArmForecast]

    def trial_budgets(self, arm: str) -> float:
        """Of an arm, search and confirmation together, at most."""
        runs = self.spec.confirm.seeds * self.spec.confirm.top
        share = self.spec.confirm_budget.amount / self.spec.budget.amount
        return self.spec.search.budget_per_arm + runs * share * (1 + self.spec.cooldown_share(arm))

    @property
    def device_seconds(self) -> float | None:
        """Of the whole study, at most; None where an arm was not measured."""
        known = [a.trial_seconds * self.trial_budgets(a.plan.name) for a in self.arms if a.trial_seconds is not None]
        return sum(known) if len(known) == len(self.arms) else None

    @property
    def usd(self) -> float | None:
        """Price of the steps; None without prices or where an arm was not measured."""
        price, seconds = usd_per_hour(self.spec), self.device_seconds
        return None if price is None or seconds is None else price * seconds / 3600

    @property
    def most_search_trials(self) -> int:
        """Of an arm, were all but one stopped at the first rung."""
        return int(self.spec.search.budget_per_arm / self._first_rung)

    @property
    def _first_rung(self) -> float:
        return min(self.spec.search.halving.fractions, default=1.0)

    @property
    def disk_bytes(self) -> float:
        """Weights of all trials that end, and two checkpoints of those that run."""
        spec = self.spec
        runs = spec.confirm.seeds * spec.confirm.top * (1 + len(spec.confirm.anytime))
        searched = spec.search.budget_per_arm / self._first_rung
        ended = sum(arm.parameters for arm in self.arms) * FINAL_BYTES * (runs + searched)
        return ended + max(arm.parameters for arm in self.arms) * CHECKPOINT_BYTES * 2 * len(self.arms)


def usd_per_hour(spec: StudySpec) -> float | None:
    """Price of a worker as it would be on this machine; None without prices."""
    return spec.resources.usd_per_hour(Machine.here().gpus_per_worker(spec.resources))


def forecast(spec: StudySpec) -> Forecast:
    """Measure a step of each arm. Raises InputError if a model or a step does not fit, or a tokenizer is missing."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    planner = Planner(spec, History(), "")
    arms = []
    for plan in arm_plans(spec):
        calibration = None
        if device.type == "cuda" or _is_tried(plan):
            config = planner.plan("search", plan.name, 0, spec.seed, {}).config
            length = spec.corpora.sequence_length
            try:
                calibration = calibrate(config, plan.vocabulary_size, length, SECONDS, device)
            except torch.OutOfMemoryError as error:
                if plan.training.micro_batch_sequences != "auto" and plan.training.parallel != "fsdp":
                    raise InputError(
                        f"a step of the arm {plan.name} does not fit the GPU's memory",
                        where="training.micro_batch_sequences",
                        why=f"there are {formatting.size(_memory(int(device.type == 'cuda')))}",
                        remedy="--set training.micro_batch_sequences=auto, or a smaller model",
                    ) from error
        arms.append(ArmForecast(plan, calibration))
    return Forecast(spec, arms)


def _is_tried(plan: ArmPlan) -> bool:
    seconds = plan.step_flops(plan.training.batch_sequences) / (CPU_FLOPS * torch.get_num_threads())
    fits = WEIGHT_BYTES * (plan.body_parameters + plan.head_parameters) < _memory(0) / 2
    return fits and seconds < LONGEST_STEP_SECONDS


def require_feasible(spec: StudySpec) -> None:
    """Raises InputError if a trial needs more than this machine has, or a unit is not measured here."""
    machine, resources = Machine.here(), spec.resources
    gpus = machine.gpus_per_worker(resources)
    require_placeable(spec, machine)
    there = _memory(gpus)
    for plan in arm_plans(spec):
        arm = ArmForecast(plan, None)
        workers = (1 if gpus else resources.workers) / (resources.workers if arm.sharded else 1)
        needed = LEAST_BYTES * arm.parameters * workers
        if needed > there:
            raise InputError(
                f"a trial of the arm {plan.name} needs at least {formatting.size(needed)} of memory, and there are "
                f"{formatting.size(there)}",
                where=f"model, arms.{plan.name}",
                why=f"of its {arm.parameters:,} parameters, each takes {LEAST_BYTES} bytes with its optimiser's state",
                remedy="a smaller model or vocabulary, training.parallel=fsdp over more GPUs, or a larger cluster "
                "(--address)",
            )


def _memory(gpus: int) -> int:
    """Bytes that this machine's GPU has, or the machine itself."""
    if gpus:
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
