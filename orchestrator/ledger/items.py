"""Scores of a study's trials item by item, as the comparison reads them. Letters: S runs, I items."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.ledger.records import EvaluationRecord, TuningRecord
from orchestrator.ledger.trials import TrialHistory
from trainables.errors import InputError
from trainables.evaluation.item_scores import ItemScores, from_parquet, items_file
from trainables.hashing import checksum
from trainables.storage import Location


class Influences(NamedTuple):
    """What each item does to a yardstick of each of some runs, to first order."""

    influence_SI: NDArray[np.float64]  # of a run and a language they sum to 0
    language_I: NDArray[np.str_]
    item_I: NDArray[np.int64]  # numbers of units of text, as those of scores


def read_items(folder: Location, run: TrialHistory) -> dict[tuple[str, str], ItemScores]:
    """By yardstick and scorer, the item scores of a completed run; empty where its report names no file.

    Raises InputError: the file is gone, or is not the one that the report is of.
    """
    digest = run.measures[-1].items if run.measures else None
    return {} if digest is None else _read(items_file(folder, run.trial).uri, run.trial, digest)


def read_floors(folder: Location, run: TrialHistory) -> dict[tuple[str, str], ItemScores]:
    """By yardstick and table (or ``untrained``), the item scores of the floors that a run measured; empty where it has
    none. Raises as :func:`read_items` does."""
    digest = None if run.floors is None else run.floors.items
    return {} if digest is None else _read(items_file(folder, run.trial, floors=True).uri, run.trial, digest)


def read_evaluation(folder: Location, record: EvaluationRecord) -> dict[tuple[str, str], ItemScores]:
    """Likewise of a model that was evaluated when the study had ended."""
    return _read(evaluation_file(folder, record.tasks, record.trial).uri, record.trial, record.items)


def evaluation_file(folder: Location, tasks: str, trial: str) -> Location:
    """Where a study in the folder has it."""
    return folder / f"evaluations/{tasks}/{trial}.parquet"


def read_tuning(folder: Location, record: TuningRecord) -> dict[tuple[str, str], ItemScores]:
    """Likewise of a model that was fine-tuned to a task, by fine-tuning in the place of a scorer."""
    return _read(tuning_file(folder, record.trial, record.task, record.rate).uri, record.trial, record.items)


def tuning_file(folder: Location, trial: str, task: str, rate: float) -> Location:
    """Where a study in the folder has it."""
    return folder / f"fine_tuning/{trial}/{task}-{rate:g}.parquet"


@lru_cache(maxsize=256)  # a dashboard asks again and again
def _read(uri: str, trial: str, digest: str) -> dict[tuple[str, str], ItemScores]:
    file = Location(uri)
    content = file.read_bytes() if file.exists() else b""
    if checksum(content) != digest:
        raise InputError(
            f"the scores of the items of {trial} are {'not those that it reported' if content else 'missing'}",
            where=str(file),
            why=f"its report in the ledger has the digest {digest}",
            remedy="put back the file as the trial wrote it",
        )
    return from_parquet(content, str(file))


def influences(runs: Sequence[ItemScores]) -> Influences:
    """Of one yardstick of several runs on the same items. Raises InputError where the items differ."""
    first = runs[0]
    for run in runs[1:]:
        if not (np.array_equal(run.language_I, first.language_I) and np.array_equal(run.item_I, first.item_I)):
            raise InputError(
                "two runs were scored on different items",
                why="they saw other held-out text, or other amounts of it",
                remedy="compare runs of one study, none of whose files was exchanged",
            )
    return Influences(np.stack([run.influences() for run in runs]), first.language_I, first.item_I)
