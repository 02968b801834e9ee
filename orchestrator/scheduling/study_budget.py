"""A hard cap for a whole study: the search leaves what confirmation needs, and confirmation starts no half pair.

All that the study spends counts, with work lost to failures and, where the cap is in time, money or energy, overhead
from the moment an attempt is asked for. What is still to come is estimated:

- In the unit that binds a trial, its steps cost the trial's budget.
- In another they cost what the arm's trials so far did per unit of the budget: those of the same phase if there are
  any, else of the search. Until a trial of every arm has ended that is not known, and an arm's search has one trial at
  a time, confirmation one seed.
- In time, money and energy a trial has overhead on top: the median of those so far that completed (a trial that was
  stopped early has had less), as the first trial on a cluster starts slower than those after it. What evaluations and
  checkpoints took grows with their number, which is larger in confirmation. Where a search trial runs in parts
  (promotion), all that the arm's overhead was, per unit of the budget.
- A paused trial costs nothing more until it is promoted, and then its next part.
- A confirmation run costs its own budget, and the cooldowns of the runs that leave it (``confirm.anytime``).
- What is measured may turn out dearer: :data:`MARGIN` is put on what confirmation is expected to cost, and on a seed
  that is to begin.

Rules:

1. A search trial begins if what is left pays for what runs, for it, for those of every other arm that would then be
   behind it, and for the confirmation. So the search ends for all arms at the same spending, but for the trial by which
   they differ at any moment. A trial by which an arm catches up with another may use up the margin, but for a seed's.
   With promotion it is a trial's next part that begins. One that does not help to bring the arm's first trial to its
   end leaves what that takes, of every arm; until it is there an arm may use up the margin.
2. A confirmation seed begins, with all its runs, if what is left pays for them and for what runs. A seed that has begun
   is finished. Where an extension changed which runs a seed has, those that it gained are to begin as a seed's are.
   The runs that leave it are among its runs: when they begin (``AnytimePhase``, after all seeds) they are paid for, and
   the cap is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from orchestrator import formatting
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.ledger.spending import AttemptSpending
from orchestrator.scheduling.search_budget import Account
from trainables.errors import InputError
from trainables.training.config import MEASURED_UNITS

MARGIN = 0.2
"""Share of the expected cost of confirmation that is kept back on top, where that cost is measured."""


@dataclass(frozen=True)
class Cap:
    """What a study may still begin. All is read from its history, so it is the same after a restart."""

    spec: StudySpec
    history: History

    def _in_unit(self, spending: AttemptSpending) -> float:
        assert self.spec.cap is not None
        return spending.total(self.spec.cap.unit)

    @property
    def spent(self) -> float:
        """What the study has spent in all, in the cap's unit."""
        return self._in_unit(self.history.spending())

    @property
    def exact(self) -> bool:
        """Whether a trial's cost is known before: the cap is in the budget's unit, in which overhead does not count."""
        assert self.spec.cap is not None
        return self.spec.cap.unit == self.spec.budget.unit and self.spec.cap.unit not in MEASURED_UNITS

    def trial_cost(self, phase: str, arm: str, share: float = 1.0) -> float:
        """What a trial is expected to cost; in a unit of which nothing is known yet 0.

        Args:
            phase: ``search``, ``confirm``, or ``anytime`` for a run that leaves one of the confirmation.
            arm: its arm.
            share: of the phase's budget that it spends.
        """
        assert self.spec.cap is not None
        cap, amount = self.spec.cap, self._amount(phase) * share
        if self.exact:
            return amount
        known = self._known(phase)
        own = known[arm]
        if not all(known.values()):
            return amount if cap.unit == self.spec.budget.unit else 0.0
        trained = sum(trial.progress * self._amount(trial.phase) for trial in own)
        if phase == "search" and self._promotes:
            return amount * sum(map(self._cost, own)) / trained
        ended = [trial for trials in known.values() for trial in trials]
        completed = [trial for trial in ended if trial.outcome == "completed"]
        overheads = [self._overhead(trial, phase) for trial in completed or ended]
        return amount * sum(map(self._steps_cost, own)) / trained + median_low(overheads)

    def _known(self, phase: str) -> dict[str, list[TrialHistory]]:
        """By arm, the trials that tell what one of a phase costs."""
        own = "search" if phase == "search" else "confirm"
        return {name: self._ended(own, name) or self._ended("search", name) for name in self.spec.arms}

    def waits_for_costs(self, phase: str) -> bool:
        """Whether nothing is known yet of what a trial of a phase costs."""
        if self.spec.cap is None or self.spec.cap.unit == self.spec.budget.unit:
            return False
        return not all(self._known(phase).values())

    @property
    def _promotes(self) -> bool:
        return self.spec.search.halving.kind == "promotion"

    def _amount(self, phase: str) -> float:
        """The budget of a phase's trials."""
        return (self.spec.budget if phase == "search" else self.spec.confirm_budget).amount

    def _trials(self, phase: str, arm: str | None = None) -> list[TrialHistory]:
        """Those of the phase's present budget: a study that was extended may have others."""
        trials = self.history.trials_of(phase, arm)
        return [trial for trial in trials if trial.amount in (None, self._amount(phase))]

    def _ended(self, phase: str, arm: str) -> list[TrialHistory]:
        """Those that spend nothing now."""
        trials = self._trials(phase, arm)
        return [t for t in trials if (t.outcome is not None or t.paused) and t.progress > 0]

    def _cost(self, trial: TrialHistory) -> float:
        return self._in_unit(trial.spending(self.history.updated or 0.0))

    def _steps_cost(self, trial: TrialHistory) -> float:
        """Without overhead."""
        spending = trial.spending(self.history.updated or 0.0)
        return self._in_unit(AttemptSpending(useful=spending.useful, lost=spending.lost))

    def _overhead(self, trial: TrialHistory, phase: str) -> float:
        """What that of a trial would be with as many evaluations and checkpoints as one of a phase has."""
        spending, names = trial.spending(self.history.updated or 0.0), self.spec.yardsticks.names
        curves = {
            "search": len(self.spec.search.halving.fractions),
            "confirm": self.spec.confirm.evaluations - 1,
        }
        before_the_end = curves.get(phase, 0)
        at_the_end = 1 if phase == "search" else len(names)
        taken = sum(len(measure["yardsticks"]) for measure in trial.evaluations)
        more = {
            "evaluation": (before_the_end + at_the_end) / max(1, taken),
            "checkpoint": (before_the_end + 1) / max(1, len(trial.evaluations)),
        }
        seconds = spending.overhead_seconds + spending.unreported_seconds
        assert self.spec.cap is not None
        if self.spec.cap.unit != "wall_seconds":  # placement costs time alone
            seconds -= spending.overhead.get("placement", 0.0)
        scaled = seconds + sum((more[cause] - 1.0) * spending.overhead.get(cause, 0.0) for cause in more)
        overhead = self._cost(trial) - self._steps_cost(trial)
        return overhead * scaled / seconds if seconds else overhead

    def _target(self, trial: TrialHistory) -> float:
        """How far a trial comes without another decision."""
        if trial.paused or trial.outcome is not None:
            return trial.progress
        if trial.phase != "search":
            return 1.0
        return Account(self.spec.budget, self.spec.search.halving).target(trial.progress)

    def _still_running(self, phase: str) -> float:
        """What trials that have begun will cost from now on."""
        return sum(
            (self._target(trial) - trial.progress) * self.trial_cost(phase, trial.arm)
            for trial in self._trials(phase)
            if trial.outcome is None and not trial.paused
        )

    def _committed(self, arm: str) -> float:
        """What an arm's search has spent and will, in trial budgets, if it begins no more."""
        return sum(self._target(trial) for trial in self._trials("search", arm))

    def _run_cost(self, arm: str) -> float:
        """Of a confirmation run with those that leave it."""
        leaving = sum(self._branch_cost(arm, share) for share in self.spec.confirm.anytime)
        return self.trial_cost("confirm", arm) + leaving

    def _branch_cost(self, arm: str, share: float) -> float:
        """Of a run that leaves a confirmation run for a share of its budget: it spends the cooldown alone."""
        return self.trial_cost("anytime", arm, self.spec.branch_share(arm, share))

    @property
    def _seed_cost(self) -> float:
        return self.spec.confirm.top * sum(map(self._run_cost, self.spec.arms))

    def _branches_owed(self) -> float:
        """What the runs that leave those of the seeds that have begun will cost."""
        done = {
            (t.arm, t.number, t.share) for t in self.history.trials_of("anytime") if t.outcome is not None
        }
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

    def allows_search_trial(self, arm: str, share: float, finishing: Mapping[str, float]) -> bool:
        """Whether an arm may begin a search trial, or its next part; see the rules of the module.

        Args:
            arm: its name.
            share: of a trial's budget that it spends at most.
            finishing: by arm, what is to be begun besides, in trial budgets, until a first trial comes to its end.
        """
        if self.spec.cap is None:
            return True
        live = any(trial.outcome is None and not trial.paused for trial in self._trials("search", arm))
        if live and self.waits_for_costs("search"):
            return False
        committed = {name: self._committed(name) for name in self.spec.arms}
        planned = {name: spent + finishing[name] for name, spent in committed.items()}
        planned[arm] += share
        needed = 0.0
        for name, spent in committed.items():
            lag = max(planned[name], planned[arm]) - spent
            needed += (lag if self._promotes or name == arm else round(lag)) * self.trial_cost("search", name)
        first = self._promotes and not any(t.outcome == "completed" for t in self._trials("search", arm))
        catching_up = committed[arm] + share <= max(committed.values()) + 1e-9
        margin = 0.0 if first else self._margin * (self._seed_cost if catching_up else self.reserve)
        return self._fits(self._still_running("search") + needed + self.reserve + margin)

    def allows_runs(self, arms: Iterable[str]) -> bool:
        """Whether what a confirmation seed is still to begin may begin; see the rules of the module.

        Args:
            arms: of its runs, one for each.
        """
        return self.spec.cap is None or self._fits(self._cost_of_runs(arms))

    def _cost_of_runs(self, arms: Iterable[str]) -> float:
        cost = sum(map(self._run_cost, arms)) * (1.0 + self._margin)
        return self._still_running("confirm") + self._branches_owed() + cost

    def amount_for_runs(self, arms: Iterable[str]) -> float:
        """The cap that would let all of these runs begin, one of an arm for each of ``arms``."""
        return self.spent + self._cost_of_runs(arms)

    def amount_for_search(self, left: Mapping[str, float]) -> float:
        """The cap that would let the search spend all it may, and keep back what confirmation needs.

        Args:
            left: by arm, of its search budget in trial budgets.
        """
        # What an arm is behind by is rounded to whole trials, see `allows_search_trial`.
        rounding = 0.0 if self._promotes else 0.5
        search = sum((share + rounding) * self.trial_cost("search", arm) for arm, share in left.items())
        return self.spent + search + self.reserve * (1.0 + self._margin)

    @property
    def _margin(self) -> float:
        return 0.0 if self.exact else MARGIN

    def _fits(self, cost: float) -> bool:
        assert self.spec.cap is not None
        return self.spent + cost <= self.spec.cap.amount * (1 + 1e-9)

    def search_ended(self) -> str:
        """Why the search ends early, for a person."""
        return (
            f"the search ends here: {self._standing()}, and confirmation is expected to cost "
            f"{self._quantity(self.reserve)}{'' if self.exact else f', {MARGIN:.0%} of margin apart'}"
        )

    def confirmation_ended(self, seeds: int, runs: int, arms: Sequence[str]) -> str:
        """Why confirmation ends early, for a person.

        Args:
            seeds: that have begun.
            runs: that never begin.
            arms: of those of them that would have been next, as of :meth:`allows_runs`.
        """
        return (
            f"confirmation ends after {seeds} of {formatting.plural(self.spec.confirm.seeds, 'seed')}, without "
            f"{formatting.plural(runs, 'run')}: {self._standing()}, and those of the next seed cost "
            f"{self._quantity(sum(map(self._run_cost, arms)))}{'' if self.exact else f', {MARGIN:.0%} of margin apart'}"
        )

    def _standing(self) -> str:
        assert self.spec.cap is not None
        return f"{self._quantity(self.spent)} of the cap of {self._quantity(self.spec.cap.amount)} are spent"

    def _quantity(self, amount: float) -> str:
        assert self.spec.cap is not None
        return formatting.quantity(amount, self.spec.cap.unit)


