"""What one arm's search has spent and may still spend: by it arms are balanced, and their budgets kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.config.study import HalvingSpec
from orchestrator.ledger.history import TrialHistory
from orchestrator.ledger.segments import Record
from trainables.training.config import BudgetConfig

TOLERANCE = 1e-9
"""Amounts in trial budgets that differ by less are the same."""

HOPELESS_TRIALS = 16
"""An arm of which so many trials in a row diverged or failed is searched no further."""


@dataclass(frozen=True)
class Totals:
    """What an arm's search has spent and may yet spend, in trial budgets."""

    spent: float
    """What the ledger bills: by this the arms are balanced."""
    paid: float
    """Progress, from which the arm's own budget is taken: a clock is read after a step, and the moment by which a trial
    came out longer than its budget costs the arm no trial."""
    owed: float
    """What the trials under way may yet add."""


class Account:
    """One arm's search, in trial budgets.

    Args:
        budget: of a trial.
        halving: a paused trial owes nothing beyond its rung.
        trials: the arm's so far.
        records: of what its search did so far, in the ledger's order.
    """

    def __init__(
        self,
        budget: BudgetConfig,
        halving: HalvingSpec,
        trials: Iterable[TrialHistory] = (),
        records: Iterable[Record] = (),
    ) -> None:
        self._budget, self._halving = budget, halving
        self._settled_spent = self._settled_paid = 0.0
        self.begun = 0
        """Trials so far."""
        self.broken = 0
        """Trials that diverged or failed since the last one that did not, in the order of their ends."""
        self.completed = False
        """Whether a trial has come to the end of its budget."""
        self.live: dict[str, float] = {}
        """The trials that run or wait to be gone on with: the progress to which each may come."""
        for trial in trials:
            self.begun += 1
            self.live[trial.trial] = self.target(trial.progress)
            if trial.outcome is not None or trial.paused:
                self._settle(trial)
        for record in records:
            if record["kind"] == "end":
                self._count_broken(record["outcome"])

    @property
    def hopeless(self) -> bool:
        """Whether so many trials in a row broke that no more are begun."""
        return self.broken >= HOPELESS_TRIALS

    def target(self, progress: float = 0.0) -> float:
        """How far a trial comes before it is decided on again."""
        if self._halving.kind == "stopping":
            return 1.0
        return min((rung for rung in self._halving.fractions if rung > progress + TOLERANCE), default=1.0)

    def begin(self, trial: str) -> None:
        """A new trial begins."""
        self.begun += 1
        self.live[trial] = self.target()

    def revive(self, trial: TrialHistory) -> None:
        """A paused trial goes on."""
        self._settled_spent -= self._spent(trial)
        self._settled_paid -= trial.progress
        self.live[trial.trial] = self.target(trial.progress)

    def settle(self, trial: TrialHistory) -> None:
        """A trial has ended, or is paused: it spends nothing for now."""
        self._settle(trial)
        self._count_broken("paused" if trial.outcome is None else trial.outcome)

    def _settle(self, trial: TrialHistory) -> None:
        del self.live[trial.trial]
        self._settled_spent += self._spent(trial)
        self._settled_paid += trial.progress
        self.completed = self.completed or trial.outcome == "completed"

    def _count_broken(self, outcome: str) -> None:
        if outcome in ("diverged", "failed"):
            self.broken += 1
        elif self.hopeless:
            return  # an arm that is given up stays so, whatever comes of its trials under way
        elif outcome in ("completed", "paused") or (outcome, self._halving.kind) == ("pruned", "stopping"):
            self.broken = 0  # by promotion `pruned` is what paused trials are when the search is over

    def totals(self, trials: Mapping[str, TrialHistory]) -> Totals:
        """Where the arm stands, as ``trials`` have reported so far."""
        spent, paid, owed = self._settled_spent, self._settled_paid, 0.0
        for name, target in self.live.items():
            progress = 0.0
            if name in trials:
                progress = trials[name].progress
                spent += self._spent(trials[name])
                paid += progress
            owed += max(0.0, target - progress)
        return Totals(spent, paid, owed)

    def _spent(self, trial: TrialHistory) -> float:
        return trial.spent.get(self._budget.unit, 0.0) / self._budget.amount
