"""The search of one arm: what an Optuna sampler suggests for it, and which of its trials go on at the rungs.

All of it is a function of the study's seed and of the arm's records in the ledger, in their order: living through
them again leads to where an earlier session was, and to the same next suggestion.
"""

from __future__ import annotations

import copy
import hashlib
import random
import warnings
from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from orchestrator.config.study import SearchSpec
from orchestrator.ledger.history import TrialHistory
from orchestrator.ledger.segments import Record
from orchestrator.scheduling.halving import Rungs
from search_spaces import Categorical, Dimension, Float, Space
from trainables.evaluation import find_yardstick

optuna.logging.set_verbosity(optuna.logging.WARNING)

Verdict = Literal["pruned", "paused"]

_VALUES_ALONE = ("gp", "cma_es")
"""Optuna's samplers that look at complete trials only: of others they would suggest the like again and again."""
_STATEFUL = ("cma_es", "qmc")
"""Samplers that keep notes in Optuna's study: they are asked again when a search is lived through again."""


class ArmSearch:
    """Suggests an arm's configurations and decides at rungs which trials go on.

    Args:
        arm: its name.
        space: what may vary.
        search: how it is searched.
        yardstick: the primary one; it says whether higher or lower is better.
        seed: of the study.
    """

    def __init__(self, arm: str, space: Space, search: SearchSpec, yardstick: str, seed: int) -> None:
        self.arm, self.space, self.search, self.yardstick, self.seed = arm, space, search, yardstick, seed
        self.distributions = distributions(space)
        self.rungs = Rungs(
            search.halving.rungs - 1,
            search.halving.reduction,
            higher_is_better=find_yardstick(yardstick).higher_is_better,
        )
        self._shown = _ShownTrials()
        self._study = optuna.create_study(storage=self._shown, directions=directions(search, yardstick))
        self._asked = 0
        self._verdicts: dict[tuple[int, int], Verdict | None] = {}
        self._last: dict[int, tuple[int, float]] = {}  # a trial's last rung, and its value there
        self._grid: list[dict[str, Any]] = []
        if search.algorithm == "grid":
            self._grid = space.grid_beyond_first(search.grid_points)
            random.Random(f"{seed}/{arm}").shuffle(
                self._grid
            )  # a budget that ends early has seen all regions

    def relive(self, records: Iterable[Record], trials: Mapping[str, TrialHistory]) -> None:
        """Go again through what an earlier session did.

        Args:
            records: the arm's ``trial`` and ``end`` records and those of its ``measure`` records that are at a rung.
            trials: what became of them, by name.
        """
        for record in records:
            trial = trials[record["trial"]]
            if record["kind"] == "measure":
                self.verdict(trial.number, record)
            elif record["kind"] == "end":
                self.ended(trial, record["outcome"])
            elif trial.number == self._asked:
                self._adopt(trial)
            else:
                self.go_on(trial.number)

    @property
    def exhausted(self) -> bool:
        """Whether a grid has no point left; other algorithms never end."""
        return self.search.algorithm == "grid" and self._asked >= len(self.space.first) + len(self._grid)

    def ask(self) -> dict[str, Any]:
        """The configuration of the arm's next trial."""
        number = self._asked
        beyond = number - len(self.space.first)
        if beyond < 0:
            self._study.enqueue_trial(dict(self.space.first[number]))
        elif self._grid:
            self._study.enqueue_trial(self._grid[beyond])
        # Seeded anew for every trial: a suggestion depends on the trials before, and not on what this process drew.
        self._study.sampler = self._sampler(self._seed(number))
        self._asked += 1
        return dict(self._study.ask(self.distributions).params)

    def _adopt(self, trial: TrialHistory) -> None:
        """Take a trial of an earlier session for what was asked for here."""
        if self.search.algorithm in _STATEFUL:
            self.ask()
            return
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.RUNNING, params=trial.configuration, distributions=self.distributions
            )
        )
        self._asked += 1

    def verdict(self, number: int, measure: Record) -> Verdict | None:
        """Whether a trial that reports from a rung ends there for now or for good; None: it goes on.

        A trial that was resumed repeats the report of its checkpoint: what was decided then stands, also if the
        study was cut off before it was carried out.
        """
        rung = measure["rung"]
        if rung is None or not measure["yardsticks"]:
            return None
        if (number, rung) not in self._verdicts:
            value = float(measure["yardsticks"][self.yardstick]["overall"])
            self._last[number] = rung, value
            among_best = self.rungs.arrive(number, rung, value)
            pausing = self.search.halving.kind == "promotion"
            self._verdicts[number, rung] = "paused" if pausing else None if among_best else "pruned"
        return self._verdicts[number, rung]

    def go_on(self, number: int) -> None:
        """A trial begins another attempt: promoted if it was paused, else as it was cut off."""
        if number in self.rungs.paused:
            self._verdicts[number, self.rungs.paused.pop(number)] = None

    def ended(self, trial: TrialHistory, outcome: str) -> None:
        """Take in how an attempt ended.

        The sampler is shown what it learns the right thing from. TPE ranks pruned trials below complete ones by how
        far they came, and those without a value last: so paused trials are pruned ones to it, and diverged and failed
        ones are pruned before any value. GP and CMA-ES know complete trials only: to them a trial that ended early
        is complete with its last value, a diverged or failed one with the worst of all values. What Optuna's own
        file says of them is another matter (see ``orchestrator.scheduling.optuna_file``).
        """
        number = trial.number
        values = objectives_of(trial, self.search, self.yardstick) if outcome == "completed" else None
        if values is not None:
            self._shown.show(trial, TrialState.COMPLETE, values)
        elif outcome in ("pruned", "paused"):
            rung, value = self._last[number]
            if self.search.algorithm in _VALUES_ALONE:
                self._shown.show(trial, TrialState.COMPLETE, [value])
            else:
                self._shown.show(trial, TrialState.PRUNED, steps={rung_step(self.search, rung): value})
            if outcome == "paused":
                self.rungs.paused[number] = rung
        elif outcome in ("completed", "diverged", "failed"):
            # One that is complete comes here where its machine did not tell the cost.
            worst = self._shown.worst() if self.search.algorithm in _VALUES_ALONE else None
            self._shown.show(trial, TrialState.COMPLETE if worst else TrialState.PRUNED, worst)

    def _seed(self, purpose: object) -> int:
        text = f"{self.seed}/{self.arm}/{purpose}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        search, samplers = self.search, optuna.samplers
        alone = samplers.RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if search.algorithm == "tpe":
                # constant_liar: running trials count as bad, so that trials side by side do not try the same.
                return _TpeOfFixedSpace(
                    self.distributions,
                    seed=seed,
                    n_startup_trials=search.startup_trials,
                    multivariate=True,
                    constant_liar=search.concurrent_per_arm > 1,
                )
            if search.algorithm == "gp":
                return samplers.GPSampler(
                    seed=seed, n_startup_trials=search.startup_trials, independent_sampler=alone
                )
            if search.algorithm == "cma_es":
                return samplers.CmaEsSampler(
                    seed=seed, independent_sampler=alone, warn_independent_sampling=False
                )
            if search.algorithm == "qmc":
                return samplers.QMCSampler(
                    scramble=True,
                    seed=self._seed("sequence"),  # of the whole sequence; Optuna counts the points
                    independent_sampler=alone,
                    warn_independent_sampling=False,
                )
        return alone


