"""The search of one arm: what an Optuna sampler suggests for it, with the halving of its trials.

All of it is a function of the study's seed and of what happened in the arm's search, in virtual time
(:mod:`orchestrator.scheduling.arm_search`): going through that again leads to the same next suggestion.
"""

import hashlib
import random
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.config.search import WIDENING, SearchSpec
from orchestrator.ledger.history import Arrived
from orchestrator.ledger.records import AttemptOutcome, Design
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.halving import Halving
from search_spaces import Categorical, Configuration, Dimension, Float, Space, is_same
from trainables.errors import InputError

optuna.logging.set_verbosity(optuna.logging.WARNING)

_VALUES_ALONE = ("gp", "cma_es")  # they look at complete trials only: of others they would suggest the like again
_EMPTY: dict[Any, Any] = {}  # one for thousands of trials; Optuna copies what it changes
_STATEFUL = ("cma_es", "qmc")  # they keep notes in Optuna's study: a search that is gone through again asks them again


class ArmSampler:
    """Suggests an arm's configurations, and knows where its trials stand.

    Args:
        arm: its name.
        space: what it varies.
        search: how it is searched.
        design: of the study.
        wanted: completed trials, at least.
        enqueued: configurations that a person chose, by the numbers of the trials that are to have them.
    """

    def __init__(
        self,
        arm: str,
        space: Space,
        search: SearchSpec,
        design: Design,
        wanted: int = 1,
        enqueued: Mapping[int, Configuration] | None = None,
    ) -> None:
        self._enqueued = enqueued or {}
        self.arm, self.space, self.search, self.seed = arm, space, search, design.seed
        self._declared = space
        self._best: tuple[int, float, int] | None = None  # (-rung, loss, number) of the one that came furthest
        self._configurations: list[Configuration] = []
        self._primary = design.yardsticks.primary
        self._higher_is_better = higher = not design.lower_is_better(self._primary)
        self.halving = Halving(search.halving, wanted, higher_is_better=higher)
        self._shown = _ShownTrials()
        self._study = optuna.create_study(storage=self._shown, direction=direction(higher))
        self.asked = 0  # trials so far
        self._grid: list[Configuration] = []  # points that are left
        if search.algorithm == "grid":
            self._grid = space.grid_beyond_first(search.grid_points)
            # A budget that ends early has seen all regions.
            random.Random(f"{self.seed}/{arm}").shuffle(self._grid)

    @property
    def exhausted(self) -> bool:
        """Whether a grid has no point left; other algorithms never end."""
        given = self.asked < len(self.space.first) or self.asked in self._enqueued
        return self.search.algorithm == "grid" and not self._grid and not given

    def begin(self, recorded: TrialHistory | None) -> None:
        """The arm's next trial begins: as it was recorded, else as it is given or the sampler suggests."""
        given = self._given()
        if recorded is None or self.search.algorithm in _STATEFUL:
            self._begin(self._ask(given))
            return
        running = create_trial(
            state=TrialState.RUNNING, params=recorded.configuration, distributions=self.distributions
        )
        self._study.add_trial(running)
        self._begin(dict(recorded.configuration))

    def configuration_of(self, number: int) -> Configuration:
        """Of a trial that has begun."""
        return self._configurations[number]

    def _given(self) -> Configuration | None:
        """What the next trial has of its configuration that is not the sampler's to suggest."""
        if self.asked < len(self.space.first):
            return self.space.first[self.asked]
        if self.asked in self._enqueued:
            chosen = self._enqueued[self.asked]
            self.space = self.space.including(chosen)
            self._grid = [point for point in self._grid if not is_same(point, chosen)]
            return chosen
        return self._grid.pop(0) if self._grid else None

    def _ask(self, given: Configuration | None) -> Configuration:
        if given is not None:
            self._study.enqueue_trial(dict(given))
        # Seeded anew for every trial: a suggestion depends on the trials before, and not on what this process drew.
        self._study.sampler = self._sampler(self._seed(self.asked))
        return dict(self._study.ask(self.distributions).params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The space in Optuna's terms, as wide as it is by now."""
        return distributions(self.space)

    def _begin(self, configuration: Configuration) -> None:
        self.halving.begin(self.asked)
        self._configurations.append(configuration)
        self.asked += 1

    def _came(self, number: int, rung: int, score: float) -> None:
        """Take in how a trial stands at a rung, or at its end. The next trials' space is wider where the best lies at a
        bound of it."""
        place = -rung, -score if self._higher_is_better else score, number
        if self._best is None or place < self._best:
            self._best = place
            if self.search.algorithm in WIDENING:
                self.space = self.space.widened(self._configurations[number], self._declared)

    def arrived(self, arrived: Arrived) -> None:
        """Take in how a trial stands at a rung, where it stops unless it is taken up: to the sampler it is pruned."""
        number, rung, score, progress = arrived
        if rung >= self.search.halving.rungs - 1:
            raise InputError(
                f"the ledger has a trial at rung {rung} of an arm that has {self.search.halving.rungs - 1} rungs",
                where=f"{self.arm}, trial {number}",
                remedy="h2h verify FOLDER; copy the folder again from where the study ran",
            )
        self.halving.arrive(number, rung, score, progress)
        self._came(number, rung, score)
        if self.search.algorithm in _VALUES_ALONE:
            self._shown.show(number, self._configurations[number], TrialState.COMPLETE, score)
        else:
            step = int(self.search.halving.reduction**rung)
            self._shown.show(number, self._configurations[number], TrialState.PRUNED, steps={step: score})

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        """Take in how a trial ended, and show the sampler what it learns the right thing from. TPE ranks pruned trials
        below complete ones by how far they came, and those without a value last: so diverged and failed ones are pruned
        to it before any value. GP and CMA-ES know complete trials only: to them a pruned trial is complete with its
        last score, a diverged or failed one with the worst of all. Of one that was lost nothing is learned."""
        number, score = trial.number, trial.score(self._primary)
        self._configurations[number] = trial.configuration  # the same, once in memory
        show = partial(self._shown.show, number, trial.configuration)
        self.halving.end(number, outcome, trial.progress)
        if outcome == "completed" and score is not None:
            self._came(number, self.search.halving.rungs - 1, score)
            show(TrialState.COMPLETE, score)
        elif outcome == "lost":
            show(TrialState.FAIL)
        else:
            worst = self._shown.worst(min if self._higher_is_better else max)
            known = worst is not None and self.search.algorithm in _VALUES_ALONE
            show(TrialState.COMPLETE if known else TrialState.PRUNED, worst if known else None)

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
                    constant_liar=search.parallel > 1,
                )
            if search.algorithm == "gp":
                return samplers.GPSampler(seed=seed, n_startup_trials=search.startup_trials, independent_sampler=alone)
            if search.algorithm == "cma_es":
                return samplers.CmaEsSampler(seed=seed, independent_sampler=alone, warn_independent_sampling=False)
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

    def __init__(self, distributions: dict[str, BaseDistribution], **options: bool | int) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._varied = {name: d for name, d in sorted(distributions.items()) if not d.single()}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._varied


