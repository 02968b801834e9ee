"""The phases that compare: each arm's best configurations again, over seeds that all arms share.

``confirm`` runs them at the whole budget, a seed of all arms before the next seed. ``anytime`` runs what left those
runs on their way to its end, at shares of their budget: a comparison at several budgets for the price of the cooldowns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from orchestrator.analysis.comparison import answered
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.ledger.segments import Record
from orchestrator.scheduling.sampler import Verdict
from orchestrator.scheduling.search import PlannedTrial, Planner, best_trials
from orchestrator.scheduling.study_budget import Cap


def confirm_seeds(spec: StudySpec) -> list[int]:
    """The paired seeds, at most; none is the search's."""
    return [spec.seed + 1 + index for index in range(spec.confirm.seeds)]


class _WholeRuns:
    """Runs that all spend their whole budget, in a fixed order."""

    def __init__(self, planner: Planner, pending: list[PlannedTrial]) -> None:
        self._planner, self._pending = planner, pending

    def next(self) -> PlannedTrial | None:
        """The next run; None while there is none to start."""
        return self._pending.pop(0) if self._pending else None

    def exhausted(self) -> bool:
        """Whether all runs were started."""
        return not self._pending

    def verdict(self, trial: TrialHistory, measure: Record) -> Verdict | None:
        """No run is stopped early: each spends its whole budget."""
        return None

    def left_over(self) -> list[TrialHistory]:
        """No run is left over: none is paused."""
        return []

    def ended_early(self) -> str:
        """Empty: it does not."""
        return ""

    def ended(self, trial: TrialHistory, outcome: str) -> None:
        """A failed attempt that may be repeated goes back to the front."""
        if trial.outcome is None:
            self._pending.insert(0, self._planner.plan_again(trial))


