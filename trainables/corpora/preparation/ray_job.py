"""A Ray Data job of independent tasks: items in, results out as they come, a user's mistake as itself."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainables.errors import InputError, refusal, storage_errors
from trainables.object_store import Patience

TASK_RESOURCES = {"CPU": 1.0}  # what a task takes, in Ray's words


def run_job(task: Callable[[str], str], items: Sequence[str]) -> Iterator[str]:
    """The result of a task of one core for each item, in the order in which the tasks end. Needs a Ray cluster.

    Ray Data spreads the tasks over all nodes, and does those of a lost node again on another, however often. A task's
    InputError is raised here, and so is what the storage refuses: the same job again goes on. Tasks wait for a store
    that does not answer as long as this process does. Ray Data shows no progress bars and messages.
    """
    import ray.data

    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_options.preserve_order = False
    logger = logging.getLogger("ray.data")
    level = logger.level
    rows = [{"item": item} for item in items]
    run = partial(_run_task, task=task, patience_seconds=Patience.seconds)
    with ray.data.DataContext.current(context):
        logger.setLevel(logging.ERROR)
        try:
            dataset = ray.data.from_items(rows, override_num_blocks=max(1, len(rows)))
            for row in dataset.map(run, num_cpus=TASK_RESOURCES["CPU"]).iter_rows():
                if row["error"]:
                    raise InputError(**json.loads(row["error"]))
                yield row["result"]
        finally:
            logger.setLevel(level)


def _run_task(row: dict[str, str], *, task: Callable[[str], str], patience_seconds: float) -> dict[str, str]:
    """A user's mistake comes back as a row: an exception would be logged as a crash, with a traceback."""
    Patience.seconds = patience_seconds
    try:
        return {"result": task(row["item"]), "error": ""}
    except InputError as error:
        return {"result": "", "error": json.dumps(vars(error))}
    except storage_errors() as error:
        return {"result": "", "error": json.dumps(vars(refusal(error)))}
