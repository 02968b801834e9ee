"""What a phase that trains is, and the search. The state of every phase is the ledger's.

``search`` tunes every arm: the next trial goes to the arm that has spent least. The phases after it are in
:mod:`orchestrator.scheduling.confirmation`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.ledger.segments import Record
from orchestrator.scheduling.sampler import ArmSearch, Verdict
from orchestrator.scheduling.search_budget import TOLERANCE, Account
from orchestrator.scheduling.study_budget import Cap
from trainables.evaluation import find_yardstick
from trainables.training.config import Branch, TrialConfig


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
    share: float | None = None
    """Of the budget of the run that it leaves on its way."""


class Phase(Protocol):
    """What the executor asks."""

    def next(self) -> PlannedTrial | None:
        """The next trial; None while there is none to start now."""

    def exhausted(self) -> bool:
        """Whether nothing is left to start."""

    def verdict(self, trial: TrialHistory, measure: Record) -> Verdict | None:
        """Whether a trial ends at this report, for now or for good; None: it goes on."""

    def ended(self, trial: TrialHistory, outcome: str) -> None:
        """An attempt has ended."""

    def left_over(self) -> list[TrialHistory]:
        """The trials that never come to an end of their own, once nothing is left to start."""

    def ended_early(self) -> str:
        """Why the study's cap ended the phase, for a person; empty where it did not."""


def trial_name(phase: str, arm: str, number: int, share: float | None = None) -> str:
    """A trial's name: its ledger records and its folder are under it.

    Args:
        phase: as the ledger calls it.
        arm: its arm.
        number: among the arm's trials of the phase.
        share: of the budget, for a run that leaves a longer one on its way.
    """
    return f"{phase}-{arm}-{number:03d}" + ("" if share is None else f"-at-{share:g}")


def search_seed(spec: StudySpec) -> int:
    """The seed of every search trial: configurations are compared on the same data and initial weights."""
    return spec.seed