def require_confirmation(spec: StudySpec, costs: Mapping[str, float]) -> None:
    """Refuse a cap that cannot pay for confirmation, and a search trial of each arm before it where there is a search.

    Args:
        spec: the study.
        costs: by arm, of a whole search trial, in the cap's unit, at least.

    Raises:
        InputError: it cannot.
    """
    assert spec.cap is not None
    confirm = spec.confirm
    searched = spec.search.halving.finishing_budget if spec.search.budget_per_arm else 0.0
    runs = confirm.seeds * confirm.top * spec.confirm_budget.amount / spec.budget.amount
    needed = 0.0
    for arm, cost in costs.items():
        leaving = spec.cooldown_share(arm)
        needed += (searched + runs * (1.0 + leaving)) * cost
    if needed > spec.cap.amount * (1 + 1e-9):
        trials = "one search trial" if searched == 1 else f"{searched:.3g} trial budgets of search"
        before = f"{trials} of each arm and " if searched else ""
        raise InputError(
            f"a cap of {formatting.quantity(spec.cap.amount, spec.cap.unit)} cannot pay for confirmation",
            where=f"cap.{spec.cap.unit}",
            why=f"{before}confirmation cost {formatting.quantity(needed, spec.cap.unit)} at least",
            remedy="a larger cap, a smaller budget, or fewer confirm.seeds",
        )
