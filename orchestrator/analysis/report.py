"""All that a study says, as one value: what ``h2h compare --json`` writes, and what pages and charts are made of.

So every number on a page or in a chart is one of these, and none is computed where it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.learning_curves import LearningCurve, learning_curves
from orchestrator.analysis.methods import estimand, methods
from orchestrator.analysis.paired_seeds import PairedSeeds, paired_seeds
from orchestrator.analysis.profile import Profile, profiles
from orchestrator.ledger import registry
from orchestrator.ledger.history import History
from orchestrator.ledger.records import TRAINING_PHASES, Outcome, Phase, Status, TrainingPhase
from orchestrator.ledger.trials import TrialHistory
from search_spaces import Configuration
from trainables.config import Config
from trainables.errors import InputError
from trainables.training.config import UNITS, Unit
from trainables.training.state import Overhead, Spent

Format = Literal["headtohead.report/1"]

Standing = Literal["finished", "running", "stopped"]


class SpendingByKind(Config):
    """What an arm cost in a phase, in device-seconds; see :mod:`orchestrator.ledger.spending`."""

    phase: TrainingPhase
    arm: str
    useful: float
    overhead: float
    lost: float
    unreported: float
    overhead_seconds: Overhead
    """By cause, with the time until a place was free."""
    total: dict[Unit, float]
    """All of it, in every unit that is known."""


class TrialRow(Config):
    """One trial."""

    trial: str
    phase: TrainingPhase
    arm: str
    number: int
    seed: int
    share: float | None
    """Of a branch: the share of its run's budget."""
    configuration: Configuration
    by_hand: bool
    """Whether a person chose it while the search went on."""
    outcome: Outcome | None
    """None while it runs, or waits to be resumed."""
    reason: str
    attempts: int
    retried: int
    """Attempts that failed and were repeated."""
    progress: float
    spent: Spent
    yardsticks: dict[str, float]
    """The last overall values."""


class SearchedPoint(Config):
    """A configuration that an arm's search tried."""

    trial: str
    arm: str
    spent: float
    """By the arm's trials up to this one, in the order in which they began, in trial budgets."""
    value: float
    """Of the primary yardstick, where it was last measured."""
    best: float | None
    """Of the arm's completed trials up to this one; None before there is one."""
    outcome: Outcome | None


class StudyReport(Config):
    """A study: its question, its answer, what was done and what it cost. Times are in seconds since the epoch."""

    format: Format = "headtohead.report/1"
    """What this document is, and the version of its form."""
    name: str
    folder: str
    question: str
    standing: Standing
    phases: dict[Phase, Status]
    began: float
    updated: float
    """Time of the last record."""
    verdict: str
    """In words; paragraphs are apart by an empty line."""
    estimand: str
    """What the difference is of; empty where no arms are compared."""
    methods: str
    """The paragraph for a paper."""
    begun_as: str
    """Which study of its storage it was; empty where that is not known."""
    head: str
    """Of the ledger."""
    digest: str
    """Of the frozen study's file."""
    protocol_digest: str
    protocol: dict[str, JsonValue]
    versions: dict[str, str]
    planned_seeds: int
    comparison: Comparison
    pairs: tuple[PairedSeeds, ...]
    """Seed by seed; empty where the files of the items' scores are gone."""
    curves: tuple[LearningCurve, ...]
    profiles: tuple[Profile, ...]
    searched: tuple[SearchedPoint, ...]
    spent: dict[str, float]
    """By each arm in all phases, in the unit that binds."""
    spending: tuple[SpendingByKind, ...]
    trials: tuple[TrialRow, ...]
    events: tuple[tuple[float, str], ...]
    """Messages for a person, with their times."""


def report_of(history: History) -> StudyReport:
    """What a study says so far. Raises InputError if it has not begun, or as
    :func:`orchestrator.analysis.answer.answer_of`."""
    answer, study, design = answer_of(history), history.study, history.design
    assert study is not None  # it has a design
    try:
        pairs = paired_seeds(history)
    except InputError:  # the answer's note says what is gone
        pairs = ()
    return StudyReport(
        name=study.name,
        folder=study.folder if history.folder is None else history.folder.uri,
        question=design.question,
        standing=standing_of(history),
        phases=history.phases,
        began=history.started or 0.0,
        updated=history.updated,
        verdict=answer.verdict,
        estimand=estimand(design, answer.comparison) if answer.comparison.pairs else "",
        methods=methods(history, answer.comparison),
        begun_as=registry.standing(history.first),
        head=history.head,
        digest=study.digest,
        protocol_digest=study.protocol_digest,
        protocol=study.protocol,
        versions=study.versions,
        planned_seeds=history.planned_seeds,
        comparison=answer.comparison,
        pairs=pairs,
        curves=learning_curves(history),
        profiles=profiles(history),
        searched=tuple(point for arm in design.arms for point in _searched(history, arm)),
        spent={arm: found.spent_in_all(design.unit) for arm, found in answer.comparison.arms.items()},
        spending=tuple(_spending(history)),
        trials=tuple(trial_row(trial, design.yardsticks.names) for trial in history.trials.values()),
        events=tuple((event.time, event.message) for event in history.events),
    )


def standing_of(history: History) -> Standing:
    """Whether a study goes on, as far as its ledger tells: one that was cut off says nothing of it."""
    return "finished" if history.finished else "stopped" if history.stop == "end" else "running"


def _searched(history: History, arm: str) -> Iterator[SearchedPoint]:
    primary = history.design.yardsticks.primary
    choose = min if history.design.lower_is_better(primary) else max
    spent, best = 0.0, None
    for trial in history.trials_of("search", arm):
        spent += trial.progress
        value = trial.score(primary)
        if value is None:
            continue
        if trial.outcome == "completed":
            best = value if best is None else choose(best, value)
        yield SearchedPoint(trial=trial.trial, arm=arm, spent=spent, value=value, best=best, outcome=trial.outcome)


def _spending(history: History) -> Iterator[SpendingByKind]:
    for phase in TRAINING_PHASES:
        for arm in history.design.arms:
            if not history.trials_of(phase, arm):
                continue
            spending = history.spending(phase, arm)
            known = spending.useful.keys() | ({"usd"} if spending.overhead_usd else set())
            yield SpendingByKind(
                phase=phase,
                arm=arm,
                useful=spending.useful.get("device_seconds", 0.0),
                overhead=spending.overhead_device_seconds,
                lost=spending.lost.get("device_seconds", 0.0),
                unreported=spending.unreported_device_seconds,
                overhead_seconds=spending.overhead,
                total={unit: spending.total(unit) for unit in UNITS if unit in known},
            )


def trial_row(trial: TrialHistory, yardsticks: tuple[str, ...]) -> TrialRow:
    """A trial, with the last values of these yardsticks."""
    scores = {name: trial.score(name) for name in yardsticks}
    names = ("trial", "phase", "arm", "number", "seed", "share", "configuration", "by_hand", "outcome", "reason")
    return TrialRow(
        **{name: getattr(trial, name) for name in (*names, "attempts", "progress", "spent")},
        retried=trial.failures,
        yardsticks={name: score for name, score in scores.items() if score is not None},
    )
