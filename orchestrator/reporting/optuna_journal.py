"""The search as Optuna's own file: what ``optuna``, ``optuna-dashboard`` and plain Optuna read.

``optuna.jsonl`` in the study's folder is a journal of Optuna's own, with an Optuna study for each arm, ``NAME/ARM``. It
follows from the ledger alone and is made whole when the search ends; nothing is ever read from it.

Of a trial it has the configuration with its distributions, the yardstick at each rung by the rung's budget in units of
the first rung's, the outcome (``completed``: COMPLETE, ``pruned``: PRUNED, ``diverged``, ``failed`` and ``lost``: FAIL;
what is yet to end: RUNNING), and as user attributes ``arm``, ``trial``, ``seed``, ``spent``, ``outcome``,
``reason`` and ``by_hand``.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from io import BytesIO
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.sampler import direction, distributions
from trainables.storage import Location

OPTUNA_FILE = "optuna.jsonl"

_STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "diverged": TrialState.FAIL,
    "lost": TrialState.FAIL,
    "failed": TrialState.FAIL,
    None: TrialState.RUNNING,
}


def write_optuna_journal(folder: Location, spec: StudySpec, history: History) -> None:
    """Make the file anew, whole. Raises FullDiskError if there is no space for it."""
    design = history.design
    higher = not design.lower_is_better(design.yardsticks.primary)
    journal = _Journal()
    storage = JournalStorage(journal)
    for arm, own in spec.arms.items():
        study = optuna.create_study(storage=storage, study_name=f"{spec.name}/{arm}", direction=direction(higher))
        varied = distributions(own.search_space.widest)
        trials = history.trials_of("search", arm)
        study.add_trials(_frozen(spec, trial, varied, design.yardsticks.primary) for trial in trials)
    (folder / OPTUNA_FILE).write_bytes(journal.lines.getvalue())


class _Journal(BaseJournalBackend):
    """As Optuna's own file of a journal, but in memory. Optuna's storage keeps all that it reads back of what it wrote.
    It needs the studies, as it looks up their ids, and to have read a trial at all: not ten thousand of them."""

    def __init__(self) -> None:
        self.lines = BytesIO()
        self._read_back: list[dict[str, Any]] = []
        self._has_trial = False

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write a line for each."""
        for log in logs:
            self.lines.write(json.dumps(log, separators=(",", ":")).encode() + b"\n")
            is_study = "study_name" in log
            if is_study or not self._has_trial:
                self._read_back.append(log)
            self._has_trial |= not is_study

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """The studies and the first trial, from so many on."""
        return self._read_back[log_number_from:]


def _frozen(spec: StudySpec, trial: TrialHistory, varied: dict[str, BaseDistribution], primary: str) -> FrozenTrial:
    steps = {
        int(spec.search.halving.reduction**measure.rung): measure.yardsticks[primary].overall
        for measure in trial.evaluations
        if measure.rung is not None and primary in measure.yardsticks
    }
    score = trial.score(primary) if trial.outcome in ("completed", "pruned") else None
    state = TrialState.FAIL if trial.outcome == "completed" and score is None else _STATES[trial.outcome]
    frozen = optuna.trial.create_trial(
        state=state,
        value=score,
        params=trial.configuration,
        distributions=varied,
        intermediate_values=steps,
        user_attrs={
            "arm": trial.arm,
            "trial": trial.trial,
            "seed": trial.seed,
            "spent": dict(trial.spent),
            "outcome": trial.outcome,
            "reason": trial.reason,
            "by_hand": trial.by_hand,
        },
    )
    frozen.datetime_start = datetime.fromtimestamp(trial.attempt_records[0].asked)
    ended = trial.attempt_records[-1].ended
    if state.is_finished() and ended is not None:
        frozen.datetime_complete = datetime.fromtimestamp(ended)
    return frozen
