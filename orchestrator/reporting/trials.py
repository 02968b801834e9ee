"""The trials of a study as ``h2h show`` tells them: all of them in a line each, or one whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from orchestrator import formatting
from orchestrator.analysis.report import Standing, TrialRow, standing_of, trial_row
from orchestrator.ledger.history import History
from orchestrator.ledger.records import AttemptOutcome, TrainingPhase
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.table import Align, Table
from trainables.config import Config
from trainables.errors import InputError, nearest
from trainables.evaluation.yardstick import Score
from trainables.storage import Location
from trainables.training.checkpoint_record import CheckpointFolders
from trainables.training.config import Unit
from trainables.training.state import Built, Environment, Floors, Overhead, Spent

_LEFT: tuple[Align, ...] = ("left",)
_RIGHT: tuple[Align, ...] = ("right",)


class TrialList(Config):
    """A study's trials, in the order in which they began."""

    format: Literal["headtohead.trials/1"] = "headtohead.trials/1"
    name: str
    folder: str
    standing: Standing
    unit: Unit
    """That binds."""
    primary: str
    """The yardstick that decides."""
    trials: tuple[TrialRow, ...]


class AttemptRow(Config):
    """A start of a trial. Times are in seconds since the epoch."""

    number: int
    asked: float
    begun: float | None
    """When its process had built the trial; None where it never did."""
    ended: float | None
    """None while it runs."""
    outcome: AttemptOutcome | None
    workers: int
    useful: Spent
    lost: Spent
    """What a later attempt did again."""
    overhead: Overhead
    unreported_seconds: float


class Evaluation(Config):
    """Where yardsticks were taken."""

    step: int
    progress: float
    """Share of the trial's budget."""
    spent: Spent
    loss: float | None
    scores: dict[str, Score]
    """By yardstick, with those of each language."""
    scorer: str | None
    """How the model scored the vocabulary."""
    other_scorers: dict[str, dict[str, Score]]


class TrialDetail(Config):
    """One trial, whole."""

    format: Literal["headtohead.trial/1"] = "headtohead.trial/1"
    study: str
    folder: str
    unit: Unit
    primary: str
    amount: float
    """Its budget, in that unit."""
    trial: TrialRow
    attempts: tuple[AttemptRow, ...]
    evaluations: tuple[Evaluation, ...]
    built: tuple[Built, ...]
    """What its attempts trained, and on what: each once."""
    environment: Environment | None
    """Of the last attempt."""
    floors: Floors | None
    """Where it measured them."""
    data_digest: str
    """Of the sequences it was trained on; empty before its first report."""
    model_digest: str
    """Of the model's files, which its last report names; empty where that does not."""
    checkpoints: tuple[str, ...]
    """The folders of those that are there, by step."""


def trial_list(history: History, folder: Location, phase: TrainingPhase | None, arm: str | None) -> TrialList:
    """The trials of a study that has begun, or those of a phase or an arm. Raises InputError if there is no such
    arm."""
    design, study = history.design, history.study
    assert study is not None, "it has a design"
    if arm is not None and arm not in design.arms:
        raise InputError(f"no arm is called '{arm}'", where="--arm", remedy=nearest(arm, design.arms))
    chosen = [t for t in history.trials.values() if phase in (None, t.phase) and arm in (None, t.arm)]
    return TrialList(
        name=study.name,
        folder=folder.uri,
        standing=standing_of(history),
        unit=design.unit,
        primary=design.yardsticks.primary,
        trials=tuple(trial_row(trial, design.yardsticks.names) for trial in chosen),
    )


def trial_detail(history: History, folder: Location, name: str) -> TrialDetail:
    """A trial by its name. Raises InputError if there is none."""
    design, study = history.design, history.study
    assert study is not None, "it has a design"
    if name not in history.trials:
        raise InputError(f"no trial is called '{name}'", where=str(folder), remedy=nearest(name, history.trials))
    trial = history.trials[name]
    last = trial.measures[-1] if trial.measures else None
    return TrialDetail(
        study=study.name,
        folder=folder.uri,
        unit=design.unit,
        primary=design.yardsticks.primary,
        amount=trial.amount,
        trial=trial_row(trial, design.yardsticks.names),
        attempts=_attempts(trial, history.updated),
        evaluations=tuple(
            Evaluation(
                step=measure.step,
                progress=measure.progress,
                spent=measure.spent,
                loss=measure.loss,
                scores=dict(measure.yardsticks),
                scorer=measure.scorer,
                other_scorers={scorer: dict(scores) for scorer, scores in measure.other_scorers.items()},
            )
            for measure in trial.evaluations
        ),
        built=trial.built,
        environment=trial.environment,
        floors=trial.floors,
        data_digest=last.digest if last else "",
        model_digest=(last.checkpoint or "") if last else "",
        checkpoints=tuple(place.folder.uri for place in CheckpointFolders(folder / "trials" / name).whole()),
    )


def _attempts(trial: TrialHistory, now: float) -> tuple[AttemptRow, ...]:
    return tuple(
        AttemptRow(
            **{name: getattr(attempt, name) for name in ("number", "asked", "begun", "ended", "outcome", "workers")},
            **{name: getattr(spending, name) for name in ("useful", "lost", "overhead", "unreported_seconds")},
        )
        for attempt, spending in zip(trial.attempt_records, trial.spendings(now), strict=True)
    )


