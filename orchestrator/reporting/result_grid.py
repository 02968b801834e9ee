"""Results in Ray Tune's words: what reads a ``ray.tune.ResultGrid`` of Ray 2.60 reads a study's results.

No Ray is needed, and nothing is unpickled. Of each trial the reports are those that no later attempt rolled back. Names
of metrics are flat, with slashes, where Tune flattens them: ``spent/tokens``, ``languages/recovery_accuracy/en``.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow.fs as pafs

from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN, MeasureRecord, TrainingPhase
from orchestrator.ledger.trials import TrialHistory
from search_spaces import Configuration
from trainables.errors import nearest
from trainables.storage import Location
from trainables.training.checkpoint_record import CheckpointFolders

if TYPE_CHECKING:
    import pandas as pd

Scope = Literal["all", "last", "avg", "last-5-avg", "last-10-avg"]
Mode = Literal["min", "max"]

_SCOPES: dict[Scope, int | None] = {"last": 1, "last-5-avg": 5, "last-10-avg": 10, "avg": None, "all": None}
"""By scope, over how many of the last reports."""

Metrics = dict[str, object]


class TrialFailedError(RuntimeError):
    """What a trial that diverged, failed or was lost has as its error; its text is the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder of safetensors and JSON, of a trial's last checkpoint; as ``ray.tune.Checkpoint``."""

    path: str
    filesystem: pafs.FileSystem

    def to_directory(self, path: str | None = None) -> str:
        """Copy it to a folder on this machine, a new temporary one without ``path``; gives that."""
        to = str(Path(path).expanduser()) if path is not None else tempfile.mkdtemp(prefix="h2h-checkpoint-")
        Path(to).mkdir(parents=True, exist_ok=True)
        pafs.copy_files(self.path, to, source_filesystem=self.filesystem, destination_filesystem=pafs.LocalFileSystem())
        return to

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """It in a folder on this machine: itself if it is here, else a copy, which is removed afterwards."""
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            yield self.path
            return
        copy = self.to_directory()
        try:
            yield copy
        finally:
            shutil.rmtree(copy, ignore_errors=True)


