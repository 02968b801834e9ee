"""What ``h2h evaluate`` shows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import combinations

from rich.console import Group, RenderableType

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
from orchestrator.reporting.table import Row as Line
from orchestrator.reporting.table import Table, on_terminal
from trainables.evaluation.yardstick import Items
from trainables.storage import Location


def evaluated_study(history: History, tasks: TasksRecord) -> RenderableType:
    """Task by task, of every two arms of one kind of model."""
    arms, found = history.design.arms, list[TaskPair]()
    runs = {arm: chosen_runs(history, arm) for arm in arms}
    for a, b in combinations(in_order(history.design), 2):
        if arms[a].task == arms[b].task:
            found += [TaskPair(a, b, row) for row in evaluated_rows(history, tasks, runs[a], runs[b])]
    adjusted = holm_adjusted([pair.row for pair in found])
    shown = [pair._replace(row=row) for pair, row in zip(found, adjusted, strict=True)]
    return on_terminal(tasks_table(shown))


def evaluated_model(path: str, suite: TasksSpec, items: int, languages: Sequence[str] | None) -> RenderableType:
    """Task by task, of a model in Hugging Face format. Raises InputError: there is no such model, or something is wrong
    with the tasks."""
    from trainables.tasks.model import LanguageModel
    from trainables.tasks.prepared import Tasks, prepare_tasks
    from trainables.tasks.yardstick import Asked, suite_items

    model = LanguageModel.of_folder(path)
    with tempfile.TemporaryDirectory() as scratch:
        folder = prepare_tasks(suite.tasks, Location(scratch), suite.folder, languages, model.tokenizer)
        tasks = Tasks(folder)
        found = suite_items(Asked(model, tasks, "test", lambda _: items, lambda _, find: find()))
    rows = []
    for task, description in record_of(tasks, items).tasks.items():
        for language, chance in description.chance.items():
            own = found[f"{task}/{language}"]
            right = own.ratio * (1 - chance) + chance
            error = standard_error(own) * (1 - chance)
            cells = (task, language, f"{len(own.item_I):,}", formatting.score(chance), f"{right:.3f} ± {error:.3f}")
            rows.append(Line(cells))
    notes = ("right: share of the examples, ± its standard error",)
    table = Table(("task", "language", "items", "chance", "right"), tuple(rows), notes=notes)
    return Group(on_terminal(table))


def standard_error(items: Items) -> float:
    """Of the ratio, over items as they were drawn."""
    import numpy as np

    weight, count = float(items.weight_I.sum()), len(items.item_I)
    residual_I = items.value_I - items.ratio * items.weight_I
    return float(np.sqrt((residual_I**2).sum() * count / max(1, count - 1))) / weight if weight else 0.0
