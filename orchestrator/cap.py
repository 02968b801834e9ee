"""A hard cap for a whole study: the search leaves what confirmation needs, and confirmation starts no half pair.

All that the study spends counts, with work lost to failures and, where the cap is in time, money or energy, overhead
from the moment an attempt is asked for. What is still to come is estimated:

- In the unit that binds a trial, its steps cost the trial's budget.
- In another they cost what the arm's trials so far did per unit of the budget: those of the same phase if there are
  any, else of the search. Until a trial of every arm has ended that is not known, and trials begin.
- In time, money and energy a trial has overhead on top: the median of those so far, as the first trial on a cluster
  starts slower than those after it.
- What is measured may turn out dearer: :data:`MARGIN` is put on what confirmation is expected to cost.

Rules:

1. A search trial begins if what is left pays for what runs, for it, for those of every other arm that would then be
   behind it, and for the confirmation. So the search ends for all arms at the same spending, but for the trial by which
   they differ at any moment. A trial by which an arm catches up with another may use up the margin.
2. A confirmation seed begins, with all its runs, if what is left pays for them and for what runs. A seed that has begun
   is finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

from orchestrator import formatting
from orchestrator.history import History, TrialHistory
from orchestrator.spec import StudySpec
from orchestrator.spending import AttemptSpending
from trainables.errors import InputError
from trainables.training.budget import MEASURED_UNITS

MARGIN = 0.2
"""Share of the expected cost of confirmation that is kept back on top, where that cost is measured."""


@dataclass(frozen=True)
class Cap:
    """What a study may still begin. All is read from its history, so it is the same after a restart."""

    spec: StudySpec
    history: History

    @property
    def _usd_per_hour(self) -> float | None:
        return (self.history.study or {}).get("usd_per_hour")

    def _in_unit(self, spending: AttemptSpending) -> float:
        assert self.spec.cap is not None
        return spending.total(self.spec.cap.unit, self._usd_per_hour)

    @property
    def spent(self) -> float:
        """What the study has spent in all, in the cap's unit."""
        return self._in_unit(self.history.spending())

    @property
    def exact(self) -> bool:
        """Whether a trial's cost is known before: the cap is in the budget's unit, in which overhead does not count."""
        assert self.spec.cap is not None
        return self.spec.cap.unit == self.spec.budget.unit and self.spec.cap.unit not in MEASURED_UNITS

    def trial_cost(self, phase: str, arm: str) -> float:
        """What a whole trial is expected to cost; in a unit of which nothing is known yet 0."""
        assert self.spec.cap is not None
        cap, budget = self.spec.cap, self.spec.budget
        if self.exact:
            return budget.amount
        own = self._ended(phase, arm) or self._ended("search", arm)
        if not own or not all(
            self._ended(phase, name) or self._ended("search", name) for name in self.spec.arms
        ):
            return budget.amount if cap.unit == budget.unit else 0.0
        rate = sum(map(self._steps_cost, own)) / sum(trial.progress for trial in own)
        trials = [
            t for name in self.spec.arms for t in self._ended(phase, name) or self._ended("search", name)
        ]
        return rate + median_low([self._cost(trial) - self._steps_cost(trial) for trial in trials])

    def _ended(self, phase: str, arm: str) -> list[TrialHistory]:
        trials = self.history.trials_of(phase, arm)
        return [trial for trial in trials if trial.outcome is not None and trial.progress > 0]

    def _cost(self, trial: TrialHistory) -> float:
        return self._in_unit(trial.spending(self.history.updated or 0.0))

    def _steps_cost(self, trial: TrialHistory) -> float:
        """Without overhead."""
        spending = trial.spending(self.history.updated or 0.0)
        return self._in_unit(AttemptSpending(useful=spending.useful, lost=spending.lost))

    def _still_running(self, phase: str) -> float:
        """What trials that have begun will cost from now on."""
        unfinished = [t for t in self.history.trials_of(phase) if t.outcome is None]
        return sum((1 - t.progress) * self.trial_cost(phase, t.arm) for t in unfinished)

    def _committed(self, arm: str) -> float:
        """What an arm's search has spent and will, in trial budgets, if it begins no more."""
        trials = self.history.trials_of("search", arm)
        return sum(1.0 if trial.outcome is None else trial.progress for trial in trials)

    def _seed_cost(self, arms: Iterable[str]) -> float:
        return sum(self.spec.confirm.top * self.trial_cost("confirm", arm) for arm in arms)

    @property
    def reserve(self) -> float:
        """What confirmation is expected to cost, without the margin."""
        return self.spec.confirm.seeds * self._seed_cost(self.spec.arms)

    def allows_search_trial(self, arm: str) -> bool:
        """Whether an arm may begin a search trial; see the rules of the module."""
        if self.spec.cap is None:
            return True
        committed = {name: self._committed(name) for name in self.spec.arms}
        level = committed[arm] + 1.0
        behind = {name: max(0, round(level - spent)) for name, spent in committed.items() if name != arm}
        needed = self.trial_cost("search", arm) + sum(
            number * self.trial_cost("search", name) for name, number in behind.items()
        )
        catching_up = level <= max(committed.values()) + 1e-9
        kept = self.reserve * (1.0 if self.exact or catching_up else 1.0 + MARGIN)
        return self._fits(self._still_running("search") + needed + kept)

    def allows_seed(self, seed: int) -> bool:
        """Whether the runs of a confirmation seed may begin; see the rules of the module."""
        if self.spec.cap is None or any(t.seed == seed for t in self.history.trials_of("confirm")):
            return True
        return self._fits(self._still_running("confirm") + self._seed_cost(self.spec.arms))

    def _fits(self, cost: float) -> bool:
        assert self.spec.cap is not None
        return self.spent + cost <= self.spec.cap.amount * (1 + 1e-9)

    def search_ended(self) -> str:
        """Why the search ends early, for a person."""
        return (
            f"the search ends here: {self._standing()}, and confirmation is expected to cost "
            f"{self._quantity(self.reserve)}{'' if self.exact else f', {MARGIN:.0%} of margin apart'}"
        )

    def confirmation_ended(self, seeds: int) -> str:
        """Why confirmation ends early, for a person."""
        return (
            f"confirmation ends after {seeds} of {formatting.plural(self.spec.confirm.seeds, 'seed')}: "
            f"{self._standing()}, and a seed of all arms costs {self._quantity(self._seed_cost(self.spec.arms))}"
        )

    def _standing(self) -> str:
        assert self.spec.cap is not None
        return f"{self._quantity(self.spent)} of the cap of {self._quantity(self.spec.cap.amount)} are spent"

    def _quantity(self, amount: float) -> str:
        assert self.spec.cap is not None
        return formatting.quantity(amount, self.spec.cap.unit)


def require_confirmation(spec: StudySpec, cost_of_all_trials: float) -> None:
    """Refuse a cap that cannot pay for confirmation, and a search trial of each arm before it where there is a search.

    Args:
        spec: the study.
        cost_of_all_trials: of one whole trial of each arm, in the cap's unit, at least.

    Raises:
        InputError: it cannot.
    """
    assert spec.cap is not None
    rounds = spec.confirm.seeds * spec.confirm.top + (spec.search.budget_per_arm > 0)
    needed = rounds * cost_of_all_trials
    if needed > spec.cap.amount * (1 + 1e-9):
        searched = "one search trial of each arm and " if spec.search.budget_per_arm else ""
        raise InputError(
            f"a cap of {formatting.quantity(spec.cap.amount, spec.cap.unit)} cannot pay for confirmation",
            where=f"cap.{spec.cap.unit}",
            why=f"{searched}confirmation cost {formatting.quantity(needed, spec.cap.unit)} at least",
            remedy="a larger cap, a smaller budget, or fewer confirm.seeds",
        )
