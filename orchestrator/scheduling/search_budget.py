"""What one arm's search has spent and may still add: by it arms are balanced."""

from typing import NamedTuple

from orchestrator.ledger.history import Ended, History
from orchestrator.ledger.records import BROKEN, AttemptOutcome
from orchestrator.ledger.trials import TrialHistory

TOLERANCE = 1e-9  # amounts in trial budgets that differ by less are the same
HOPELESS_TRIALS = 16  # an arm of which so many trials in a row broke or were lost is searched no further


class Totals(NamedTuple):
    """What an arm's search has spent and may yet spend, in trial budgets."""

    spent: float  # what the ledger bills
    owed: float  # what the trials under way may yet add, should none stop


class SearchBudget:
    """One arm's search, in trial budgets."""

    def __init__(self, history: History, arm: str) -> None:
        self._history = history
        self._settled = 0.0  # what the trials spent that do not run
        self.begun = 0  # trials so far
        self.broken = 0  # trials that broke or were lost since the last one that did not, in the order of their ends
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

    def take_up(self, trial: TrialHistory) -> None:
        """A trial that had stopped goes on."""
        self._settled -= self._spent(trial)
        self.live.add(trial.trial)

    def settle(self, trial: TrialHistory) -> None:
        """A trial has ended."""
        self._settle(trial)
        if trial.outcome is not None:
            self._count_broken(trial.outcome)

    def _settle(self, trial: TrialHistory) -> None:
        self.live.discard(trial.trial)
        self._settled += self._spent(trial)

    def _count_broken(self, outcome: AttemptOutcome) -> None:
        if outcome in ("lost", *BROKEN):
            self.broken += 1
        elif outcome in ("completed", "pruned") and not self.hopeless:
            self.broken = 0  # an arm that is given up stays so, whatever comes of its trials under way

    @property
    def totals(self) -> Totals:
        """Where the arm stands, as its trials have reported so far."""
        spent, owed = self._settled, 0.0
        for name in self.live:
            trial = self._history.trials.get(name)
            spent += 0.0 if trial is None else self._spent(trial)
            owed += 1.0 if trial is None else 1.0 - trial.progress
        return Totals(spent, owed)

    def _spent(self, trial: TrialHistory) -> float:
        design = self._history.design
        return trial.spent.get(design.unit, 0.0) / design.amount
