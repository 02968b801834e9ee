"""A hard cap for a whole study: the search leaves what confirmation needs, and confirmation starts no half pair.

All that the study spends counts, with work lost to failures and, where the cap is in time, money or energy, overhead
from the moment an attempt is asked for. What a trial still to come costs is estimated:

- In the unit that binds a trial, it costs its budget.
- In another it costs what the arm's trials so far did per unit of the budget, with all their overhead, and outside of
  the search with one start: those of the same phase that completed if there are any, else any that ended, else those of
  the search. Until a trial of every arm has ended that is not known, and an arm's search has one trial at a time,
  confirmation one seed.
- A confirmation run costs its own budget, and the cooldowns of its branches (``confirm.anytime``).
- What is measured may turn out dearer: :data:`MARGIN` is put on what confirmation is expected to cost.

Rules:

1. An arm's search takes a step if what is left pays for what runs, for it, for as much of every other arm as would then
   be behind, and for the confirmation. So the search ends for all arms at the same spending, but for the step by which
   they differ at any moment. One by which an arm catches up with another, or runs the best of its stopped trials to
   the end, may use up the margin, but for a seed's. An arm that has completed no trial, or fewer than are to be
   confirmed, runs it to the end if one seed can be paid beside it.
2. A confirmation seed begins, with all its runs, if what is left pays for them and for what runs. A seed that has begun
   is finished, its branches included: when those begin the cap is not asked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
        # In the search trials stop and are taken up again; a confirmation run starts once.
        start = 0.0 if phase == "search" else self._start_cost(known[arm])
        return amount * (cost - start * sum(trial.attempts for trial in known[arm])) / trained + start

    def _start_cost(self, trials: Sequence[TrialHistory]) -> float:
        """Of an attempt at such trials."""
        starting = sum(trial.spending(self.history.updated).starting(self.cap.unit) for trial in trials)
        return starting / sum(trial.attempts for trial in trials)

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

    def _still_running(self) -> float:
        """What confirmation runs that have begun will cost from now on."""
        running = (trial for trial in self._trials("confirm") if trial.outcome is None)
        return sum((1.0 - trial.progress) * self.trial_cost("confirm", trial.arm) for trial in running)

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

    def for_search(
        self, committed: Mapping[str, float], waiting: Mapping[str, int]
    ) -> Callable[[str, float, float | None], bool]:
        """Whether an arm's search may take a step (as :data:`orchestrator.scheduling.halving.Pays`); see the module's
        rules. ``committed``: what each arm's search has spent, and will with the steps that it has begun; ``waiting``:
        of these, those that have yet to start."""
        costs = {name: self.trial_cost("search", name) for name in self.spec.arms}
        starts = {name: self._start_cost(known) if known else 0.0 for name, known in self._known("search").items()}
        done = {name: sum(trial.progress for trial in self._trials("search", name)) for name in self.spec.arms}
        running = sum(max(0.0, committed[name] - done[name]) * cost for name, cost in costs.items())
        running += sum(starts[name] * number for name, number in waiting.items())
        owed, reserve, seed_cost = running + self.reserve, self._margin * self.reserve, self._margin * self._seed_cost

        def allows(arm: str, cost: float, kept: float | None) -> bool:
            if kept is None:
                return self._fits(running + cost * costs[arm] + self._seed_cost)
            level = committed[arm] + cost + kept
            needed = starts[arm] + sum((max(level, spent) - spent) * costs[name] for name, spent in committed.items())
            catching_up = not kept or level <= max(committed.values()) * _ROUNDING
            return self._fits(owed + needed + (seed_cost if catching_up else reserve))

        return allows

    def allows_runs(self, arms: Iterable[str]) -> bool:
        """Whether the runs that a confirmation seed still needs, of these arms, may begin; see the module's rules."""
        cost = sum(map(self._run_cost, arms)) * (1.0 + self._margin)
        return self._fits(self._still_running() + self._branches_owed + cost)

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
