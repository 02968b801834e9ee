"""What a trial may spend, and what it has spent, in every unit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.errors import InputError

Unit = Literal["tokens", "steps", "flops", "device_seconds"]
UNITS: tuple[Unit, ...] = ("tokens", "steps", "flops", "device_seconds")


class BudgetConfig(Config):
    """What each trial may spend: exactly one unit binds; all are measured."""

    tokens: float | None = Field(None, gt=0)
    """Input tokens trained on."""
    steps: float | None = Field(None, gt=0)
    """Optimiser steps."""
    flops: float | None = Field(None, gt=0)
    """Floating-point operations of forward and backward passes, in closed form (see docs/study.md)."""
    device_seconds: float | None = Field(None, gt=0)
    """Seconds in training steps, times the number of devices."""

    @model_validator(mode="after")
    def _exactly_one(self) -> BudgetConfig:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) > 1:
            raise InputError(
                f"{' and '.join(given)} are both set",
                why="exactly one unit binds; all are measured anyway",
                remedy=f"keep one; on the command line: --set budget='{{{given[-1]}: AMOUNT}}'",
            )
        if not given:
            raise ValueError(f"no budget: set exactly one of {', '.join(UNITS)}")
        return self

    @property
    def unit(self) -> Unit:
        """The binding unit."""
        return next(unit for unit in UNITS if getattr(self, unit) is not None)

    @property
    def amount(self) -> float:
        """How much of it."""
        return float(getattr(self, self.unit))


@dataclass
class Spending:
    """What training steps have spent. Evaluation, start-up, checkpoints and waiting are not in it."""

    tokens: int = 0
    steps: int = 0
    flops: int = 0
    device_seconds: float = 0.0

    def record(self) -> dict[str, float]:
        """By unit."""
        return asdict(self)
