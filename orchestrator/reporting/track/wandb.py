"""Weights & Biases, online or offline as its own settings say (``WANDB_MODE``): a trial is handed on once it has ended.

A run there can be added to, but nothing in it can be taken back. So what may still change is kept until it does not.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import wandb
from wandb.errors import Error

from orchestrator.reporting.track.projection import Mark, Run
from trainables.storage import Location

FAILURES = (Error, OSError)

_MARK = "headtohead.json"  # in the folder of a run that was handed on whole


class WeightsAndBiases:
    """Runs of the project that is called as the study is."""

    def __init__(self, root: str | None) -> None:
        self._settings = wandb.Settings(
            root_dir=root or wandb.Settings().root_dir,
            console="off",
            silent=True,
            save_code=False,
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
        )
        folder = Path(self._settings.wandb_dir)
        self.place = f"{folder}   (offline runs: wandb sync {folder}/offline-run-*)"
        self._folders: defaultdict[str, list[Path]] = defaultdict(list)
        for found in sorted(folder.glob("*run-*-*")):
            if found.is_dir():
                self._folders[found.name.rpartition("-")[2].partition("x")[0]].append(found)

    def put(self, run: Run) -> bool:
        if not run.final:
            return False
        before, mark = self._folders[run.identity], Mark.of(run)
        if any(Mark.read(_content(folder / _MARK)) == mark for folder in before):
            return False
        for folder in [folder for folder in before if folder.name.startswith("offline-")]:
            shutil.rmtree(folder)  # it was cut off, or the trial has gone on since
            before.remove(folder)
        again = sum((folder / _MARK).exists() for folder in before)
        shown = wandb.init(
            project=run.study,
            id=f"{run.identity}x{again + 1}" if again else run.identity,
            name=run.name,
            group=run.group,
            job_type=run.job_type,
            config=dict(run.settings),
            settings=self._settings,
            reinit="create_new",
        )
        for unit in run.steps[-1].spent if run.steps else ():
            shown.define_metric(f"spent/{unit}", hidden=True)
        shown.define_metric("*", step_metric=f"spent/{run.unit}")
        for step in run.steps:
            spent = {f"spent/{unit}": amount for unit, amount in step.spent.items()}
            shown.log({**step.values, **spent, "_timestamp": step.time}, step=step.number)
        if run.answer is not None:
            for name, table in run.answer.tables.items():
                rows = [list(row.cells) for row in table.rows]
                shown.log({name: wandb.Table(columns=list(table.columns), data=rows)}, step=0)
            shown.log({"report": wandb.Html(run.answer.page, inject=False)}, step=0)
        shown.summary.update(run.said)
        shown.finish(exit_code=int(run.failed))
        folder = Path(shown.dir).parent
        Location(folder / _MARK).write_bytes(mark.model_dump_json().encode())
        before.append(folder)
        return True


def open_tracker(study: Location, at: str | None) -> WeightsAndBiases:
    """Its files into ``at``, else where the library has them: ``WANDB_DIR``, or the current folder."""
    if at is not None:
        Path(at).mkdir(parents=True, exist_ok=True)
    return WeightsAndBiases(at)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None