@dataclass(frozen=True)
class Result:
    """One trial, as ``ray.tune.Result``."""

    metrics: Metrics
    """Of the last report, with the last value of each yardstick, the trial's ``arm``, ``phase``, ``seed`` and
    ``outcome``, its name as ``trial_id``, and its configuration as ``config``."""
    error: TrialFailedError | None
    """Of one that diverged, failed or was lost; None of one that completed, was stopped early, or runs."""
    path: str
    """Its folder, in ``filesystem``."""
    filesystem: pafs.FileSystem
    _trial: TrialHistory
    _folder: Location

    @property
    def config(self) -> Configuration:
        """Its configuration."""
        return dict(self._trial.configuration)

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The last one; None where there is none, or it was removed."""
        places = CheckpointFolders(self._folder).whole()
        return Checkpoint(places[-1].folder.path, self.filesystem) if places else None

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, Metrics]]:
        """The last one, if there is one, with the metrics."""
        return [] if self.checkpoint is None else [(self.checkpoint, self.metrics)]

    @cached_property
    def reports(self) -> tuple[Metrics, ...]:
        """All that count, names flattened with slashes."""
        return tuple(_flat(found) for found in _reports(self._trial))

    @property
    def metrics_dataframe(self) -> pd.DataFrame:
        """One row a report."""
        import pandas as pd

        return pd.DataFrame(list(self.reports))

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.metrics.items() if not isinstance(value, dict)}
        return f"Result({self._trial.trial}, error={self.error!r}, metrics={shown}, path='{self.path}')"


class ResultGrid:
    """All trials of a study in the order in which they began, read as ``ray.tune.ResultGrid`` is: by index, by
    iteration, as a frame, or the best one alone."""

    folder: Location
    history: History

    @cached_property
    def _results(self) -> list[Result]:
        return [_result(trial, self.folder) for trial in self.history.trials.values()]

    def __len__(self) -> int:
        return len(self._results)

    def __bool__(self) -> bool:
        """Results are there, also of a study that has no trials yet."""
        return True

    def __getitem__(self, i: int) -> Result:
        return self._results[i]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    @property
    def experiment_path(self) -> str:
        """The study's folder, in ``filesystem``."""
        return str(self.folder.path)

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Where the study lies."""
        return self.folder.filesystem

    @property
    def errors(self) -> list[TrialFailedError]:
        """Of the trials that diverged, failed or were lost."""
        return [result.error for result in self if result.error is not None]

    @property
    def num_errors(self) -> int:
        """How many diverged, failed or were lost."""
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        """How many completed, or were stopped early."""
        return sum(result.metrics["outcome"] in ("completed", "pruned") for result in self)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: Scope = "last",
        filter_nan_and_inf: bool = True,
        *,
        arm: str | None = None,
        phase: TrainingPhase | None = None,
    ) -> Result:
        """The best of the trials that completed: of the search, as Tune's is, and where there is none of the
        confirmation, or of ``phase``; of one ``arm``, or of all.

        Without a metric it is the primary yardstick; without a mode what is better of a yardstick. A search's trials
        are scored on the validation split, the last report of a confirmation run on the test split: the best of those
        is better than it would be again, and says nothing about arms. That does the comparison.

        Raises ValueError: there is no such mode, scope or arm, or no mode for a metric that is no yardstick.
        RuntimeError: no such trial has that metric.
        """
        design = self.history.design
        if arm is not None and arm not in design.arms:
            raise ValueError(f"no arm is called '{arm}'. {nearest(arm, design.arms)}")
        if scope not in _SCOPES:
            raise ValueError(f"no scope is called '{scope}'. {nearest(scope, _SCOPES)}")
        metric = metric or design.yardsticks.primary
        if mode is None:
            if metric not in design.yardsticks.names:
                raise ValueError(f"{metric} is no yardstick of the study: say whether 'min' or 'max' of it is the best")
            mode = "min" if design.lower_is_better(metric) else "max"
        _require_mode(mode)
        phase = phase or ("search" if self.history.trials_of("search") else "confirm")
        scored = [
            (score, result)
            for result in self
            if result.metrics["phase"] == phase
            and result.metrics["outcome"] == "completed"
            and arm in (None, result.metrics["arm"])
            and (score := _score(result, metric, mode, scope)) is not None
            and (math.isfinite(score) or not filter_nan_and_inf)
        ]
        if not scored:
            of_arm = "" if arm is None else f" of the arm {arm}"
            raise RuntimeError(f"no trial of the {phase}{of_arm} that completed has reported {metric}")
        choose = min if mode == "min" else max
        return choose(scored, key=lambda found: found[0])[1]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: Mode | None = None) -> pd.DataFrame:
        """One row a trial that has reported anything: its last report, or that at which ``filter_metric`` was least or
        greatest, with the configuration as ``config/NAME`` and the trial's folder as ``logdir``. Raises ValueError: a
        mode is given without a metric, or is none."""
        import pandas as pd

        if filter_mode is not None:
            _require_mode(filter_mode)
            if not filter_metric:
                raise ValueError("filter_mode is given without filter_metric")
        rows = []
        for result in self:
            reports = result.reports
            if not reports:
                continue
            row = _flat({name: value for name, value in result.metrics.items() if name != "config"})
            if filter_metric and filter_mode and (having := _having(reports, filter_metric)):
                choose = min if filter_mode == "min" else max
                row |= choose(having, key=lambda found: found[0])[1]
            rows.append(
                row | {f"config/{name}": value for name, value in result.config.items()} | {"logdir": result.path}
            )
        return pd.DataFrame(rows)


def _result(trial: TrialHistory, study: Location) -> Result:
    folder = study / "trials" / trial.trial
    failed = trial.outcome == "lost" or trial.outcome in BROKEN
    reports = list(_reports(trial))
    metrics = {
        **_of(trial),
        **(reports[-1] if reports else {}),
        **dict(trial.measures.scores),
        "config": dict(trial.configuration),
    }
    error = TrialFailedError(f"{trial.trial} {trial.outcome}: {trial.reason}") if failed else None
    return Result(metrics, error, folder.path, folder.filesystem, trial, folder)


def _of(trial: TrialHistory) -> Metrics:
    """What is the same at all of its reports."""
    names = ("phase", "arm", "seed", "outcome")
    return {
        "trial_id": trial.trial,
        "done": trial.outcome is not None,
        **{name: getattr(trial, name) for name in names},
    }


def _reports(trial: TrialHistory) -> Iterator[Metrics]:
    for iteration, measure in enumerate(trial.measures, start=1):
        yield {"training_iteration": iteration, **_report(measure)}


def _report(measure: MeasureRecord) -> Metrics:
    languages = {name: dict(score.languages) for name, score in measure.yardsticks.items()}
    return {
        "timestamp": measure.time,
        "time_total_s": measure.spent["wall_seconds"],
        "step": measure.step,
        "progress": measure.progress,
        "loss": measure.loss,
        "learning_rate": measure.learning_rate,
        "spent": dict(measure.spent),
        **{name: score.overall for name, score in measure.yardsticks.items()},
        **({"languages": languages} if languages else {}),
    }


def _flat(nested: Mapping[str, object], place: str = "") -> Metrics:
    found: Metrics = {}
    for name, value in nested.items():
        found |= _flat(value, f"{place}{name}/") if isinstance(value, Mapping) else {f"{place}{name}": value}
    return found


def _having(reports: Sequence[Metrics], metric: str) -> list[tuple[float, Metrics]]:
    """The reports that have a number of that name, behind it."""
    return [(float(value), report) for report in reports if isinstance(value := report.get(metric), int | float)]


def _score(result: Result, metric: str, mode: Mode, scope: Scope) -> float | None:
    """Of the reports that have the metric; None where none has it."""
    values = [value for value, _ in _having(result.reports, metric)]
    if not values:
        return None
    if scope == "all":
        return min(values) if mode == "min" else max(values)
    last = values[-(_SCOPES[scope] or len(values)) :]
    return math.fsum(last) / len(last)


def _require_mode(mode: str) -> None:
    if mode not in ("min", "max"):
        raise ValueError(f"a mode is 'min' or 'max', not '{mode}'")
