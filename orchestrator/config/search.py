"""How each arm is tuned."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainables.config import Amount, Config, Several
from trainables.errors import InputError

WIDENING = ("tpe", "random")  # algorithms that widen ranges; the others need all trials to be of one space
LARGEST_REDUCTION = 1000  # a trial may be stopped when it has spent one part in so many, not before


class HalvingSpec(Config):
    """Successive halving inside an arm: a trial that is not among the best 1/reduction at a rung stops there."""

    reduction: int = Field(3, ge=2, le=LARGEST_REDUCTION)
    """eta: of the trials at a rung one in so many goes on."""
    rungs: int = Field(3, ge=1, le=16)
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


class SearchSpec(Config):
    """How each arm is tuned."""

    budget_per_arm: Amount = 8
    """What each arm's search may spend, in trial budgets; 0: no search, arms are confirmed as they are written."""
    algorithm: Literal["tpe", "gp", "cma_es", "random", "qmc", "grid"] = "tpe"
    """Optuna's sampler: tree-structured Parzen estimator, Gaussian process, CMA-ES, uniform, Sobol' sequence; or every
    point of a grid, and then no more."""
    startup_trials: int = Field(4, ge=1)
    """Random trials before `tpe` or `gp` models anything; more are better for many dimensions."""
    grid_points: int = Field(3, ge=1)
    """Of each numeric dimension, for `grid`; of a choice all."""
    halving: HalvingSpec = HalvingSpec()
    """Stopping trials early."""
    parallel: Several = 8
    """Trials of one arm that are decided on side by side: so many machines can be used. The same seed gives the same
    search on any number of them; the more are decided on at once, the less each knows of the others."""

    @model_validator(mode="after")
    def _a_trial_or_none(self) -> SearchSpec:
        if 0 < self.budget_per_arm < 1:
            raise ValueError("'budget_per_arm' below 1 buys no trial: at least 1, or 0 for no search")
        return self
