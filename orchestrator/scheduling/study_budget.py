"""A hard cap for a whole study: the search leaves what confirmation needs, and confirmation starts no half pair.

All that the study spends counts, with work lost to failures and, where the cap is in time, money or energy, overhead
from the moment an attempt is asked for. What a trial still to come costs is estimated:

- In the unit that binds a trial, it costs its budget.
- In another it costs what the arm's trials so far did per unit of the budget, with all their overhead: those of the
  same phase that completed if there are any, else any that ended, else those of the search. Until a trial of every arm
  has ended that is not known, and an arm's search has one trial at a time, confirmation one seed.
- A confirmation run costs its own budget, and the cooldowns of its branches (``confirm.anytime``).
- What is measured may turn out dearer: :data:`MARGIN` is put on what confirmation is expected to cost.

Rules:

1. A search trial begins if what is left pays for what runs, for it, for those of every other arm that would then be
   behind it, and for the confirmation. So the search ends for all arms at the same spending, but for the trial by which
   they differ at any moment. A trial by which an arm catches up with another may use up the margin, but for a seed's.
2. A confirmation seed begins, with all its runs, if what is left pays for them and for what runs. A seed that has begun
   is finished, its branches included: when those begin the cap is not asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import TrainingPhase
from orchestrator.ledger.trials import TrialHistory
from trainables.errors import InputError
from trainables.training.config import MEASURED_UNITS, CapConfig

MARGIN = 0.2  # share of the expected cost of confirmation that is kept back on top, where that cost is measured

_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class StudyBudget:
    """What a study with a cap may still begin. All is read from its history, so it is the same after a restart."""

    spec: StudySpec
    history: History
    cap: CapConfig

    @property
    def spent(self) -> float:
        """What the study has spent in all, in the cap's unit."""
        return self.history.spending().total(self.cap.unit)

    @property
    def exact(self) -> bool:
        """Whether a trial's cost is known before: the cap is in the budget's unit, in which overhead does not count."""
        return self.cap.unit == self.spec.budget.unit and self.cap.unit not in MEASURED_UNITS

    @property
    def _margin(self) -> float:
        return 0.0 if self.exact else MARGIN

    def trial_cost(self, phase: TrainingPhase, arm: str, share: float = 1.0) -> float:
        """What a trial of a ``share`` of the phase's budget is expected to cost; 0 where that is not known at all."""
        amount = self._amount(phase) * share
        if self.exact:
            return amount
        known = self._known("search" if phase == "search" else "confirm")
        if not all(known.values()):
            return amount if self.cap.unit == self.spec.budget.unit else 0.0
        trained = sum(trial.progress * trial.amount for trial in known[arm])
        cost = sum(trial.spending(self.history.updated).total(self.cap.unit) for trial in known[arm])
        return amount * cost / trained

    def _amount(self, phase: TrainingPhase) -> float:
        return (self.spec.budget if phase == "search" else self.spec.confirm_budget).amount

    def _known(self, phase: Literal["search", "confirm"]) -> dict[str, list[TrialHistory]]:
        """By arm, the trials that tell what one of a phase costs."""

        def ended(phase: TrainingPhase, arm: str) -> list[TrialHistory]:
            trials = [t for t in self._trials(phase, arm) if t.outcome is not None and t.progress > 0]
            return [t for t in trials if t.outcome == "completed"] or trials

        return {arm: ended(phase, arm) or ended("search", arm) for arm in self.spec.arms}

    def waits_for_costs(self, phase: Literal["search", "confirm"]) -> bool:
        """Whether nothing is known yet of what a trial of a phase costs."""
        return self.cap.unit != self.spec.budget.unit and not all(self._known(phase).values())

    def _trials(self, phase: TrainingPhase, arm: str | None = None) -> list[TrialHistory]:
        """Those of the phase's present budget: a study that was extended may have others."""
        return [trial for trial in self.history.trials_of(phase, arm) if trial.amount == self._amount(phase)]

    def _still_running(self, phase: Literal["search", "confirm"]) -> float:
        """What trials that have begun will cost from now on."""
        return sum(
            (1.0 - trial.progress) * self.trial_cost(phase, trial.arm)
            for trial in self._trials(phase)
            if trial.outcome is None
        )

    def _run_cost(self, arm: str) -> float:
        """Of a confirmation run with its branches."""
        branches = (self._branch_cost(arm, share) for share in self.spec.confirm.anytime)
        return self.trial_cost("confirm", arm) + sum(branches)

    def _branch_cost(self, arm: str, share: float) -> float:
        return self.trial_cost("anytime", arm, self.spec.branch_share(arm, share))

    @property
    def _seed_cost(self) -> float:
        return self.spec.confirm.top * sum(map(self._run_cost, self.spec.arms))

    @property
    def _branches_owed(self) -> float:
        """What the branches of the seeds that have begun will cost."""
        ended = [trial for trial in self.history.trials_of("anytime") if trial.outcome is not None]
        done = {(trial.arm, trial.number, trial.share) for trial in ended}
        return sum(
            self._branch_cost(trunk.arm, share)
            for trunk in self._trials("confirm")
            if trunk.outcome in (None, "completed")
            for share in self.spec.confirm.anytime
            if (trunk.arm, trunk.number, share) not in done
        )

    @property
    def reserve(self) -> float:
        """What confirmation is expected to cost, without the margin."""
        return self.spec.confirm.seeds * self._seed_cost

    def allows_search_trial(self, arm: str) -> bool:
        """Whether an arm may begin a search trial; see the module's rules."""
        live = any(trial.outcome is None for trial in self._trials("search", arm))
        if live and self.waits_for_costs("search"):
            return False
        committed = {
            name: sum(t.progress if t.outcome is not None else 1.0 for t in self._trials("search", name))
            for name in self.spec.arms
        }
        needed = self.trial_cost("search", arm)
        for name, budgets in committed.items():
            if name != arm:
                behind = round(max(budgets, committed[arm] + 1.0) - budgets)
                needed += behind * self.trial_cost("search", name)
        catching_up = committed[arm] + 1.0 <= max(committed.values()) * _ROUNDING
        margin = self._margin * (self._seed_cost if catching_up else self.reserve)
        return self._fits(self._still_running("search") + needed + self.reserve + margin)

    def allows_runs(self, arms: Iterable[str]) -> bool:
        """Whether the runs that a confirmation seed still needs, of these arms, may begin; see the module's rules."""
        cost = sum(map(self._run_cost, arms)) * (1.0 + self._margin)
        return self._fits(self._still_running("confirm") + self._branches_owed + cost)

    def _fits(self, cost: float) -> bool:
        return self.spent + cost <= self.cap.amount * _ROUNDING

    def search_ended(self) -> str:
        """Why the search ends early, for a person."""
        return (
            f"the search ends here: {self._standing}, and confirmation is expected to cost "
            f"{self._quantity(self.reserve)}{self._margin_in_words}"
        )

    def confirmation_ended(self, seeds: int, runs: int, arms: Sequence[str]) -> str:
        """Why confirmation ends early, for a person: seeds begun, runs left, the arms whose runs were next."""
        return (
            f"confirmation ends after {seeds} of {formatting.plural(self.spec.confirm.seeds, 'seed')}, without "
            f"{formatting.plural(runs, 'run')}: {self._standing}, and those of the next seed cost "
            f"{self._quantity(sum(map(self._run_cost, arms)))}{self._margin_in_words}"
        )

    @property
    def _margin_in_words(self) -> str:
        return "" if self.exact else f", {MARGIN:.0%} of margin apart"

    @property
    def _standing(self) -> str:
        return f"{self._quantity(self.spent)} of the cap of {self._quantity(self.cap.amount)} are spent"

    def _quantity(self, amount: float) -> str:
        return formatting.quantity(amount, self.cap.unit)


def require_confirmation(spec: StudySpec, cap: CapConfig, costs: Mapping[str, float]) -> None:
    """Raises InputError if a cap cannot pay for confirmation, with a search trial of each arm before it where there is
    a search; ``costs`` are of a whole search trial, by arm, in the cap's unit, at least."""
    searched = 1.0 if spec.search.budget_per_arm else 0.0
    runs = spec.confirm.seeds * spec.confirm.top * spec.confirm_budget.amount / spec.budget.amount
    needed = sum((searched + runs * (1.0 + spec.cooldown_share(arm))) * cost for arm, cost in costs.items())
    if needed > cap.amount * _ROUNDING:
        before = "one search trial of each arm and " if searched else ""
        raise InputError(
            f"a cap of {formatting.quantity(cap.amount, cap.unit)} cannot pay for confirmation",
            where=f"cap.{cap.unit}",
            why=f"{before}confirmation cost {formatting.quantity(needed, cap.unit)} at least",
            remedy="a larger cap, a smaller budget, or fewer confirm.seeds",
        )