def trials_table(found: TrialList, *, narrow: bool = False) -> Table:
    """A row for each; ``narrow``: without what the trials' names say, in one unit, and with the progress of those alone
    that did not come to their end."""
    units = [found.unit] if narrow else list(dict.fromkeys([found.unit, "device_seconds"]))
    before = ["trial", "outcome"] if narrow else ["trial", "arm", "phase", "outcome", "progress"]
    columns = [*before, found.primary, *(formatting.UNIT_TITLES[unit] for unit in units)]
    rows = [
        [
            *({**row.model_dump(), **_standing(row, narrow=narrow)}[name] for name in before),
            formatting.score(row.yardsticks.get(found.primary)),
            *(_spent(row.spent, unit).removesuffix(f" {unit}") for unit in units),
            _configuration(row),
        ]
        for row in found.trials
    ]
    left = len(before) - (not narrow)
    align = (*_LEFT * left, *_RIGHT * (len(columns) - left))
    return Table.of([*columns, "configuration"], rows, align)


def _standing(row: TrialRow, *, narrow: bool) -> dict[str, str]:
    outcome, progress = _outcome(row), f"{row.progress:.0%}"
    if narrow and row.outcome != "completed":
        outcome += f"\n{progress}"
    return {"outcome": outcome, "progress": progress}


def _configuration(row: TrialRow) -> str:
    return formatting.settings(row.configuration, "\n") + ("\nchosen by hand" if row.by_hand else "")


def _outcome(row: TrialRow) -> str:
    return row.outcome or "not ended"


def _spent(spent: Spent, unit: Unit) -> str:
    return formatting.quantity(spent[unit], unit) if unit in spent else "–"


def detail_tables(found: TrialDetail) -> list[tuple[str, Table]]:
    """Of a trial: what it is, its attempts, its evaluations, its last scores by language."""
    tables = [("", _facts(found)), ("Attempts", _attempts_table(found))]
    if found.evaluations:
        tables.append(("Evaluations, on the way and at its end", _evaluations_table(found)))
        last = found.evaluations[-1]
        languages = list(dict.fromkeys(name for score in last.scores.values() for name in score.languages))
        if len(languages) > 1:
            rows = [[name, *(_of(score, name) for score in last.scores.values())] for name in languages]
            tables.append(("The last by language", Table.of(["language", *last.scores], rows, numbers=True)))
    return tables


def _of(score: Score, language: str) -> str:
    return formatting.score(score.languages.get(language))


def _facts(found: TrialDetail) -> Table:
    row = found.trial
    facts = [
        ("arm", row.arm),
        ("phase", row.phase),
        ("seed", str(row.seed)),
        ("outcome", _outcome(row) + (f": {row.reason}" if row.reason else "")),
        ("configuration", _configuration(row)),
        ("progress", f"{row.progress:.0%} of {formatting.quantity(found.amount, found.unit)}"),
        ("spent", ", ".join(_told(amount, unit) for unit, amount in row.spent.items()) or "–"),
        *(("trained", f"{b.parameters:,} parameters on {b.device} in {b.precision}") for b in found.built),
        ("data", found.data_digest or "–"),
        ("model", found.model_digest or "–"),
        ("checkpoints", "\n".join(own.removeprefix(f"{found.folder}/") for own in found.checkpoints) or "none"),
    ]
    return Table.of(["trial", row.trial], facts)


_OF: Mapping[Unit, str] = {
    "hardware_flops": " of hardware",
    "device_seconds": " of device time",
    "wall_seconds": " of wall time",
}
"""What tells amounts of two units apart that are written alike."""


def _told(amount: float, unit: Unit) -> str:
    return formatting.quantity(amount, unit) + _OF.get(unit, "")


def _attempts_table(found: TrialDetail) -> Table:
    rows = [
        [
            str(attempt.number),
            attempt.outcome or ("not ended" if attempt.ended is None else "cut off"),
            str(attempt.workers),
            _spent(attempt.useful, "device_seconds"),
            _spent(attempt.lost, "device_seconds"),
            formatting.duration(sum(attempt.overhead.values())),
        ]
        for attempt in found.attempts
    ]
    return Table.of(
        ["attempt", "outcome", "workers", "useful", "lost", "overhead"], rows, ("right", "left", *_RIGHT * 4)
    )


def _evaluations_table(found: TrialDetail) -> Table:
    names = list(dict.fromkeys(name for evaluation in found.evaluations for name in evaluation.scores))
    rows = [
        [
            f"{evaluation.step:,}",
            f"{evaluation.progress:.0%}",
            _spent(evaluation.spent, found.unit).removesuffix(f" {found.unit}"),
            formatting.score(evaluation.loss),
            *(
                formatting.score(evaluation.scores[name].overall if name in evaluation.scores else None)
                for name in names
            ),
        ]
        for evaluation in found.evaluations
    ]
    columns = ["step", "progress", formatting.UNIT_TITLES[found.unit], "loss", *names]
    return Table.of(columns, rows, _RIGHT * len(columns))
