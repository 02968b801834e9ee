"""What is to be trained next: a planned trial, the phases that plan them, and what all of them share."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.config.folder import tasks_in
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import AttemptOutcome, DecisionRecord, MeasureRecord, TrainingPhase
from orchestrator.ledger.trials import TrialHistory, trial_name
from search_spaces import Configuration, Setting
from trainables.storage import Location
from trainables.training.config import Branch, TrialConfig


@dataclass(frozen=True)
class PlannedTrial:
    """A trial to be started, or gone on with."""

    phase: TrainingPhase
    arm: str
    trial: str
    number: int
    seed: int
    configuration: Configuration
    attempt: int
    config: TrialConfig
    share: float | None = None  # of a branch: the share of its confirmation run's budget at which it is compared


class PhaseOfTrials(Protocol):
    """A phase that trains: what the executor asks of it."""

    def next(self) -> PlannedTrial | None:
        """The next trial; None while there is none to start now."""

    def exhausted(self) -> bool:
        """Whether nothing is left to start."""

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        """Whether a trial ends at this report."""

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        """An attempt has ended."""

    def decisions(self) -> Iterable[DecisionRecord]:
        """What was decided since this was last asked for, to be written down before it is carried out."""

    def ended_early(self) -> str:
        """Why the study's cap ended the phase, for a person; empty where it did not."""


class WritesDecisions:
    """A phase of which each decision is written down, by ``write``, before anything acts on it."""

    def __init__(self, phase: PhaseOfTrials, write: Callable[[DecisionRecord], None]) -> None:
        self._phase, self._write = phase, write
        self.exhausted, self.ended_early = phase.exhausted, phase.ended_early

    def next(self) -> PlannedTrial | None:
        """The next trial; None while there is none to start now."""
        planned = self._phase.next()
        self._write_down()
        return planned

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        """Whether a trial ends at this report."""
        stops = self._phase.prunes(trial, measure)
        self._write_down()
        return stops

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        """An attempt has ended."""
        self._phase.ended(trial, outcome)
        self._write_down()

    def _write_down(self) -> None:
        for record in self._phase.decisions():
            self._write(record)


class Planner:
    """Makes trials of a study's configurations."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self.spec, self.history, self.corpus = spec, history, corpus

    def plan(
        self,
        phase: TrainingPhase,
        arm: str,
        number: int,
        seed: int,
        configuration: Mapping[str, Setting],
        share: float | None = None,
    ) -> PlannedTrial:
        """The next attempt at an arm's trial of that number; ``share``: of a branch, where it is compared."""
        name, searching = trial_name(phase, arm, number, share), phase == "search"
        spec, own = self.spec, self.spec.arms[arm]
        training = spec.training_of(arm, configuration)
        evaluations, stable = spec.confirm.evaluations, training.stable_share
        branches = tuple(
            Branch(trial=trial_name("anytime", arm, number, at), progress=at * stable) for at in spec.confirm.anytime
        )
        budget = spec.budget if searching else spec.confirm_budget
        if share is not None:
            budget = budget.scaled(share)
            # As long as the longer run's.
            training = training.model_copy(update={"warmup": training.warmup / share})
        prepared, storage = self.history.tasks, Location(self.corpus).parent.parent
        evaluation = spec.yardsticks.evaluation
        if prepared is not None:
            evaluation = evaluation.model_copy(update={"task_items": prepared.items})
        config = TrialConfig(
            trial=name,
            objective=own.objective,
            options=own.options_with(configuration),
            model=own.model or spec.model,
            training=training,
            budget=budget,
            seed=seed,
            corpus=self.corpus,
            alpha=spec.corpora.alpha,
            maximum_repetition=spec.corpora.maximum_repetition,
            document_attention=spec.corpora.document_attention,
            evaluation=evaluation,
            tasks=None if prepared is None else str(tasks_in(storage) / prepared.digest),
            split="validation" if searching else "test",
            yardsticks=spec.yardsticks.names[:1] if searching else spec.yardsticks.names,
            rungs=spec.search.halving.fractions if searching else (),
            evaluations=tuple((i + 1) / evaluations for i in range(evaluations - 1)) if phase == "confirm" else (),
            branches=branches if phase == "confirm" else (),
            floors=phase == "confirm" and self._measures_floors(arm, seed),
        )
        known = self.history.trials.get(name)
        attempt = known.attempts + 1 if known else 1
        return PlannedTrial(phase, arm, name, number, seed, dict(configuration), attempt, config, share)

    def _measures_floors(self, arm: str, seed: int) -> bool:
        """Whether a confirmation run is to measure the arm's floors: that of the first seed, else any once it ended."""
        runs = self.history.trials_of("confirm", arm)
        if any(run.floors for run in runs):
            return False
        first = self.spec.seed + 1
        return seed == first or any(run.seed == first and run.outcome is not None for run in runs)

    def plan_again(self, trial: TrialHistory) -> PlannedTrial:
        """The next attempt at a trial that has begun."""
        return self.plan(trial.phase, trial.arm, trial.number, trial.seed, trial.configuration, trial.share)
