"""What ``h2h evaluate`` shows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

from rich.console import RenderableType

from orchestrator import formatting
from orchestrator.analysis.compare import in_order
from orchestrator.analysis.rows import holm_adjusted
from orchestrator.analysis.selection import chosen_runs
from orchestrator.analysis.tasks import evaluated_rows
from orchestrator.config.task_files import TasksSpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import TasksRecord
from orchestrator.planning.tasks import record_of
from orchestrator.reporting.result_tables import TaskPair, tasks_table
from orchestrator.reporting.table import Table, on_terminal
from trainables.config import Config
from trainables.evaluation.once import Once
from trainables.evaluation.yardstick import Items
from trainables.storage import Location


class EvaluatedTask(Config):
    """A task in one language, as a model does it."""

    task: str
    language: str
    items: int
    chance: float
    """What an answer without a look gets right."""
    right: float
    """Share of the examples."""
    error: float
    """Standard error of that."""
    metric: str = "accuracy"
    """What the field measures it by."""
    score: float | None = None
    """What that comes to; None of accuracy."""
    score_chance: float | None = None
    """What one answer to all comes to by it, at most."""


class EvaluationReport(Config):
    """What trained models make of downstream tasks."""

    format: Literal["headtohead.evaluation/1"] = "headtohead.evaluation/1"
    study: str
    """The folder of a study; empty of a model."""
    model: str
    """The folder of a model; empty of a study."""
    pairs: tuple[TaskPair, ...]
    """Of a study."""
    tasks: tuple[EvaluatedTask, ...]
    """Of a model."""


def evaluation_table(found: EvaluationReport) -> RenderableType:
    """A row for each task."""
    if found.study:
        return on_terminal(tasks_table(found.pairs))
    shows_metrics = any(own.score is not None for own in found.tasks)
    rows = [
        [
            own.task,
            own.language,
            f"{own.items:,}",
            formatting.score(own.chance),
            f"{own.right:.3f} ± {own.error:.3f}",
            *([_metric_in_words(own)] if shows_metrics else []),
        ]
        for own in found.tasks
    ]
    notes = ["right: share of the examples, ± its standard error"]
    if shows_metrics:
        notes.append("metric: what the task's field measures it by, and in brackets the most of one answer to all")
    titles = ("task", "language", "items", "chance", "right", *(["metric"] if shows_metrics else []))
    return on_terminal(Table.of(titles, rows, notes=notes))


def _metric_in_words(own: EvaluatedTask) -> str:
    return "–" if own.score is None else f"{own.metric} {own.score:.3f} ({formatting.score(own.score_chance)})"


def evaluated_study(history: History, tasks: TasksRecord, folder: Location) -> EvaluationReport:
    """Task by task, of every two arms of one kind of model."""
    arms, found = history.design.arms, list[TaskPair]()
    runs = {arm: chosen_runs(history, arm) for arm in arms}
    for a, b in combinations(in_order(history.design), 2):
        if arms[a].task == arms[b].task:
            found += [TaskPair(a=a, b=b, row=row) for row in evaluated_rows(history, tasks, runs[a], runs[b])]
    adjusted = holm_adjusted([pair.row for pair in found])
    pairs = tuple(pair.model_copy(update={"row": row}) for pair, row in zip(found, adjusted, strict=True))
    return EvaluationReport(study=folder.uri, model="", pairs=pairs, tasks=())


def evaluated_model(path: str, suite: TasksSpec, items: int, languages: Sequence[str] | None) -> EvaluationReport:
    """Task by task, of a model in Hugging Face format. Raises InputError: there is no such model, or something is wrong
    with the tasks."""
    from trainables.tasks.model import LanguageModel
    from trainables.tasks.prepared import Tasks, prepare_tasks
    from trainables.tasks.yardstick import Asked, suite_items, suite_metrics

    model = LanguageModel.of_folder(path)
    with tempfile.TemporaryDirectory() as scratch:
        definitions = suite.tasks if languages is None else suite.tasks_in(languages)
        folder = prepare_tasks(definitions, Location(scratch), suite.folder, languages, model.tokenizer)
        tasks = Tasks(folder)
        asked = Asked(model, tasks, "test", lambda _: items, Once())
        found, metrics = suite_items(asked), suite_metrics(asked)
    rows = []
    for task, description in record_of(tasks, items).tasks.items():
        for language, chance in description.chance.items():
            own = found[f"{task}/{language}"]
            right, error = own.ratio * (1 - chance) + chance, standard_error(own) * (1 - chance)
            rows.append(
                EvaluatedTask(
                    task=task,
                    language=language,
                    items=len(own.item_I),
                    chance=chance,
                    right=right,
                    error=error,
                    metric=description.metric,
                    score=metrics.get(f"{task}/{language}"),
                    score_chance=description.metric_chance.get(language),
                )
            )
    return EvaluationReport(study="", model=path, pairs=(), tasks=tuple(rows))


def standard_error(items: Items) -> float:
    """Of the ratio, over items as they were drawn."""
    import numpy as np

    weight, count = float(items.weight_I.sum()), len(items.item_I)
    residual_I = items.value_I - items.ratio * items.weight_I
    return float(np.sqrt((residual_I**2).sum() * count / max(1, count - 1))) / weight if weight else 0.0
