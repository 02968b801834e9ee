"""The progress of a preparation, as a bar: parts done of all, tokens, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from orchestrator import formatting
from trainables.corpora.preparation import Progress

_TITLES = {"duplicates": "looking for duplicates", "packing": "tokenising and packing"}


@contextmanager
def preparation_bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Shows a bar for each stage while inside; gives what is to be told of the progress."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("parts  {task.fields[tokens]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        tasks = {}

        def show(progress: Progress) -> None:
            if progress.stage not in tasks:
                title = _TITLES[progress.stage]
                tasks[progress.stage] = bar.add_task(title, total=progress.parts, tokens="")
            tokens = formatting.quantity(progress.tokens, "tokens") if progress.tokens else ""
            bar.update(tasks[progress.stage], completed=progress.done, tokens=tokens)

        yield show
