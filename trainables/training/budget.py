"""What a trial may spend, and what it has spent, in every unit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, get_args

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.errors import InputError

Unit = Literal[
    "tokens", "steps", "flops", "hardware_flops", "device_seconds", "wall_seconds", "joules", "usd"
]
UNITS: tuple[Unit, ...] = get_args(Unit)

MEASURED_UNITS: tuple[Unit, ...] = ("device_seconds", "wall_seconds", "joules", "usd")
"""What a step costs in these is known when it is done; in the others, before."""


class AmountConfig(Config):
    """An amount of exactly one unit."""

    key: ClassVar[str]
    """Where it is in a study."""

    tokens: float | None = Field(None, gt=0)
    """Input tokens trained on."""
    steps: float | None = Field(None, gt=0)
    """Optimiser steps."""
    flops: float | None = Field(None, gt=0)
    """Floating-point operations that the model needs, forward and backward, in closed form: see Units of the budget."""
    hardware_flops: float | None = Field(None, gt=0)
    """Those, and what activation checkpointing computes again."""
    device_seconds: float | None = Field(None, gt=0)
    """Seconds in training steps, times the number of devices."""
    wall_seconds: float | None = Field(None, gt=0)
    """Seconds in training steps, however many devices take part."""
    joules: float | None = Field(None, gt=0)
    """Energy of the devices during training steps, where the machine tells (see docs/budgets.md)."""
    usd: float | None = Field(None, gt=0)
    """Price of the devices during training steps, by `resources.prices`."""

    @model_validator(mode="after")
    def _exactly_one(self) -> AmountConfig:
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

    def scaled(self, share: float) -> BudgetConfig:
        """A share of it."""
        return BudgetConfig.model_validate({self.unit: self.amount * share})


class CapConfig(AmountConfig):
    """What the whole study may spend: search and confirmation, with what failures cost and, where the unit is time,
    money or energy, with overhead. One unit, which need not be the budget's."""

    key: ClassVar[str] = "cap"


@dataclass
class Spending:
    """What training steps have spent. Evaluation, start-up, checkpoints and waiting are not in it."""

    tokens: int = 0
    steps: int = 0
    flops: int = 0
    hardware_flops: int = 0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0
    joules: float | None = None
    """None where the machine does not tell, or some machine that the trial was on did not."""
    usd: float | None = None
    """None without a price."""

    def record(self) -> dict[str, float]:
        """By unit, those that are known."""
        return {unit: amount for unit, amount in asdict(self).items() if amount is not None}
