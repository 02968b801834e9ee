"""The phases that train: which trial comes next, and what its reports mean. Their state is the ledger's.

``search`` tunes every arm: the next trial goes to the arm that has spent least. ``confirm`` runs each arm's best
configurations again, at the whole budget, over seeds that all arms share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.arm_search import ArmSearch
from orchestrator.cap import Cap
from orchestrator.history import History, TrialHistory
from orchestrator.ledger import Record
from orchestrator.spec import StudySpec
from trainables.evaluation import YARDSTICKS
from trainables.training.loop import TrialConfig


@dataclass(frozen=True)
class PlannedTrial:
    """A trial to be started, or gone on with."""

    phase: str
    arm: str
    trial: str
    number: int
    seed: int
    configuration: Mapping[str, Any]
    attempt: int
    config: TrialConfig


class Phase(Protocol):
    """What the executor asks."""

    def next(self) -> PlannedTrial | None:
        """The next trial; None while there is none to start now."""

    def exhausted(self) -> bool:
        """Whether nothing is left to start."""

    def should_stop(self, trial: TrialHistory, measure: Record) -> bool:
        """Whether a trial ends at this report."""

    def ended(self, trial: TrialHistory) -> None:
        """A trial has its outcome."""


def search_seed(spec: StudySpec) -> int:
    """The seed of every search trial: configurations are compared on the same data and initial weights."""
    return spec.seed


def confirm_seeds(spec: StudySpec) -> list[int]:
    """The paired seeds; none is the search's."""
    return [spec.seed + 1 + index for index in range(spec.confirm.seeds)]


class Planner:
    """Makes trials of a study's configurations."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self.spec, self.history, self.corpus = spec, history, corpus

    def plan(
        self, phase: str, arm: str, number: int, seed: int, configuration: Mapping[str, Any]
    ) -> PlannedTrial:
        """The next attempt at an arm's trial of that number."""
        spec = self.spec
        name = f"{phase}-{arm}-{number:03d}"
        arm_spec = spec.arms[arm]
        known = self.history.trials.get(name)
        searching = phase == "search"
        curve = [(i + 1) / spec.confirm.evaluations for i in range(spec.confirm.evaluations - 1)]
        config = TrialConfig(
            trial=name,
            objective=arm_spec.objective,
            options=spec.options_of(arm_spec, configuration),
            model=arm_spec.model or spec.model,
            training=spec.training_of(arm_spec, configuration),
            budget=spec.budget,
            seed=seed,
            corpus=self.corpus,
            alpha=spec.corpora.alpha,
            maximum_repetition=spec.corpora.maximum_repetition,
            document_attention=spec.corpora.document_attention,
            evaluation=spec.yardsticks.evaluation,
            split="validation" if searching else "test",
            yardsticks=spec.yardsticks.names[:1] if searching else spec.yardsticks.names,
            rungs=spec.search.halving.fractions if searching else (),
            evaluations=() if searching else tuple(curve),
        )
        attempt = known.attempts + 1 if known else 1
        return PlannedTrial(phase, arm, name, number, seed, dict(configuration), attempt, config)

    def plan_again(self, trial: TrialHistory) -> PlannedTrial:
        """The next attempt at a trial that has begun."""
        return self.plan(trial.phase, trial.arm, trial.number, trial.seed, trial.configuration)