class ConfirmPhase(_WholeRuns):
    """Runs each arm's best configurations over the paired seeds.

    With ``confirm.stopping`` no seed is begun after the ones that answer the question; with a cap, none that it does
    not pay for, with the runs of all arms.
    """

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self._spec, self._history, self.cap = spec, history, Cap(spec, history)
        self._running: set[str] = set()
        planner = Planner(spec, history, corpus)
        # What is owed comes first: where the cap ends the phase, nothing that has begun is left.
        super().__init__(planner, sorted(self._runs(planner), key=lambda run: not self._is_owed(run)))

    def _runs(self, planner: Planner) -> Iterator[PlannedTrial]:
        """Those that have not ended, a seed of all arms before the next seed."""
        spec = self._spec
        best: dict[str, list[Mapping[str, Any]]] = {arm: [{}] for arm in spec.arms}  # as they are written
        if spec.search.budget_per_arm:
            primary, search, confirm = spec.yardsticks.primary, spec.search, spec.confirm
            for arm in spec.arms:
                found = best_trials(self._history, arm, primary, confirm.top, search.cost, confirm.margin)
                best[arm] = [trial.configuration for trial in found]
        known: dict[tuple[str, str, int, float], TrialHistory] = {}
        numbers: dict[str, Iterator[int]] = {}
        for arm in spec.arms:
            trials = self._history.trials_of("confirm", arm)
            known |= {self._key(arm, t.configuration, t.seed, t.amount): t for t in trials}
            numbers[arm] = count(1 + max((trial.number for trial in trials), default=-1))
        for seed in confirm_seeds(spec):
            for rank in range(spec.confirm.top):
                for arm, configurations in best.items():
                    if rank < len(configurations):
                        configuration = configurations[rank]
                        run = known.get(self._key(arm, configuration, seed, None))
                        if run is None:
                            # Numbers go on from those that have begun: a study that is extended renames nothing.
                            yield planner.plan("confirm", arm, next(numbers[arm]), seed, configuration)
                        elif run.outcome is None:
                            yield planner.plan_again(run)

    def _key(
        self, arm: str, configuration: Mapping[str, Any], seed: int, amount: float | None
    ) -> tuple[str, str, int, float]:
        """What makes two runs the same; without an amount, of the present budget."""
        amount = self._spec.confirm_budget.amount if amount is None else amount
        return arm, json.dumps(configuration, sort_keys=True), seed, amount

    def next(self) -> PlannedTrial | None:
        """The next run; None while there is none that may begin."""
        if self.exhausted() or self._waits():
            return None
        run = self._pending.pop(0)
        self._running.add(run.trial)
        return run

    def ended(self, trial: TrialHistory, outcome: str) -> None:
        """Takes it from those that run."""
        self._running.discard(trial.trial)
        super().ended(trial, outcome)

    def exhausted(self) -> bool:
        """Whether all runs were started that are wanted and that the cap pays for: of a seed all arms' or none."""
        if not self._pending:
            return True
        return not self._waits() and (not self._cap_allows() or self._is_answered())

    def _has_begun(self, seed: int) -> bool:
        return any(trial.seed == seed for trial in self._current())

    def _is_owed(self, run: PlannedTrial) -> bool:
        """Whether the run has begun, or its seed has since an extension last changed which runs a seed has."""
        plans = self._history.plans
        begun = any(trial.seed == run.seed and trial.plan == plans for trial in self._current())
        return begun or run.trial in self._history.trials

    def _cap_allows(self) -> bool:
        return self._is_owed(self._pending[0]) or self.cap.allows_runs(self._next_arms())

    def _next_arms(self) -> list[str]:
        """The arms of the runs that the next seed is still to begin."""
        seed = self._pending[0].seed
        return [
            run.arm for run in self._pending if run.seed == seed and run.trial not in self._history.trials
        ]

    def _is_answered(self) -> bool:
        """Whether adaptive stopping wants the next seed no more."""
        seed = self._pending[0].seed
        return not self._has_begun(seed) and self._is_look(seed) and answered(self._history)

    def _current(self) -> list[TrialHistory]:
        """The runs of the present budget."""
        amount = self._spec.confirm_budget.amount
        return [t for t in self._history.trials_of("confirm") if t.amount in (None, amount)]

    def _is_look(self, seed: int) -> bool:
        """Whether adaptive stopping is asked before the seed begins."""
        stopping = self._spec.confirm.stopping
        return stopping is not None and confirm_seeds(self._spec).index(seed) >= stopping.minimum

    def _waits(self) -> bool:
        """Whether the next seed is not to begin before the runs of those before have ended."""
        seed = self._pending[0].seed
        if not self._running or self._is_owed(self._pending[0]):
            return False
        return self.cap.waits_for_costs("confirm") or (not self._has_begun(seed) and self._is_look(seed))

    def seeds_begun(self) -> int:
        """Seeds that were run, or are."""
        return len({trial.seed for trial in self._current()})

    def ended_early(self) -> str:
        """Why the study's cap ended confirmation, for a person; empty where it did not."""
        if not self._pending or self._is_answered() or self._cap_allows():
            return ""
        return self.cap.confirmation_ended(self.seeds_begun(), len(self._pending), self._next_arms())

    def sufficient_cap(self) -> float:
        """The cap that would pay for all runs that have not begun."""
        return self.cap.amount_for_runs(run.arm for run in self._pending)


class AnytimePhase(_WholeRuns):
    """Runs what left the completed confirmation runs, each to the end of its share of their budget."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        planner = Planner(spec, history, corpus)
        runs = []
        amount = spec.confirm_budget.amount
        for trunk in sorted(history.trials_of("confirm"), key=lambda trial: (trial.seed, trial.arm)):
            if trunk.outcome == "completed" and trunk.amount in (None, amount):
                for share in spec.confirm.anytime:
                    planned = planner.plan(
                        "anytime", trunk.arm, trunk.number, trunk.seed, trunk.configuration, share
                    )
                    known = history.trials.get(planned.trial)
                    if known is None or known.outcome is None:
                        runs.append(planned)
        super().__init__(planner, runs)