class _TpeOfFixedSpace(optuna.samplers.TPESampler):
    """TPE that is told the space: to infer it, it compares all trials, which takes longer than to sample."""

    def __init__(self, distributions: dict[str, BaseDistribution], **options: Any) -> None:
        super().__init__(**options)
        self._varied = {name: d for name, d in sorted(distributions.items()) if not d.single()}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Optuna's interface."""
        return self._varied


class _ShownTrials(optuna.storages.InMemoryStorage):
    """Optuna's trials as a sampler is to see them: one that is paused seems to have ended, until it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[int, FrozenTrial] = {}

    def show(
        self,
        trial: TrialHistory,
        state: TrialState,
        values: list[float] | None = None,
        steps: Mapping[int, float] | None = None,
    ) -> None:
        """Show a trial so from now on. One study has all the trials, so their ids are their numbers."""
        shown = copy.copy(self.get_trial(trial.number))
        shown.params = dict(
            trial.configuration
        )  # what it was run with, should another Optuna now suggest otherwise
        shown.state, shown.values, shown.intermediate_values = state, values, dict(steps or {})
        self._shown[trial.number] = shown

    def worst(self) -> list[float] | None:
        """The worst that complete trials came to, by objective; None where none is complete."""
        values = [t.values for t in self._shown.values() if t.state == TrialState.COMPLETE]
        directions = self.get_study_directions(0)
        return (
            [
                (min if direction == StudyDirection.MAXIMIZE else max)(column)
                for direction, column in zip(directions, zip(*values, strict=True), strict=True)
            ]
            if values
            else None
        )

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Optuna's interface."""
        if states == (TrialState.WAITING,):
            return list(super().get_all_trials(study_id, deepcopy, states))
        trials = [self._shown.get(t.number, t) for t in super().get_all_trials(study_id, deepcopy=False)]
        trials = [t for t in trials if states is None or t.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


def rung_step(search: SearchSpec, rung: int) -> int:
    """Optuna's step of a rung: its budget in units of the first rung's."""
    return int(search.halving.reduction**rung)


def directions(search: SearchSpec, yardstick: str) -> list[StudyDirection]:
    """Optuna's directions: of the primary yardstick, and of the cost where it is an objective too."""
    higher = find_yardstick(yardstick).higher_is_better
    primary = StudyDirection.MAXIMIZE if higher else StudyDirection.MINIMIZE
    return [primary] if search.cost is None else [primary, StudyDirection.MINIMIZE]


def objectives_of(trial: TrialHistory, search: SearchSpec, yardstick: str) -> list[float] | None:
    """What a trial came to, by objective; None where its yardstick was never taken, or its cost is not known."""
    score = trial.score(yardstick)
    if score is None:
        return None
    if search.cost is None:
        return [score]
    return [score, trial.spent[search.cost]] if search.cost in trial.spent else None


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """A search space in Optuna's terms."""
    return {name: _distribution(dimension) for name, dimension in space.dimensions.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Categorical):
        return CategoricalDistribution(dimension.choices)
    if isinstance(dimension, Float):
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    return IntDistribution(dimension.low, dimension.high, log=dimension.log)