class SearchPhase:
    """Tunes every arm within its search budget. See the module."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self._spec, self._history = spec, history
        self._planner = Planner(spec, history, corpus)
        self.cap = Cap(spec, history)
        self._arms = {
            name: ArmSearch(
                name,
                arm.load_space(),
                spec.search,
                spec.yardsticks.primary,
                spec.seed,
                history.trials_of("search", name),
            )
            for name, arm in spec.arms.items()
        }
        self._waiting = [t for t in history.trials_of("search") if t.outcome is None]

    def spent(self, arm: str) -> float:
        """What the arm has spent, in trial budgets."""
        budget = self._spec.budget
        return self._history.spent("search", arm, budget.unit) / budget.amount

    def _running(self, arm: str) -> list[TrialHistory]:
        waiting = {trial.trial for trial in self._waiting}
        trials = self._history.trials_of("search", arm)
        return [t for t in trials if t.outcome is None and t.trial not in waiting]

    def _affordable(self, arm: str) -> bool:
        return self._has_budget(arm) and self.cap.allows_search_trial(arm)

    def ended_early(self) -> str:
        """Why the study's cap ended the search, for a person; empty where it did not."""
        return self.cap.search_ended() if any(map(self._has_budget, self._arms)) else ""

    def _has_budget(self, arm: str) -> bool:
        # A trial is begun only if the arm can pay for all of it, and for what those that run may still spend. A clock
        # is read after a step: the moment by which a trial came out longer than its budget costs the arm no trial.
        owed = sum(1.0 - trial.progress for trial in self._running(arm))
        paid = sum(trial.progress for trial in self._history.trials_of("search", arm))
        return paid + owed + 1.0 <= self._spec.search.budget_per_arm + 1e-9

    def next(self) -> PlannedTrial | None:
        """The next trial of the arm that has spent least; trials of an earlier session are gone on with first.

        While the arm that has spent least cannot start another (its trials run), the others wait for it: so no arm
        is ever ahead by more than a trial's budget (with ``concurrent_per_arm``, by more than that many).
        """
        if self._waiting:
            return self._planner.plan_again(self._waiting.pop(0))
        open_arms = [arm for arm in self._arms if self._affordable(arm)]
        if not open_arms:
            return None
        unfinished = [arm for arm in self._arms if arm in open_arms or self._running(arm)]
        least = min(self.spent(arm) for arm in unfinished)
        for arm in open_arms:
            if self.spent(arm) <= least and len(self._running(arm)) < self._spec.search.concurrent_per_arm:
                number = len(self._history.trials_of("search", arm))
                configuration = self._arms[arm].ask(number)
                return self._planner.plan("search", arm, number, search_seed(self._spec), configuration)
        return None

    def exhausted(self) -> bool:
        """Whether no arm can pay for another trial."""
        return not self._waiting and not any(self._affordable(arm) for arm in self._arms)

    def should_stop(self, trial: TrialHistory, measure: Record) -> bool:
        """Successive halving, inside the trial's own arm."""
        return self._arms[trial.arm].should_stop(trial.number, measure)

    def ended(self, trial: TrialHistory) -> None:
        """Tells the arm's Optuna study; a failed attempt that may be repeated waits for its next."""
        if trial.outcome is None:
            self._waiting.append(trial)
        else:
            self._arms[trial.arm].tell(trial)


def best_trials(history: History, arm: str, yardstick: str, top: int) -> list[TrialHistory]:
    """The arm's best completed search trials, best first; pruned ones never finished and are not among them."""
    completed = [t for t in history.trials_of("search", arm) if t.outcome == "completed"]
    scored = [(score, t) for t in completed if (score := t.score(yardstick)) is not None]
    sign = -1 if YARDSTICKS[yardstick].higher_is_better else 1
    return [t for _, t in sorted(scored, key=lambda pair: (sign * pair[0], pair[1].number))[:top]]


class ConfirmPhase:
    """Runs each arm's best configurations over the paired seeds, a seed of all arms before the next seed."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        planner = Planner(spec, history, corpus)
        self._history = history
        self.cap = Cap(spec, history)
        seeds = confirm_seeds(spec)
        best: dict[str, list[Mapping[str, Any]]] = {arm: [{}] for arm in spec.arms}  # as they are written
        if spec.search.budget_per_arm:
            primary, top = spec.yardsticks.primary, spec.confirm.top
            best = {
                arm: [trial.configuration for trial in best_trials(history, arm, primary, top)]
                for arm in spec.arms
            }
        self._pending: list[PlannedTrial] = []
        for index, seed in enumerate(seeds):
            for rank in range(spec.confirm.top):
                for arm, configurations in best.items():
                    if rank < len(configurations):
                        number = rank * len(seeds) + index
                        planned = planner.plan("confirm", arm, number, seed, configurations[rank])
                        known = history.trials.get(planned.trial)
                        if known is None or known.outcome is None:
                            self._pending.append(planned)
        self._planner = planner

    def next(self) -> PlannedTrial | None:
        """The next run; None while there is none that the study's cap pays for."""
        return None if self.exhausted() else self._pending.pop(0)

    def exhausted(self) -> bool:
        """Whether all runs were started that the study's cap pays for: of a seed all arms' or none."""
        return not self._pending or not self.cap.allows_seed(self._pending[0].seed)

    def seeds_begun(self) -> int:
        """Seeds that were run, or are."""
        return len({trial.seed for trial in self._history.trials_of("confirm")})

    def ended_early(self) -> str:
        """Why the study's cap ended confirmation, for a person; empty where it did not."""
        return self.cap.confirmation_ended(self.seeds_begun()) if self._pending else ""

    def should_stop(self, trial: TrialHistory, measure: Record) -> bool:
        """Never: confirmation runs spend their whole budget."""
        return False

    def ended(self, trial: TrialHistory) -> None:
        """A failed attempt that may be repeated goes back to the front."""
        if trial.outcome is None:
            self._pending.insert(0, self._planner.plan_again(trial))
