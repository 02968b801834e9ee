"""A Ray Data job of independent tasks: items in, results out in the same order, a user's mistake as itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from trainables.errors import InputError


def run_job(task: Callable[[str], str], items: Sequence[str]) -> Iterator[str]:
    """The result of a task of one core for each item, as they come, in the order of the items. Needs a Ray cluster.

    A task's InputError is raised here.
    """
    import ray.data

    rows = [{"item": item} for item in items]
    with _quiet_ray_data():
        dataset = ray.data.from_items(rows, override_num_blocks=max(1, len(rows)))
        for row in dataset.map(partial(_run_task, task=task), num_cpus=1).iter_rows():
            if row["error"]:
                raise InputError(**json.loads(row["error"]))
            yield row["result"]


def _run_task(row: dict[str, str], *, task: Callable[[str], str]) -> dict[str, str]:
    """A user's mistake comes back as a row: an exception would be logged as a crash, with a traceback."""
    try:
        return {"result": task(row["item"]), "error": ""}
    except InputError as error:
        return {"result": "", "error": json.dumps(vars(error))}


@contextmanager
def _quiet_ray_data() -> Iterator[None]:
    """Ray Data in the order of its input, without progress bars and messages, for data sets made inside."""
    from ray.data import DataContext

    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    logger = logging.getLogger("ray.data")
    level = logger.level
    with DataContext.current(context):
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