class _ShownTrials(optuna.storages.InMemoryStorage):
    """Optuna's trials as a sampler is to see them: of one study, so their ids are their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._spaces: dict[tuple[tuple[str, BaseDistribution], ...], dict[str, BaseDistribution]] = {}

    def show(
        self,
        number: int,
        configuration: Configuration,
        state: TrialState,
        value: float | None = None,
        steps: Mapping[int, float] | None = None,
    ) -> None:
        """Show a trial so from now on."""
        shown = self.get_trial(number)  # the one that lies here, which nobody else changes
        # What it was run with, should another Optuna now suggest otherwise.
        shown.params = configuration
        space = shown.distributions  # one for all trials of it: thousands stay in memory
        shown.distributions = self._spaces.setdefault(tuple(space.items()), space)
        shown.state, shown.intermediate_values = state, dict(steps) if steps else _EMPTY
        shown.system_attrs, shown.user_attrs = shown.system_attrs or _EMPTY, _EMPTY
        shown.values = None if value is None else [value]

    def worst(self, worse: Callable[[Iterable[float]], float]) -> float | None:
        """The worst score of the complete trials; None where none is."""
        complete = self.get_all_trials(0, deepcopy=False, states=(TrialState.COMPLETE,))
        return worse(t.value for t in complete if t.value is not None) if complete else None


def direction(higher_is_better: bool) -> StudyDirection:
    """Optuna's direction of a yardstick."""
    return StudyDirection.MAXIMIZE if higher_is_better else StudyDirection.MINIMIZE


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """A search space in Optuna's terms."""
    return {name: _distribution(dimension) for name, dimension in space.dimensions.items()}


def _distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Categorical):
        return CategoricalDistribution(dimension.choices)
    if isinstance(dimension, Float):
        return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
    return IntDistribution(dimension.low, dimension.high, log=dimension.log)
