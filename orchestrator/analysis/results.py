"""A study's results as pandas frames, read from its ledger alone.

The ledger is JSON: reading a stranger's study runs nothing of theirs, and needs no Ray.

>>> results = Results("studies/headless-vs-vanilla")
>>> results.trials.groupby("arm").recovery_accuracy.max()
>>> print(results.verdict)
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from orchestrator.analysis.comparison import best_of_search, chosen_runs, compare
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.config.folder import no_study
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.ledger.segments import read_ledger
from orchestrator.reporting.log_lines import finished
from trainables.errors import InputError, nearest
from trainables.storage import Location


class Results:
    """What a study spent, measured and concluded so far; also of a study that still runs.

    Args:
        folder: the study's folder, local or on an object store.

    Raises:
        InputError: the folder holds no study.
    """

    def __init__(self, folder: str | Location) -> None:
        self.folder = folder if isinstance(folder, Location) else Location(folder)
        self._records = read_ledger(self.folder / "ledger")
        self.history = History.of(self._records)
        if self.history.study is None:
            raise no_study(self.folder)

    def __repr__(self) -> str:
        stopped = "stopped" if self.history.stop == "end" else "not finished"
        return f"Results('{self.folder}', {'finished' if finished(self.history) else stopped})"

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial: what it was, how it ended, and

        one column per searched setting (``configuration.NAME``), budget unit (``spent.UNIT``) and yardstick
        (``NAME``, the last overall value). What a failure rolled back is not in it.
        """
        return pd.DataFrame([self._describe(trial) for trial in self.history.trials.values()])

    def _describe(self, trial: TrialHistory) -> dict[str, Any]:
        names = ("phase", "arm", "trial", "number", "seed", "outcome", "reason", "attempts", "progress")
        return {
            **{name: getattr(trial, name) for name in names},
            **{f"configuration.{name}": value for name, value in trial.configuration.items()},
            **{f"spent.{unit}": amount for unit, amount in trial.spent.items()},
            **{name: trial.score(name) for name in self._yardsticks},
        }

    @cached_property
    def spending(self) -> pd.DataFrame:
        """One row an attempt: what it cost (see :mod:`orchestrator.ledger.spending`).

        The columns are ``useful.UNIT`` and ``lost.UNIT``, ``overhead.CAUSE`` in seconds, ``unreported_seconds``, and
        ``device_seconds`` and ``usd`` of all of it but for placement, at the prices of the session that
        asked for the attempt.
        """
        rows = []
        for trial in self.history.trials.values():
            spendings = trial.spendings(self.history.updated or 0.0)
            for attempt, spending in zip(trial.attempt_records, spendings, strict=True):
                rows.append(
                    {
                        **{name: getattr(trial, name) for name in ("phase", "arm", "trial")},
                        "attempt": attempt.number,
                        "outcome": attempt.outcome,
                        **{f"useful.{unit}": amount for unit, amount in spending.useful.items()},
                        **{f"lost.{unit}": amount for unit, amount in spending.lost.items()},
                        **{f"overhead.{cause}": seconds for cause, seconds in spending.overhead.items()},
                        "unreported_seconds": spending.unreported_seconds,
                        "device_seconds": spending.device_seconds,
                        **({} if attempt.usd_per_hour is None else {"usd": spending.total("usd")}),
                    }
                )
        return pd.DataFrame(rows)

    @property
    def _yardsticks(self) -> list[str]:
        assert self.history.study is not None
        yardsticks = self.history.study["yardsticks"]
        return [yardsticks["primary"], *yardsticks["others"]]

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """One row a measure, flattened (``spent.tokens``, ``yardsticks.NAME.overall``).

        ``counts`` is False for what a later attempt rolled back. ``data_wait_seconds``: what the attempt has waited
        for data so far, its ``overhead.data_wait``.
        """
        counted = {id(measure) for trial in self.history.trials.values() for measure in trial.measures}
        measures = [record for record in self._records if record["kind"] == "measure"]
        return pd.json_normalize(
            [
                {
                    **measure,
                    "counts": id(measure) in counted,
                    "data_wait_seconds": measure["overhead"]["data_wait"],
                }
                for measure in measures
            ]
        )

    @cached_property
    def _comparison(self) -> dict[str, Any]:
        return compare(self.history)

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """One row per pair of arms and yardstick; see :mod:`orchestrator.analysis.comparison` for the columns.

        The verdict stands in the rows of the primary yardstick, which alone decides it.
        """
        rows = []
        for pair in self._comparison["pairs"]:
            for name, row in pair["yardsticks"].items():
                low, high = row["interval"] or (None, None)
                verdict = pair["verdict"] if row["role"] == "primary" else None
                bounds = {"interval_low": low, "interval_high": high, "verdict": verdict}
                flat = {key: value for key, value in row.items() if key != "interval"}
                rows.append({"a": pair["a"], "b": pair["b"], "yardstick": name, **flat, **bounds})
        return pd.DataFrame(rows)

    @cached_property
    def languages(self) -> pd.DataFrame:
        """Confirm means per language: one row per arm and yardstick, one column per language."""
        rows = {
            (arm, name): values["languages"]
            for arm, description in self._comparison["arms"].items()
            for name, values in description["yardsticks"].items()
            if values["languages"]
        }
        frame = pd.DataFrame.from_dict(rows, orient="index")
        if rows:
            frame.index = pd.MultiIndex.from_tuples(rows, names=["arm", "yardstick"])
        return frame

    def best(self, arm: str) -> dict[str, Any]:
        """The configuration that stands for an arm: confirm's chosen one; before confirm, search's best.

        Raises:
            InputError: the study has no such arm, or no trial of it has ended yet.
        """
        assert self.history.study is not None
        if arm not in self.history.study["arms"]:
            raise InputError(f"no arm is called '{arm}'", remedy=nearest(arm, self.history.study["arms"]))
        trials = [*chosen_runs(self.history, arm).values(), best_of_search(self.history, arm)]
        if trials[0] is None:
            raise InputError(f"no trial of the arm '{arm}' has ended yet", remedy="h2h watch, and ask again")
        return dict(trials[0].configuration)

    @property
    def verdict(self) -> str:
        """What the comparison says, in words."""
        return verdict_in_words(self._comparison)
