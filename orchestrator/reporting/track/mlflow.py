"""MLflow: runs of the experiment that is called as the study is, on its tracking server or in its database."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from orchestrator.reporting.table import to_markdown
from orchestrator.reporting.track.projection import Mark, Run, axes_of, on_axis
from trainables.storage import Location

FAILURES = (MlflowException, OSError)

_IDENTITY, _MARK = "headtohead.run", "headtohead.mark"
_BATCH = 1000  # metrics that are taken at once
_LONGEST = 5000  # characters of a tag


class MLflow:
    """A tracking store."""

    def __init__(self, client: MlflowClient, place: str, artifacts: str | None) -> None:
        self._client, self._artifacts, self.place = client, artifacts, place
        self._experiments: dict[str, str] = {}
        self._known: dict[str, tuple[str, Mark | None]] = {}  # by identity, MLflow's own name of a run and what it has

    def put(self, run: Run) -> bool:
        experiment = self._experiment(run.study)
        found, mark = self._known.get(run.identity, (None, None))
        if mark == Mark.of(run):
            return False
        if found is not None and (mark is None or not mark.is_beginning_of(run)):
            self._client.delete_run(found)
            found = mark = None
        if found is None:
            found = self._begin(experiment, run)
        self._log(found, run, 0 if mark is None else mark.steps)
        if run.final:
            self._end(found, run)
        mark = Mark.of(run)
        self._client.set_tag(found, _MARK, mark.model_dump_json())  # last: what is cut off before is given once more
        self._known[run.identity] = found, mark
        return True

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            there = self._client.get_experiment_by_name(name)
            if there is None:
                identity = self._client.create_experiment(name, artifact_location=self._artifacts)
            else:
                identity = there.experiment_id
                self._recall(identity)
            self._experiments[name] = identity
        return self._experiments[name]

    def _recall(self, experiment: str) -> None:
        """What is there of this program."""
        page = None
        while page != "":
            found = self._client.search_runs([experiment], f"tags.`{_IDENTITY}` != ''", page_token=page)
            for run in found:
                tags = run.data.tags
                self._known[tags[_IDENTITY]] = run.info.run_id, Mark.read(tags.get(_MARK))
            page = found.token or ""

    def _begin(self, experiment: str, run: Run) -> str:
        tags = {_IDENTITY: run.identity, "arm": run.group, "phase": run.job_type, "mlflow.source.name": "headtohead"}
        begun = self._client.create_run(experiment, _milliseconds(run.began), tags, run.name)
        return str(begun.info.run_id)

    def _log(self, found: str, run: Run, start: int) -> None:
        params = [Param(name, str(value)) for name, value in run.settings.items()]
        self._client.log_batch(found, params=params)
        metrics = (
            Metric(on_axis(name, axis), value, _milliseconds(step.time), place)
            for step in run.steps[start:]
            for axis, place in axes_of(run, step)
            for name, value in step.values.items()
        )
        while batch := list(islice(metrics, _BATCH)):
            self._client.log_batch(found, metrics=batch)  # a metric that is there, time and all, stays there once

    def _end(self, found: str, run: Run) -> None:
        ended = _milliseconds(run.began if run.ended is None else run.ended)
        numbers = {name: value for name, value in run.said.items() if not isinstance(value, str)}
        metrics: Sequence[Metric] = [Metric(name, value, ended, 0) for name, value in numbers.items()]
        texts = {name: value for name, value in run.said.items() if isinstance(value, str)}
        tags = [RunTag(name, value[:_LONGEST]) for name, value in texts.items()]
        if run.answer is not None:
            tables = {name: to_markdown(table) for name, table in run.answer.tables.items()}
            tags.append(RunTag("mlflow.note.content", "\n\n".join([texts["verdict"], *tables.values()])[:_LONGEST]))
            for name, text in tables.items():
                self._client.log_text(found, text, f"{name}.md")
            self._client.log_text(found, texts["verdict"], "verdict.txt")
            self._client.log_text(found, run.answer.page, "report.html")
        self._client.log_batch(found, metrics=metrics, tags=tags)
        self._client.set_terminated(found, "FAILED" if run.failed else "FINISHED", ended)


def open_tracker(study: Location, at: str | None) -> MLflow:
    """At the tracking address ``at``, or in a database in the folder ``at``; else at ``MLFLOW_TRACKING_URI``, or where
    the library has it: ``mlflow.db`` in the current folder."""
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if at is None or ":" in at:
        client = MlflowClient(tracking_uri=at)
        return MLflow(client, f"{client.tracking_uri}   (mlflow ui --backend-store-uri {client.tracking_uri})", None)
    folder = Path(at).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder}{os.sep}mlflow.db"
    return MLflow(MlflowClient(tracking_uri=uri), f"{uri}   (mlflow ui --backend-store-uri {uri})", f"{folder}/mlruns")


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
