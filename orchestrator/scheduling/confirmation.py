"""The phases that compare: each arm's best configurations again, over seeds that all arms share.

``confirm`` runs them at the whole budget, a seed of all arms before the next seed. ``anytime`` runs their branches,
each to the end of its share of the budget: a comparison at several budgets for the price of the cooldowns.
"""

from collections.abc import Iterable, Iterator
from itertools import count

from orchestrator.analysis.compare import answered
from orchestrator.analysis.selection import best_trials, current_runs, same_configuration
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import AttemptOutcome, DecisionRecord, MeasureRecord
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.study_budget import StudyBudget
from orchestrator.scheduling.trials import PlannedTrial, Planner
from search_spaces import Configuration


class _WholeRuns:
    """Runs that all spend their whole budget, in a fixed order."""

    def __init__(self, planner: Planner, pending: list[PlannedTrial]) -> None:
        self._planner, self._pending = planner, pending

    def next(self) -> PlannedTrial | None:
        return self._pending.pop(0) if self._pending else None

    def exhausted(self) -> bool:
        return not self._pending

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        return False  # each run spends its whole budget

    def decisions(self) -> Iterable[DecisionRecord]:
        return ()

    def ended_early(self) -> str:
        return ""

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        if trial.outcome is None:  # a failed attempt that may be repeated goes back to the front
            self._pending.insert(0, self._planner.plan_again(trial))


class ConfirmPhase(_WholeRuns):
    """Runs each arm's best configurations over the paired seeds, and over a spare one for each seed of which a run was
    lost. With ``confirm.stopping`` no seed begins after those that answer the question; with a cap, none that it does
    not pay for, with the runs of all arms.

    Until the question is answered, each free one of the ``slots`` begins the next run, so that none waits for the
    slower arm. At most half as many seeds again as there is room for are under way; with room for one, the next begins
    when it has ended. Seeds that were begun beyond the answer do not count in it.
    """

    def __init__(self, spec: StudySpec, history: History, corpus: str, slots: int = 1) -> None:
        self._spec, self._history = spec, history
        self._seeds_at_a_time = max(1, slots // (len(spec.arms) * spec.confirm.top)) * 3 // 2
        self._cap = None if spec.cap is None else StudyBudget(spec, history, spec.cap)
        self._running: set[str] = set()
        self._best: dict[str, list[Configuration]] = {arm: [{}] for arm in spec.arms}  # as they are written
        if spec.search.budget_per_arm:
            for arm in spec.arms:
                chosen = best_trials(history, arm, spec.confirm.top)
                self._best[arm] = [trial.configuration for trial in chosen]
        # Numbers go on from those that have begun: a study that is extended renames nothing.
        self._numbers = {
            arm: count(1 + max((t.number for t in history.trials_of("confirm", arm)), default=-1)) for arm in spec.arms
        }
        self._planned_seeds = history.planned_seeds
        runs = self._runs(range(self._planned_seeds))
        # What is owed comes first: where the cap ends the phase, nothing that has begun is left.
        super().__init__(Planner(spec, history, corpus), [])
        self._pending = sorted(runs, key=lambda run: not self._is_owed(run))

    def _runs(self, places: Iterable[int]) -> Iterator[PlannedTrial]:
        """Those that have not ended, of the seeds at these places, a seed of all arms before the next seed. Each other
        seed has the arms in opposite order: where two run at a time, both places get as much work, and neither arm is
        always the first."""
        known = {
            (trial.arm, same_configuration(trial.configuration), trial.seed): trial
            for trial in current_runs(self._history)
        }
        for place in places:
            seed = self._spec.seed + 1 + place
            for rank in range(self._spec.confirm.top):
                for arm, configurations in list(self._best.items())[:: -1 if place % 2 else 1]:
                    if rank < len(configurations):
                        configuration = configurations[rank]
                        run = known.get((arm, same_configuration(configuration), seed))
                        if run is None:
                            number = next(self._numbers[arm])
                            yield self._planner.plan("confirm", arm, number, seed, configuration)
                        elif run.outcome is None:
                            yield self._planner.plan_again(run)

    def next(self) -> PlannedTrial | None:
        if self.exhausted() or self._waits():
            return None
        run = self._pending.pop(0)
        self._running.add(run.trial)
        return run

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        self._running.discard(trial.trial)
        super().ended(trial, outcome)
        spare = range(self._planned_seeds, self._history.planned_seeds)
        self._planned_seeds += len(spare)
        self._pending += self._runs(spare)

    def exhausted(self) -> bool:
        """Whether all runs were started that are wanted and that the cap pays for: of a seed all arms' or none."""
        if not self._pending:
            return True
        return not self._waits() and (not self._cap_allows() or self._is_answered())

    def _has_begun(self, seed: int) -> bool:
        return any(trial.seed == seed for trial in current_runs(self._history))

    def _is_owed(self, run: PlannedTrial) -> bool:
        """Whether the run has begun, or its seed has since an extension last changed which runs a seed has."""
        plans, current = self._history.plans, current_runs(self._history)
        begun = any(trial.seed == run.seed and trial.plan == plans for trial in current)
        return begun or run.trial in self._history.trials

    def _cap_allows(self) -> bool:
        if self._cap is None or self._is_owed(self._pending[0]):
            return True
        return self._cap.allows_runs(self._next_arms())

    def _next_arms(self) -> list[str]:
        """The arms of the runs that the next seed is still to begin."""
        seed, known = self._pending[0].seed, self._history.trials
        return [run.arm for run in self._pending if run.seed == seed and run.trial not in known]

    def _is_answered(self) -> bool:
        """Whether adaptive stopping wants the next seed no more."""
        seed = self._pending[0].seed
        return not self._has_begun(seed) and self._is_look(seed) and answered(self._history)

    def _is_look(self, seed: int) -> bool:
        """Whether adaptive stopping is asked before the seed begins."""
        stopping = self._spec.confirm.stopping
        return stopping is not None and seed - self._spec.seed > stopping.minimum

    def _waits(self) -> bool:
        """Whether the next seed is not to begin before the runs of those before have ended."""
        seed = self._pending[0].seed
        if not self._running or self._is_owed(self._pending[0]):
            return False
        if self._cap is not None and self._cap.waits_for_costs("confirm"):
            return True
        under_way = {trial.seed for trial in current_runs(self._history) if trial.outcome is None}
        return not self._has_begun(seed) and self._is_look(seed) and len(under_way) >= self._seeds_at_a_time

    def seeds_begun(self) -> int:
        """Seeds that were run, or are."""
        return len({trial.seed for trial in current_runs(self._history)})

    def ended_early(self) -> str:
        if self._cap is None or not self._pending or self._is_answered() or self._cap_allows():
            return ""
        return self._cap.confirmation_ended(self.seeds_begun(), len(self._pending), self._next_arms())


class AnytimePhase(_WholeRuns):
    """Runs the branches of the completed confirmation runs, each to the end of its share of their budget."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        planner = Planner(spec, history, corpus)
        runs = []
        for trunk in sorted(current_runs(history), key=lambda trial: (trial.seed, trial.arm)):
            if trunk.outcome != "completed":
                continue
            for share in spec.confirm.anytime:
                planned = planner.plan("anytime", trunk.arm, trunk.number, trunk.seed, trunk.configuration, share)
                known = history.trials.get(planned.trial)
                if known is None or known.outcome is None:
                    runs.append(planned)
        super().__init__(planner, runs)
