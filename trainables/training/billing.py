"""What a trial has spent of its budget, and which steps it can still pay for."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from trainables.errors import InputError
from trainables.training.config import MEASURED_UNITS, BudgetConfig
from trainables.training.energy import EnergyCounter
from trainables.training.state import Spending
from trainables.training.stepper import PreparedStep
from trainables.training.world import World


class Billing:
    """Counts what training steps spend, in all units. All workers call its methods together.

    Without an energy counter or a price their units are not measured: a budget in one raises InputError.
    """

    def __init__(
        self, budget: BudgetConfig, world: World, energy: EnergyCounter | None, usd_per_hour: float | None
    ) -> None:
        self.budget, self.world, self.usd_per_hour = budget, world, usd_per_hour
        self.spent = Spending(joules=None if energy is None else 0.0, usd=None if usd_per_hour is None else 0.0)
        self.step_cost = 0.0  # of the last step, in the budget's unit
        self._energy = energy or (lambda: 0.0)
        self._wall_seconds = self._joules = 0.0  # of this worker, not yet billed
        self._require_measured()
        self.start()

    def resume(self, spent: Spending, step_cost: float) -> None:
        """Go on from what earlier attempts spent, in the units that both measure: the budget's, or InputError."""
        known = self.spent
        self.spent = replace(
            spent, joules=None if known.joules is None else spent.joules, usd=None if known.usd is None else spent.usd
        )
        self.step_cost = step_cost
        self._require_measured()

    def _require_measured(self) -> None:
        unit = self.budget.unit
        if getattr(self.spent, unit) is None:
            raise InputError(
                f"a budget in {unit} cannot be kept here",
                where=f"budget.{unit}",
                why={
                    "joules": "no energy counter is readable, or none was where the trial ran before",
                    "usd": "the devices of this trial have no price, or had none when it began",
                }[unit],
                remedy="another unit, or see docs/budgets.md for what this one needs",
            )

    @property
    def measured(self) -> bool:
        """Whether what a step costs of the budget is known when it is done, and not before."""
        return self.budget.unit in MEASURED_UNITS

    @property
    def _spent_of_budget(self) -> float:
        return float(getattr(self.spent, self.budget.unit))

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return min(1.0, self._spent_of_budget / self.budget.amount)

    @property
    def progress_after_another(self) -> float:
        """Progress after one more step that costs what those so far did in the mean; 0 before the first."""
        spent = self._spent_of_budget
        return (spent + spent / max(1, self.spent.steps)) / self.budget.amount

    def affordable(self, size: int, prepare: Callable[[int], PreparedStep]) -> PreparedStep | None:
        """The step of so many sequences of this worker, cut so that no budget is overshot; None if nothing fits."""
        unit, left = self.budget.unit, self.budget.amount - self._spent_of_budget
        if self.measured:
            return None if self._likely_cost() > left else prepare(size)
        whole = prepare(size)
        if whole.cost(unit) <= left:
            return whole
        # FLOPs are not linear in the sequences (the candidates grow with them): bisect.
        best, affordable, too_many = None, 0, size
        while too_many - affordable > 1:
            middle = (affordable + too_many) // 2
            prepared = prepare(middle)
            if prepared.cost(unit) <= left:
                best, affordable = prepared, middle
            else:
                too_many = middle
        return best

    def _likely_cost(self) -> float:
        """Of a step in a measured unit: the last one's or the mean; an energy counter moves on in leaps."""
        return max(self.step_cost, self._spent_of_budget / max(1, self.spent.steps))

    def progress_in(self, step: PreparedStep) -> float:
        """Progress in the middle of a step that is about to be made."""
        cost = self._likely_cost() if self.measured else step.cost(self.budget.unit)
        return self.progress + 0.5 * cost / self.budget.amount

    def start(self) -> None:
        """What is spent from here on is a step's, if one is made; else it counts nowhere."""
        self._joules_before = self._energy()
        self._time_before = time.perf_counter()

    def _stop(self) -> None:
        self._wall_seconds += time.perf_counter() - self._time_before
        self._joules += self._energy() - self._joules_before

    def bill(self, step: PreparedStep) -> None:
        """A step was made since :meth:`start`."""
        before = self._spent_of_budget
        if self.world.device.type == "cuda" and self.measured:
            torch.cuda.synchronize()
        self._stop()
        self.spent.steps += 1
        self.spent.tokens += step.tokens
        self.spent.flops += step.flops
        self.spent.hardware_flops += step.hardware_flops
        if self.measured:  # the workers' progress must agree at every step
            self._settle()
        self.step_cost = self._spent_of_budget - before

    def settle(self) -> None:
        """Wait for the steps that are under way, and bill what they took."""
        if self.world.device.type == "cuda":
            self.start()
            torch.cuda.synchronize()
            self._stop()
        self._settle()

    def _settle(self) -> None:
        # The slowest worker's seconds, and the joules of all: the same on all workers.
        seconds, joules = self.world.largest(self._wall_seconds), self.world.sum_float(self._joules)
        self._wall_seconds = self._joules = 0.0
        self.spent.wall_seconds += seconds
        self.spent.device_seconds += seconds * self.world.size
        if self.spent.joules is not None:
            self.spent.joules += joules
        if self.spent.usd is not None and self.usd_per_hour is not None:
            self.spent.usd += seconds * self.world.size * self.usd_per_hour / 3600