class Planner:
    """Makes trials of a study's configurations."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self.spec, self.history, self.corpus = spec, history, corpus

    def plan(
        self,
        phase: str,
        arm: str,
        number: int,
        seed: int,
        configuration: Mapping[str, Any],
        share: float | None = None,
    ) -> PlannedTrial:
        """The next attempt at an arm's trial of that number.

        Args:
            phase: ``search``, ``confirm`` or ``anytime``.
            arm: its arm.
            number: among the arm's trials of the phase; of ``anytime``, that of the confirmation run it leaves.
            seed: of data and weights.
            configuration: the searched settings' values.
            share: of the confirmation run's budget, for ``anytime``.
        """
        spec, searching = self.spec, phase == "search"
        name = trial_name(phase, arm, number, share)
        arm_spec = spec.arms[arm]
        training = spec.training_of(arm_spec, configuration)
        budget = spec.budget if searching else spec.confirm_budget
        curve: tuple[float, ...] = ()
        branches: tuple[Branch, ...] = ()
        if phase == "confirm":
            curve = tuple((i + 1) / spec.confirm.evaluations for i in range(spec.confirm.evaluations - 1))
            branches = tuple(
                Branch(trial=trial_name("anytime", arm, number, at), progress=at * training.stable_share)
                for at in spec.confirm.anytime
            )
        if share is not None:
            budget = budget.scaled(share)
            training = training.model_copy(
                update={"warmup": training.warmup / share}
            )  # as long as the longer run's
        config = TrialConfig(
            trial=name,
            objective=arm_spec.objective,
            options=spec.options_of(arm_spec, configuration),
            model=arm_spec.model or spec.model,
            training=training,
            budget=budget,
            seed=seed,
            corpus=self.corpus,
            alpha=spec.corpora.alpha,
            maximum_repetition=spec.corpora.maximum_repetition,
            document_attention=spec.corpora.document_attention,
            evaluation=spec.yardsticks.evaluation,
            split="validation" if searching else "test",
            yardsticks=spec.yardsticks.names[:1] if searching else spec.yardsticks.names,
            rungs=spec.search.halving.fractions if searching else (),
            pauses=searching and spec.search.halving.kind == "promotion",
            evaluations=curve,
            branches=branches,
        )
        known = self.history.trials.get(name)
        attempt = known.attempts + 1 if known else 1
        return PlannedTrial(phase, arm, name, number, seed, dict(configuration), attempt, config, share)

    def plan_again(self, trial: TrialHistory) -> PlannedTrial:
        """The next attempt at a trial that has begun."""
        return self.plan(trial.phase, trial.arm, trial.number, trial.seed, trial.configuration, trial.share)


class SearchPhase:
    """Tunes every arm within its search budget. See the module."""

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self._spec, self._history = spec, history
        self._planner = Planner(spec, history, corpus)
        self.cap = Cap(spec, history)
        self._searches: dict[str, ArmSearch] = {}
        self._accounts: dict[str, Account] = {}
        for name, arm in spec.arms.items():
            search = ArmSearch(name, arm.load_space(), spec.search, spec.yardsticks.primary, spec.seed)
            search.relive(history.search.get(name, ()), history.trials)
            trials = history.trials_of("search", name)
            self._searches[name] = search
            records = history.search.get(name, ())
            self._accounts[name] = Account(spec.budget, spec.search.halving, trials, records)
        self._waiting = [t for t in history.trials_of("search") if t.outcome is None and not t.paused]

    def next(self) -> PlannedTrial | None:
        """The next trial of the arm that has spent least; trials of an earlier session are gone on with first.

        While the arm that has spent least cannot start another (its trials run), the others go on only as far as
        they may spend without being ahead of it by more than a trial's budget (with ``concurrent_per_arm``, by more
        than that many). That also holds at the end: where an arm can go no further, with its grid at an end or
        nothing but broken trials, the others soon end too.
        """
        if self._waiting:
            return self._planner.plan_again(self._waiting.pop(0))
        arm = self._next_arm()
        if arm is None:
            return None
        search, account = self._searches[arm], self._accounts[arm]
        promoted = self._promoted(arm)
        if promoted is not None:
            trial = self._history.trials[trial_name("search", arm, promoted)]
            search.go_on(promoted)
            account.revive(trial)
            return self._planner.plan_again(trial)
        number = account.begun
        account.begin(trial_name("search", arm, number))
        return self._planner.plan("search", arm, number, search_seed(self._spec), search.ask())

    def ended_early(self) -> str:
        """Why the study's cap ended the search, for a person; empty where it did not."""
        return self.cap.search_ended() if self._next_arm(capped=False) is not None else ""

    def sufficient_cap(self) -> float:
        """The cap that would pay for all that the arms may still spend, and for the confirmation."""
        totals = {name: account.totals(self._history.trials) for name, account in self._accounts.items()}
        budget = self._spec.search.budget_per_arm
        return self.cap.amount_for_search({arm: budget - t.paid - t.owed for arm, t in totals.items()})

    def _next_arm(self, *, capped: bool = True) -> str | None:
        concurrent = self._spec.search.concurrent_per_arm
        totals = {name: account.totals(self._history.trials) for name, account in self._accounts.items()}
        least = min(total.spent for total in totals.values())
        for arm, total in sorted(totals.items(), key=lambda item: item[1].spent):
            part = self._part(arm)
            if part is None or len(self._accounts[arm].live) >= concurrent:
                continue
            committed, cost = total.paid + total.owed, part[1] - part[0]
            balanced = total.spent + total.owed + cost <= least + concurrent + TOLERANCE
            # A trial is begun only if the arm can pay for all of it, and for what those that run may still spend; and
            # for what brings its first trial to the end, unless broken trials have made that too dear already.
            left = self._spec.search.budget_per_arm + TOLERANCE - committed
            finishing = self._finishing(arm, part[1]) if self._finishing(arm) <= left else 0.0
            affordable = cost + finishing <= left
            if balanced and affordable and (not capped or self._cap_allows(arm, part)):
                return arm
        return None

    def _part(self, arm: str) -> tuple[float, float] | None:
        """From where to where, at most, the arm's next trial or its next part goes; None if the arm has no next."""
        account, promoted = self._accounts[arm], self._promoted(arm)
        if promoted is not None:
            progress = self._history.trials[trial_name("search", arm, promoted)].progress
            return progress, account.target(progress)
        return None if self._begins_no_more(arm) else (0.0, account.target())

    def _begins_no_more(self, arm: str) -> bool:
        """Whether the arm has no new configuration to try."""
        return self._accounts[arm].hopeless or self._searches[arm].exhausted

    def _promoted(self, arm: str) -> int | None:
        """The paused trial that goes on next, if one does.

        An arm that has no new configuration to try and no trial that came to its end, as broken ones were too many for
        the rule, brings the best of those that came furthest there.
        """
        rungs, account = self._searches[arm].rungs, self._accounts[arm]
        promoted = None if account.hopeless else rungs.promotable()
        if promoted is None and self._begins_no_more(arm) and not account.completed and not account.live:
            return rungs.furthest()
        return promoted

    def _cap_allows(self, arm: str, part: tuple[float, float]) -> bool:
        finishing = {name: self._finishing(name) for name in self._accounts}
        if self._finishing(arm, part[1]) < finishing[arm]:
            # It is among them: what the rest will cost is an estimate, early in a search a bad one, and ends none.
            finishing = dict.fromkeys(finishing, 0.0)
        return self.cap.allows_search_trial(arm, part[1] - part[0], finishing)

    def _finishing(self, arm: str, end: float | None = None) -> float:
        """What an arm must still begin, in trial budgets, until promotion brings its first trial to the end.

        Args:
            arm: its name.
            end: where a part ends that the arm begins before; None: it begins none.
        """
        account, halving = self._accounts[arm], self._spec.search.halving
        if halving.kind == "stopping" or account.completed or 1.0 in account.live.values():
            return 0.0
        ends = (*halving.fractions, 1.0)
        if self._begins_no_more(arm):
            waiting = [halving.fractions[rung] for rung in self._searches[arm].rungs.paused.values()]
            furthest = max([end or 0.0, *account.live.values(), *waiting])
            return 1.0 - furthest if furthest else 0.0
        coming = Counter(ends.index(target) for target in account.live.values())
        missing = dict(zip(ends, [*self._searches[arm].rungs.missing(coming), 1], strict=True))
        if end is not None:
            missing[end] = max(0, missing[end] - 1)
        return sum(missing[after] * (after - before) for before, after in pairwise((0.0, *ends)))

    def exhausted(self) -> bool:
        """Whether no arm can go on."""
        live = any(account.live for account in self._accounts.values())
        return not live and self._next_arm() is None

    def verdict(self, trial: TrialHistory, measure: Record) -> Verdict | None:
        """Successive halving, inside the trial's own arm."""
        return self._searches[trial.arm].verdict(trial.number, measure)

    def ended(self, trial: TrialHistory, outcome: str) -> None:
        """Lets the arm's sampler and account know; an attempt that may be repeated waits for its next."""
        self._searches[trial.arm].ended(trial, outcome)
        if trial.outcome is None and not trial.paused:
            self._waiting.append(trial)
        else:
            self._accounts[trial.arm].settle(trial)

    def left_over(self) -> list[TrialHistory]:
        """The trials that are paused: when the phase is over they end as pruned."""
        return [trial for trial in self._history.trials_of("search") if trial.paused]


