"""The search: tunes every arm within its budget, the next trial going to the arm that has spent least."""

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import Arrived, History
from orchestrator.ledger.records import AttemptOutcome, MeasureRecord
from orchestrator.ledger.trials import TrialHistory, trial_name
from orchestrator.scheduling.halving import Step
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
            sampler = ArmSampler(name, arm.search_space, spec.search, history.design, wanted=spec.confirm.top)
            trials = {trial.number: trial for trial in history.trials_of("search", name)}
            sampler.go_through(history.search.get(name, ()), trials)
            self._samplers[name] = sampler
        self._waiting = [t for t in history.trials_of("search") if t.outcome is None]

    def next(self) -> PlannedTrial | None:
        """The next step of the arm that has spent least; trials of an earlier session are gone on with first. While
        that arm cannot take another (its trials run), the others go on only as far as they may spend without being
        ahead of it by more than a trial's budget for each of ``concurrent_per_arm``. So where an arm can go no further,
        its grid at an end or nothing but broken trials, the others soon end too."""
        if self._waiting:
            return self._planner.plan_again(self._waiting.pop(0))
        arm, step = self._next_step() or (None, None)
        if arm is None or step is None:
            return None
        budget, sampler = self._budgets[arm], self._samplers[arm]
        if step.number is not None:
            sampler.take_up(step.number)
            trial = self._history.trials[trial_name("search", arm, step.number)]
            budget.take_up(trial)
            return self._planner.plan_again(trial)
        number = budget.begun
        budget.begin(trial_name("search", arm, number))
        # One seed for all: configurations are compared on the same data and initial weights.
        return self._planner.plan("search", arm, number, self._spec.seed, sampler.ask())

    def _next_step(self, *, capped: bool = True) -> tuple[str, Step] | None:
        """An arm, and what its search does next."""
        concurrent = self._spec.search.concurrent_per_arm
        totals = {arm: budget.totals for arm, budget in self._budgets.items()}
        least = min(total.spent for total in totals.values())
        for arm, total in sorted(totals.items(), key=lambda item: item[1].spent):
            live = len(self._budgets[arm].live)
            if live >= concurrent or (live and capped and self._cap and self._cap.waits_for_costs("search")):
                continue
            step = self._step_of(arm, capped=capped)
            if step and total.spent + total.owed + step.most <= least + concurrent + TOLERANCE:
                return arm, step
        return None

    def _step_of(self, arm: str, *, capped: bool = True) -> Step | None:
        """What an arm's search does next, if it may: as far as its own budget pays, and the study's."""
        committed = {name: sampler.halving.committed for name, sampler in self._samplers.items()}
        left = self._spec.search.budget_per_arm - committed[arm]
        allows = self._cap.for_search(committed) if capped and self._cap else None

        def pays(cost: float, kept: float | None) -> bool:
            return cost + (kept or 0.0) <= left + TOLERANCE and (allows is None or allows(arm, cost, kept))

        sampler = self._samplers[arm]
        return sampler.halving.next_step(pays, may_begin=not self._budgets[arm].hopeless and not sampler.exhausted)

    def exhausted(self) -> bool:
        return not any(budget.live for budget in self._budgets.values()) and self._next_step() is None

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        primary = self._history.design.yardsticks.primary
        if measure.rung is None or primary not in measure.yardsticks:
            return False
        arrived = Arrived(trial.number, measure.rung, measure.yardsticks[primary].overall, measure.progress)

        def is_next() -> bool:
            step = self._step_of(trial.arm)
            return step is not None and step.number == trial.number

        return not self._samplers[trial.arm].decide(arrived, is_next)

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        self._samplers[trial.arm].ended(trial, outcome)
        if trial.outcome is None:
            self._waiting.append(trial)
        else:
            self._budgets[trial.arm].settle(trial)

    def ended_early(self) -> str:
        if self._cap is None or self._next_step(capped=False) is None:
            return ""
        return self._cap.search_ended()
