"""What one arm's search has spent and may still spend: by it arms are balanced, and their budgets kept."""

from typing import NamedTuple

from orchestrator.ledger.history import Ended, History
from orchestrator.ledger.records import AttemptOutcome
from orchestrator.ledger.trials import TrialHistory

TOLERANCE = 1e-9  # amounts in trial budgets that differ by less are the same
HOPELESS_TRIALS = 16  # an arm of which so many trials in a row diverged or failed is searched no further


class Totals(NamedTuple):
    """What an arm's search has spent and may yet spend, in trial budgets."""

    spent: float  # what the ledger bills: by this the arms are balanced
    paid: float
    """Progress, from which the arm's own budget is taken: a clock is read after a step, and the moment by which a trial
    came out longer than its budget costs the arm no trial."""
    owed: float  # what the trials under way may yet add


class SearchBudget:
    """One arm's search, in trial budgets."""

    def __init__(self, history: History, arm: str) -> None:
        self._history = history
        self._settled_spent = self._settled_paid = 0.0
        self.begun = 0  # trials so far
        self.broken = 0  # trials that diverged or failed since the last one that did not, in the order of their ends
        self.live: set[str] = set()  # the trials that run or wait to be gone on with
        for trial in history.trials_of("search", arm):
            self.begin(trial.trial)
            if trial.outcome is not None:
                self._settle(trial)
        for event in history.search.get(arm, ()):
            if isinstance(event, Ended):
                self._count_broken(event.outcome)

    @property
    def hopeless(self) -> bool:
        """Whether so many trials in a row broke that no more are begun."""
        return self.broken >= HOPELESS_TRIALS

    def begin(self, trial: str) -> None:
        """A new trial begins."""
        self.begun += 1
        self.live.add(trial)

    def settle(self, trial: TrialHistory) -> None:
        """A trial has ended."""
        self._settle(trial)
        if trial.outcome is not None:
            self._count_broken(trial.outcome)

    def _settle(self, trial: TrialHistory) -> None:
        self.live.discard(trial.trial)
        self._settled_spent += self._spent(trial)
        self._settled_paid += trial.progress

    def _count_broken(self, outcome: AttemptOutcome) -> None:
        if outcome in ("diverged", "failed"):
            self.broken += 1
        elif outcome in ("completed", "pruned") and not self.hopeless:
            self.broken = 0  # an arm that is given up stays so, whatever comes of its trials under way

    @property
    def totals(self) -> Totals:
        """Where the arm stands, as its trials have reported so far."""
        spent, paid, owed = self._settled_spent, self._settled_paid, 0.0
        for name in self.live:
            trial = self._history.trials.get(name)
            progress = 0.0 if trial is None else trial.progress
            spent += 0.0 if trial is None else self._spent(trial)
            paid += progress
            owed += 1.0 - progress
        return Totals(spent, paid, owed)

    def _spent(self, trial: TrialHistory) -> float:
        design = self._history.design
        return trial.spent.get(design.unit, 0.0) / design.amount
