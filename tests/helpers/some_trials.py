"""A phase of some trials, for an executor alone."""

from __future__ import annotations

from orchestrator.config.files import load_study
from orchestrator.ledger.history import History
from orchestrator.ledger.records import AttemptOutcome, MeasureRecord
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.arm_search import AT_REST
from orchestrator.scheduling.trials import PlannedTrial, Planner


class SomeTrials:
    """All of them may run at once; one that is where it was is started again."""

    def __init__(self, history: History, number: int) -> None:
        spec = load_study("demo")
        self.planner, self.arm = Planner(spec, history, "corpus"), next(iter(spec.arms))
        self.coming = list(range(number))

    def next(self) -> PlannedTrial:
        number = self.coming.pop(0)
        return self.planner.plan("confirm", self.arm, number, number + 1, {})

    def exhausted(self) -> bool:
        return not self.coming

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        if outcome in AT_REST:
            self.coming.append(trial.number)

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        return False

    def decisions(self) -> tuple[()]:
        return ()

    def ended_early(self) -> str:
        return ""
