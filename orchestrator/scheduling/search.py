"""The search: tunes every arm within its budget, the next trial going to the arm that has spent least."""

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import AttemptOutcome, MeasureRecord
from orchestrator.ledger.trials import TrialHistory, trial_name
from orchestrator.scheduling.sampler import ArmSampler
from orchestrator.scheduling.search_budget import TOLERANCE, SearchBudget
from orchestrator.scheduling.study_budget import StudyBudget
from orchestrator.scheduling.trials import PlannedTrial, Planner


class SearchPhase:
    """Tunes every arm within its search budget. The state is the ledger's."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self._spec, self._history = spec, history
        self._planner = Planner(spec, history, corpus)
        self._cap = None if spec.cap is None else StudyBudget(spec, history, spec.cap)
        self._samplers: dict[str, ArmSampler] = {}
        self._budgets = {arm: SearchBudget(history, arm) for arm in spec.arms}
        for name, arm in spec.arms.items():
            sampler = ArmSampler(name, arm.search_space, spec.search, history.design)
            trials = {trial.number: trial for trial in history.trials_of("search", name)}
            sampler.go_through(history.search.get(name, ()), trials)
            self._samplers[name] = sampler
        self._waiting = [t for t in history.trials_of("search") if t.outcome is None]

    def next(self) -> PlannedTrial | None:
        """The next trial of the arm that has spent least; trials of an earlier session are gone on with first. While
        that arm cannot start another (its trials run), the others go on only as far as they may spend without being
        ahead of it by more than a trial's budget for each of ``concurrent_per_arm``. So where an arm can go no further,
        its grid at an end or nothing but broken trials, the others soon end too."""
        if self._waiting:
            return self._planner.plan_again(self._waiting.pop(0))
        arm = self._next_arm()
        if arm is None:
            return None
        number = self._budgets[arm].begun
        self._budgets[arm].begin(trial_name("search", arm, number))
        # One seed for all: configurations are compared on the same data and initial weights.
        return self._planner.plan("search", arm, number, self._spec.seed, self._samplers[arm].ask())

    def _next_arm(self, *, capped: bool = True) -> str | None:
        concurrent, most = self._spec.search.concurrent_per_arm, self._spec.search.budget_per_arm
        totals = {arm: budget.totals for arm, budget in self._budgets.items()}
        least = min(total.spent for total in totals.values())
        for arm, total in sorted(totals.items(), key=lambda item: item[1].spent):
            budget = self._budgets[arm]
            if budget.hopeless or self._samplers[arm].exhausted or len(budget.live) >= concurrent:
                continue
            balanced = total.spent + total.owed + 1.0 <= least + concurrent + TOLERANCE
            # A trial is begun only if the arm can pay for all of it, and for what those that run may still spend.
            affordable = total.paid + total.owed + 1.0 <= most + TOLERANCE
            allowed = not capped or self._cap is None or self._cap.allows_search_trial(arm)
            if balanced and affordable and allowed:
                return arm
        return None

    def exhausted(self) -> bool:
        return not any(budget.live for budget in self._budgets.values()) and self._next_arm() is None

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        primary = self._history.design.yardsticks.primary
        if measure.rung is None or primary not in measure.yardsticks:
            return False
        score = measure.yardsticks[primary].overall
        return self._samplers[trial.arm].prunes(trial.number, measure.rung, score)

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        self._samplers[trial.arm].ended(trial, outcome)
        if trial.outcome is None:
            self._waiting.append(trial)
        else:
            self._budgets[trial.arm].settle(trial)

    def ended_early(self) -> str:
        if self._cap is None or self._next_arm(capped=False) is None:
            return ""
        return self._cap.search_ended()
