"""The search as Optuna's own file: what ``optuna``, ``optuna-dashboard`` and plain Optuna read.

``optuna.jsonl`` in the study's folder is a journal of ``optuna.storages.JournalStorage`` with an Optuna study for each
arm. It follows from the ledger, record by record, and nothing is ever read from it: each session makes it anew from the
ledger before it goes on, so the two cannot disagree, and an Optuna file of somebody else's cannot do harm.

Of a trial it has the configuration with its distributions, the yardstick at each rung by the rung's budget in units of
the first rung's, the outcome (``completed``: COMPLETE, ``pruned``: PRUNED, ``diverged`` and ``failed``: FAIL; what runs
or is paused: RUNNING), and as user attributes ``arm``, ``trial``, ``seed``, ``spent``, ``outcome`` and ``reason``.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.segments import Record
from orchestrator.scheduling.sampler import directions, distributions, objectives_of, rung_step
from trainables.storage import Location, space_for

OPTUNA_FILE = "optuna.jsonl"

_STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "diverged": TrialState.FAIL,
    "failed": TrialState.FAIL,
}


class OptunaFile:
    """Keeps the file in step with the ledger. A context manager.

    Args:
        folder: the study's. On an object store, which cannot append, the file is written at the end, whole.
        spec: the study.
        history: of what is in the ledger so far.
    """

    def __init__(self, folder: Location, spec: StudySpec, history: History) -> None:
        self._spec, self._history = spec, history
        self._file = folder / OPTUNA_FILE
        self._scratch = None if self._file.local else tempfile.mkdtemp(prefix="h2h-optuna-")
        self._path = self._file.local or Path(str(self._scratch)) / OPTUNA_FILE
        self._distributions = {arm: distributions(own.load_space()) for arm, own in spec.arms.items()}
        self._ids: dict[str, int] = {}
        self._steps: dict[str, tuple[int, float]] = {}  # the last, of those that run
        self._write(self._relived())

    def __enter__(self) -> OptunaFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        if self._scratch is not None:
            self._file.write_bytes(self._path.read_bytes())
            shutil.rmtree(self._scratch)

    def _studies(self, storage: BaseStorage) -> dict[str, int]:
        search, primary = self._spec.search, self._spec.yardsticks.primary
        return {
            arm: storage.create_new_study(directions(search, primary), f"{self._spec.name}/{arm}")
            for arm in self._spec.arms
        }

    def _relived(self) -> Iterable[tuple[str, str, FrozenTrial]]:
        """The trials so far, with their arms and names."""
        self._storage: BaseStorage = InMemoryStorage()
        self._study_ids = self._studies(self._storage)
        for arm in self._spec.arms:
            ends = {}
            records = self._history.search.get(arm, ())
            begun = {r["trial"]: index for index, r in enumerate(records) if r["kind"] == "trial"}
            for index, record in enumerate(records):
                if record["kind"] != "end" or index > begun[record["trial"]]:  # a later attempt undoes an end
                    self.apply(record)
                ends[record["trial"]] = record["time"]
            names = [trial.trial for trial in self._history.trials_of("search", arm)]
            for name, trial in zip(names, self._storage.get_all_trials(self._study_ids[arm]), strict=True):
                if trial.state.is_finished():
                    trial.datetime_complete = datetime.fromtimestamp(ends[name])
                yield arm, name, trial

    def _write(self, trials: Iterable[tuple[str, str, FrozenTrial]]) -> None:
        """Make the file anew, and have it replace the old one whole."""
        trials = list(trials)
        new = self._path.with_name(f".{OPTUNA_FILE}.new")
        with space_for(new):
            new.parent.mkdir(parents=True, exist_ok=True)
        self._journal = _Journal(new)
        self._storage = JournalStorage(self._journal)
        self._study_ids = self._studies(self._storage)
        for arm, name, trial in trials:
            self._ids[name] = self._storage.create_new_trial(self._study_ids[arm], template_trial=trial)
        new.replace(self._path)

    def apply(self, record: Record) -> None:
        """Take in one record of the ledger that the history has taken in."""
        if record.get("phase") != "search" or record["kind"] not in ("trial", "measure", "end"):
            return
        name = record["trial"]
        if record["kind"] == "trial":
            if name not in self._ids:
                self._begin(record)
            elif self._storage.get_trial(self._ids[name]).state.is_finished():
                # A search that was extended goes on with a trial that had ended, which Optuna has no way to say.
                self._journal.close()
                self._ids, self._steps = {}, {}
                self._write(self._relived())
        elif record["kind"] == "measure":
            if record["rung"] is not None and record["yardsticks"]:
                value = float(record["yardsticks"][self._spec.yardsticks.primary]["overall"])
                self._steps[name] = step = rung_step(self._spec.search, record["rung"]), value
                self._storage.set_trial_intermediate_value(self._ids[name], *step)
        elif record["outcome"] in _STATES:
            self._end(name, record["outcome"], record["reason"])

    def _begin(self, record: Record) -> None:
        arm = record["arm"]
        trial = create_trial(
            state=TrialState.RUNNING,
            params=record["configuration"],
            distributions=self._distributions[arm],
            user_attrs={name: record[name] for name in ("arm", "trial", "seed")},
        )
        trial.datetime_start = datetime.fromtimestamp(record["time"])
        self._ids[record["trial"]] = self._storage.create_new_trial(
            self._study_ids[arm], template_trial=trial
        )

    def _end(self, name: str, outcome: str, reason: str) -> None:
        trial, number = self._history.trials[name], self._ids[name]
        values = None
        if outcome == "completed":
            values = objectives_of(trial, self._spec.search, self._spec.yardsticks.primary)
        elif outcome == "pruned":
            values = [self._steps[name][1]]  # as optuna.Study.tell has it
        self._steps.pop(name, None)
        for key, value in {"spent": trial.spent, "outcome": outcome, "reason": reason}.items():
            self._storage.set_trial_user_attr(number, key, value)
        # One that is complete has no values where its machine did not tell the cost.
        state = TrialState.FAIL if values is None else _STATES[outcome]
        self._storage.set_trial_state_values(number, state, values)


class _Journal(BaseJournalBackend):
    """Appends to a file that has one writer and can be made anew: without locks and waits for the disk.

    Raises:
        FullDiskError: from every method that writes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with space_for(path):
            self._file = path.open("wb")
        self._unread: list[dict[str, Any]] = []

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Optuna's interface."""
        lines = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        with space_for(self._path):
            self._file.write(lines)
            self._file.flush()
        self._unread += logs

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Optuna's interface. Its storage reads back what it has just appended, and nobody else appends."""
        logs, self._unread = self._unread, []
        return logs

    def close(self) -> None:
        with space_for(self._path), self._file:
            os.fsync(self._file.fileno())
