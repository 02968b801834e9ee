"""The search of one arm: an Optuna study whose state is a pure function of the arm's trials in the ledger."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import TrialState

from orchestrator.history import TrialHistory
from orchestrator.ledger import Record
from orchestrator.spec import SearchSpec
from search_spaces import Categorical, Dimension, Float, Space
from trainables.evaluation import YARDSTICKS

optuna.logging.set_verbosity(optuna.logging.WARNING)

_OUTCOMES = {"completed": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
"""All else is a failure to Optuna."""


class ArmSearch:
    """Suggests an arm's configurations and decides at rungs which trials go on.

    Args:
        arm: its name.
        space: what may vary.
        search: how it is searched.
        yardstick: the primary one; it says whether higher or lower is better.
        seed: of the study.
        trials: the arm's trials so far, from the ledger, by number. All are lived through again; those that have
            not ended wait to be gone on with.
    """

    def __init__(
        self,
        arm: str,
        space: Space,
        search: SearchSpec,
        yardstick: str,
        seed: int,
        trials: list[TrialHistory] | None = None,
    ) -> None:
        self.arm, self.space, self.search, self.yardstick, self.seed = arm, space, search, yardstick, seed
        self.distributions = {name: _distribution(d) for name, d in space.dimensions.items()}
        # The rung's number counts as the resource: min 1, then times the reduction, as the rungs' budgets do.
        pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=1, reduction_factor=search.halving.reduction
        )
        higher = YARDSTICKS[yardstick].higher_is_better
        direction = StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE
        self._study = optuna.create_study(direction=direction, pruner=pruner)
        self._running: dict[int, optuna.Trial] = {}
        self._condemned: set[int] = set()
        self._judged: set[tuple[int, int]] = set()
        for trial in trials or []:
            self.adopt(trial)
            if trial.outcome is not None:
                self.tell(trial)

    @property
    def optuna_study(self) -> optuna.Study:
        """The Optuna study, for looking at."""
        return self._study

    def ask(self, number: int) -> dict[str, Any]:
        """The configuration of the arm's trial of that number.

        The sampler is seeded anew for every trial, so that what it suggests depends on the trials before, and not
        on what this process happened to draw.
        """
        seed = int.from_bytes(
            hashlib.blake2b(f"{self.seed}/{self.arm}/{number}".encode(), digest_size=4).digest()
        )
        self._study.sampler = self._sampler(seed)
        if number < len(self.space.first):
            self._study.enqueue_trial(dict(self.space.first[number]))
        trial = self._study.ask(self.distributions)
        self._running[number] = trial
        return dict(trial.params)

    def adopt(self, trial: TrialHistory) -> None:
        """Live again through a trial that an earlier session began, up to its last report."""
        self._study.enqueue_trial(trial.configuration)
        self._running[trial.number] = optuna_trial = self._study.ask(self.distributions)
        for measure in trial.evaluations:
            if measure["rung"] is not None:
                self._report(optuna_trial, measure)
                self._judged.add((trial.number, measure["rung"]))
                # It leaves the pruner's note of the rung's value, by which later trials are judged. The last verdict
                # may have been cut off before it was written: it is carried out when the trial reports again.
                if optuna_trial.should_prune() and trial.outcome is None:
                    self._condemned.add(trial.number)

    def should_stop(self, number: int, measure: Record) -> bool:
        """Whether a trial that reports from a rung is not among the best there, and stops.

        A trial that was resumed repeats the report of its checkpoint: it is judged there once.
        """
        if number in self._condemned:
            return True
        if measure["rung"] is None or not measure["yardsticks"]:
            return False
        if (number, measure["rung"]) in self._judged:
            return False
        self._judged.add((number, measure["rung"]))
        trial = self._running[number]
        self._report(trial, measure)
        return trial.should_prune()

    def tell(self, trial: TrialHistory) -> None:
        """Take in a trial's outcome: a stopped trial is pruned, with its values, and never complete."""
        state = _OUTCOMES.get(trial.outcome or "", TrialState.FAIL)
        value = trial.score(self.yardstick) if state == TrialState.COMPLETE else None
        self._study.tell(self._running.pop(trial.number), value, state)

    def _report(self, trial: optuna.Trial, measure: Record) -> None:
        trial.report(
            measure["yardsticks"][self.yardstick]["overall"],
            step=self.search.halving.reduction ** measure["rung"],
        )

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        if self.search.algorithm == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # constant_liar: running trials count as bad, so that trials side by side do not try the same.
            return optuna.samplers.TPESampler(
                seed=seed,
                n_startup_trials=self.search.startup_trials,
                multivariate=True,
                constant_liar=self.search.concurrent_per_arm > 1,
            )


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Categorical):
        return CategoricalDistribution(dimension.choices)
    if isinstance(dimension, Float):
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    return IntDistribution(dimension.low, dimension.high, log=dimension.log)
