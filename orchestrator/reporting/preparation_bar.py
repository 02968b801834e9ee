"""The progress of a preparation, as bars: parts done of all, tokens, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from orchestrator import formatting
from trainables.corpora.preparation.prepare import Progress

_TITLES = {
    "tokenizer": "making the tokenizer",
    "fingerprint": "hashing the text",
    "verification": "reading the shards",
    "duplicates": "looking for duplicates",
    "comparison": "comparing",
    "packing": "tokenising and packing",
}


@contextmanager
def preparation_bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Shows a bar for each stage while inside; gives what is to be told of the progress."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        tasks = {}

        def show(progress: Progress) -> None:
            if progress.stage not in tasks:
                # Until something is done the bar only moves.
                tasks[progress.stage] = bar.add_task(_TITLES[progress.stage], total=None, amount="")
            parts = f"{progress.done}/{progress.parts} parts" if progress.parts > 1 else ""
            tokens = f"  {formatting.quantity(progress.tokens, 'tokens')}" if progress.tokens else ""
            bar.update(
                tasks[progress.stage],
                total=progress.parts if progress.done else None,
                completed=progress.done,
                amount=parts + tokens,
            )

        yield show
