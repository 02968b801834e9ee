"""Trackio: runs of the project that is called as the study is, in its database on this machine.

Rows are written with their own times and with ids of ours, which the database takes once: as Trackio's own imports do.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from orchestrator.reporting.track.projection import Mark, Run
from trainables.errors import InputError
from trainables.storage import Location

FAILURES = (OSError, sqlite3.Error, ValueError)

_MARK = "headtohead.mark"


class _Row(NamedTuple):
    step: int
    time: float
    values: dict[str, object]
    identity: str


class Trackio:
    """The library's database."""

    def __init__(self, folder: Path) -> None:
        self.place = f"{folder}   (TRACKIO_DIR={folder} trackio show)"

    def put(self, run: Run) -> bool:
        from trackio.sqlite_storage import SQLiteStorage

        mark, had = Mark.of(run), Mark.read(_config(run).get(_MARK))
        if had == mark:
            return False
        if had is not None and not had.is_beginning_of(run):
            SQLiteStorage.delete_run(run.study, run.name, run_id=run.identity)
            had = None
        rows = list(_rows(run, 0 if had is None else had.steps))
        if not rows:
            return False
        said = {name: value for name, value in run.said.items() if isinstance(value, str)}
        SQLiteStorage.bulk_log(
            run.study,
            run.name,
            [row.values for row in rows],
            [row.step for row in rows],
            [datetime.fromtimestamp(row.time, UTC).isoformat() for row in rows],
            config={
                **run.settings,
                **said,
                "phase": run.job_type,
                "_Group": run.group,
                "_Created": datetime.fromtimestamp(run.began, UTC).isoformat(),
                _MARK: mark.model_dump_json(),
            },
            log_ids=[row.identity for row in rows],
            run_id=run.identity,
        )
        return True


def open_tracker(study: Location, at: str | None) -> Trackio:
    """Into the folder ``at``, else where the library has it: ``TRACKIO_DIR``, or Hugging Face's cache. Raises
    InputError where this process has it elsewhere already."""
    if at is not None:
        os.environ["TRACKIO_DIR"] = str(Path(at).absolute())
    from trackio.utils import TRACKIO_DIR

    if at is not None and Path(at).absolute() != TRACKIO_DIR:
        raise InputError(
            "Trackio has one folder in a process",
            where=f"--at {at}",
            why=f"it was loaded with {TRACKIO_DIR}",
            remedy=f"TRACKIO_DIR={at} before Python starts",
        )
    return Trackio(TRACKIO_DIR)


def _config(run: Run) -> dict[str, str]:
    """What the database says of the run beside its rows."""
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_run_config(run.study, run.name, run_id=run.identity) or {}


def _rows(run: Run, start: int) -> Iterator[_Row]:
    for index, step in enumerate(run.steps[start:], start):
        spent = {f"spent/{unit}": amount for unit, amount in step.spent.items()}
        yield _Row(step.number, step.time, {**step.values, **spent}, f"{run.identity}-{index}")
    if run.final:
        last = run.steps[-1].number if run.steps else 0
        ended = run.began if run.ended is None else run.ended
        numbers = {name: value for name, value in run.said.items() if not isinstance(value, str)}
        yield _Row(last, ended, numbers | _shown(run), f"{run.identity}-end-{Mark.of(run).said_digest}")


def _shown(run: Run) -> dict[str, object]:
    """An answer's tables and its report, whose file is written."""
    if run.answer is None:
        return {}
    import trackio
    from trackio.media import get_project_media_path

    place = f"{run.name}-{run.origin[:6]}"  # another study of the name has its own there
    shutil.rmtree(get_project_media_path(run.study, place))  # of an answer before
    page = trackio.Html(run.answer.page, inject=False)
    page._save(run.study, place)
    found: dict[str, object] = {
        "report": page._to_dict(),
        "verdict": trackio.Markdown(str(run.said["verdict"]))._to_dict(),
    }
    for name, table in run.answer.tables.items():
        rows = [list(row.cells) for row in table.rows]
        found[name] = trackio.Table(columns=list(table.columns), data=rows)._to_dict(run.study, place)
    return found