def best_trials(
    history: History, arm: str, yardstick: str, top: int, cost: str | None = None, margin: float = 0.0
) -> list[TrialHistory]:
    """The arm's best completed search trials, best first; pruned ones never finished and are not among them.

    Of those with the same configuration, which a grid of choices or a sampler may come to twice, only the first is.

    Args:
        history: of the study.
        arm: its name.
        yardstick: the primary one.
        top: how many.
        cost: a budget unit of which they are to have spent little: those that are within the ``margin`` of the best
            come first, the cheapest of them ahead; last among them those whose spending was not measured.
        margin: differences of the yardstick that do not matter.
    """
    completed = [t for t in history.trials_of("search", arm) if t.outcome == "completed"]
    sign = -1 if find_yardstick(yardstick).higher_is_better else 1
    scored = [(sign * score, t.number, t) for t in completed if (score := t.score(yardstick)) is not None]
    ranked = sorted(scored, key=lambda entry: entry[:2])
    if cost is not None and ranked:
        alike = [entry for entry in ranked if entry[0] <= ranked[0][0] + margin]
        ranked[: len(alike)] = sorted(alike, key=lambda entry: entry[2].spent.get(cost, math.inf))
    distinct: dict[str, TrialHistory] = {}
    for _, _, trial in ranked:
        distinct.setdefault(json.dumps(trial.configuration, sort_keys=True), trial)
    return list(distinct.values())[:top]
