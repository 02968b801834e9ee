"""A study's results as pandas frames, charts and one typed report, read from its ledger alone.

The ledger is JSON: reading a stranger's study runs nothing of theirs, and needs no Ray.

>>> results = Results("studies/headless-vs-vanilla")
>>> results.trials.groupby("arm").recovery_accuracy.max()
>>> print(results.verdict)
>>> results.charts()["differences"].drawing.save("differences.html")
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING

from orchestrator import formatting
from orchestrator.analysis.answer import Answer, answer_of
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.methods import methods
from orchestrator.analysis.report import StudyReport, report_of
from orchestrator.analysis.rows import deviation, mean
from orchestrator.analysis.selection import best_of_search, chosen_runs, values_by_language
from orchestrator.config.folder import LEDGER, no_study
from orchestrator.ledger.history import read_history
from orchestrator.ledger.records import MeasureRecord
from orchestrator.ledger.segments import read_ledger
from orchestrator.reporting.result_grid import ResultGrid
from search_spaces import Configuration
from trainables.errors import InputError, nearest
from trainables.storage import Location

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.ledger.trials import TrialHistory
    from orchestrator.reporting.charts import Chart


class Results(ResultGrid):
    """What a study spent, measured and concluded so far; also of a study that still runs. ``folder`` is the study's,
    local or on an object store. It can be read as Ray Tune's results are, too. Raises InputError if it holds no study,
    or its ledger is damaged."""

    def __init__(self, folder: str | Location) -> None:
        self.folder = folder if isinstance(folder, Location) else Location(folder)
        self.history = read_history(self.folder / LEDGER)
        if self.history.study is None:
            raise no_study(self.folder)

    @property
    def head(self) -> str:
        """The digest of the whole ledger, 32 hexadecimal digits: ``h2h verify --head`` compares with it."""
        return self.history.head

    def __repr__(self) -> str:
        stopped = "stopped" if self.history.stop == "end" else "not finished"
        return f"Results('{self.folder}', {'finished' if self.history.finished else stopped})"

    def _repr_html_(self) -> str:
        from orchestrator.reporting.notebook import results_html

        return results_html(self.folder, self.history, self.answer)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial: what it was, how it ended, and one column per searched setting (``configuration.NAME``),
        budget unit (``spent.UNIT``) and yardstick (``NAME``, the last overall value), but for what was rolled back."""
        return _frame([self._describe(trial) for trial in self.history.trials.values()])

    def _describe(self, trial: TrialHistory) -> dict[str, object]:
        names = ("phase", "arm", "trial", "number", "seed", "outcome", "reason", "attempts", "progress")
        return {
            **{name: getattr(trial, name) for name in names},
            **{f"configuration.{name}": value for name, value in trial.configuration.items()},
            **{f"spent.{unit}": amount for unit, amount in trial.spent.items()},
            **{name: trial.score(name) for name in self.history.design.yardsticks.names},
        }

    @cached_property
    def spending(self) -> pd.DataFrame:
        """One row an attempt: what it cost (see :mod:`orchestrator.ledger.spending`): ``useful.UNIT``, ``lost.UNIT``,
        ``overhead.CAUSE`` in seconds, ``unreported_seconds``, and ``device_seconds`` and ``usd`` of all of it but for
        placement, at the prices of the session that asked for the attempt."""
        rows: list[dict[str, object]] = []
        for trial in self.history.trials.values():
            spendings = trial.spendings(self.history.updated)
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
        return _frame(rows)

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """One row a measure, flattened (``spent.tokens``, ``yardsticks.NAME.overall``), with its trial's ``seed``.
        ``counts`` is False for what a later attempt rolled back; ``data_wait_seconds`` is what the attempt has waited
        for data so far."""
        import pandas as pd

        counted = {
            (measure.trial, measure.attempt, measure.time, measure.step)
            for trial in self.history.trials.values()
            for measure in trial.measures
        }
        return pd.json_normalize(
            [
                {
                    **record.model_dump(),
                    "seed": self.history.trials[record.trial].seed,
                    "counts": (record.trial, record.attempt, record.time, record.step) in counted,
                    "data_wait_seconds": record.overhead.get("data_wait", 0.0),
                }
                for record in read_ledger(self.folder / LEDGER)
                if isinstance(record, MeasureRecord)
            ]
        )

    @cached_property
    def answer(self) -> Answer:
        """What the study says; see :func:`orchestrator.analysis.answer.answer_of`."""
        return answer_of(self.history)

    @cached_property
    def report(self) -> StudyReport:
        """All of it as one value: what ``h2h compare --json`` writes."""
        return report_of(self.history)

    def charts(self) -> dict[str, Chart]:
        """The figures of ``h2h report``, those for which there are numbers. ``.drawing`` is an Altair chart."""
        from orchestrator.reporting.charts import charts

        return charts(self.report)

    def write_figures(self, folder: str | Location) -> list[str]:
        """Write the figures as SVG, PDF and PNG, their specifications, and the report's tables as LaTeX and Markdown;
        gives the files' names."""
        from orchestrator.reporting.charts.files import write_charts, write_table
        from orchestrator.reporting.report_tables import tables

        to = folder if isinstance(folder, Location) else Location(folder)
        written = write_charts(to, self.charts().values())
        for name, table in tables(self.report).items():
            written += write_table(to, f"table-{name}", table)
        return written

    @property
    def methods(self) -> str:
        """The paragraph for a paper: what was done, with every run that failed, and what the answer speaks of."""
        return methods(self.history, self.answer.comparison)

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """One row per pair of arms and yardstick; the columns are :class:`orchestrator.analysis.comparison.Row`'s. The
        verdict stands in the rows of the primary yardstick, which alone decides it."""
        rows: list[dict[str, object]] = []
        for pair in self.answer.comparison.pairs:
            for name, row in pair.yardsticks.items():
                low, high = row.interval or (None, None)
                verdict = pair.verdict if row.role == "primary" else None
                bounds = {"interval_low": low, "interval_high": high, "verdict": verdict}
                flat = row.model_dump(exclude={"interval"})
                rows.append({"a": pair.a, "b": pair.b, "yardstick": name, **flat, **bounds})
        return _frame(rows)

    @cached_property
    def searches(self) -> pd.DataFrame:
        """One row per arm: what its search came to (:class:`orchestrator.analysis.comparison.SearchSummary`), and in
        ``boundaries`` the settings whose best value lies at a bound."""
        return _frame(
            [
                {"arm": arm, **summary.search.model_dump(), "boundaries": tuple(b.name for b in summary.boundaries)}
                for arm, summary in self.answer.comparison.arms.items()
                if summary.search is not None
            ]
        )

    @cached_property
    def tuning(self) -> pd.DataFrame:
        """One row per arm and point of its tuning curve: ``spent`` in trial budgets, and the best of so many trials
        (:class:`orchestrator.analysis.statistics.tuning_curves.TuningCurve`)."""
        rows: list[dict[str, object]] = []
        for arm, summary in self.answer.comparison.arms.items():
            if (curve := summary.tuning) is not None:
                points = zip(curve.spent, curve.n, curve.expected, curve.median, curve.low, curve.high, strict=False)
                names = ("spent", "n", "expected", "median", "low", "high")
                rows += [{"arm": arm, **dict(zip(names, point, strict=True))} for point in points]
        return _frame(rows)

    @cached_property
    def time_to_target(self) -> pd.DataFrame:
        """One row per pair of arms and budget unit, of a study with branches: what the first spends to reach the
        target over what the second does (:class:`orchestrator.analysis.statistics.time_to_target.TimeToTarget`)."""
        rows: list[dict[str, object]] = []
        for pair in self.answer.comparison.pairs:
            for unit, reached in pair.time_to_target.items():
                if reached is not None:
                    low, high = reached.interval or (None, None)
                    flat = {name: value for name, value in asdict(reached).items() if name != "interval"}
                    bounds = {"interval_low": low, "interval_high": high}
                    rows.append({"a": pair.a, "b": pair.b, "unit": unit, **flat, **bounds})
        return _frame(rows)

    @cached_property
    def languages(self) -> pd.DataFrame:
        """One row per arm, yardstick and language: mean and standard deviation over the ``n`` completed confirmation
        runs; the deviation is missing of fewer than two."""
        return _frame(
            [
                {"arm": arm, "yardstick": name, "language": language}
                | {"n": len(values), "mean": mean(values), "deviation": deviation(values)}
                for arm in self.history.design.arms
                for name in self.history.design.yardsticks.names
                for language, values in values_by_language(chosen_runs(self.history, arm), name).items()
            ]
        )

    @cached_property
    def language_differences(self) -> pd.DataFrame:
        """One row per pair of arms and language: the primary yardstick's ``n`` pairs of seeds, means, difference and
        interval (:class:`orchestrator.analysis.paired_seeds.LanguageDifference`). Exploratory."""
        rows: list[dict[str, object]] = []
        for pair in self.report.pairs:
            for row in pair.languages:
                low, high = row.interval or (None, None)
                bounds = {"interval_low": low, "interval_high": high}
                rows.append({"a": pair.a, "b": pair.b, **row.model_dump(exclude={"interval"}), **bounds})
        return _frame(rows)

    def best(self, arm: str) -> Configuration:
        """The configuration that stands for an arm: the confirmation's chosen one; before, the search's best. Raises
        InputError if the study has no such arm, or no trial of it has ended yet."""
        arms = self.history.design.arms
        if arm not in arms:
            raise InputError(f"no arm is called '{arm}'", remedy=nearest(arm, arms))
        trials = [*chosen_runs(self.history, arm).values(), best_of_search(self.history, arm)]
        if trials[0] is None:
            raise InputError(
                f"no trial of the arm '{arm}' has ended yet", remedy="ask again later; h2h watch shows the study"
            )
        return dict(trials[0].configuration)

    @property
    def verdict(self) -> str:
        """What the comparison says, in words."""
        return self.answer.verdict


@formatting.html.register
def _comparison_html(comparison: Comparison) -> str:
    from orchestrator.reporting.notebook import comparison_html

    return comparison_html(comparison)


def _frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)
