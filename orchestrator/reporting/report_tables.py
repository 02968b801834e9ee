"""What a report has beside the answer's tables: what differed, robustness, failures, spending, every trial."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator import formatting
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.report import StudyReport, TrialRow
from orchestrator.ledger.records import BROKEN
from orchestrator.reporting.result_tables import arms_table, comparison_table, own_tasks_table, search_table
from orchestrator.reporting.table import Align, Row, Table
from search_spaces import Configuration
from trainables.training.config import Unit

_DEVICE = ("useful", "overhead", "lost", "unreported")
_LEFT: tuple[Align, ...] = ("left",)
_RIGHT: tuple[Align, ...] = ("right",)


def tables(report: StudyReport) -> dict[str, Table]:
    """All of a study's tables, by the names of their files."""
    found = {
        "arms": arms_table(report.comparison),
        "comparison": comparison_table(report.comparison),
        "tasks": own_tasks_table(report.comparison),
        "languages": languages(report),
        "differed": differed(report.comparison),
        "robustness": robustness(report.comparison),
        "search": search_table(report.comparison),
        "spending-by-kind": spending(report),
        "overhead": overhead(report),
        "failures": failures(report),
        "trials": trials(report),
    }
    return {name: table for name, table in found.items() if table.rows}


def differed(comparison: Comparison) -> Table:
    """What each arm was: what it was set to, what it trained, on what, and what a run spent in the mean."""
    arms = list(comparison.arms.values())
    settings = list(dict.fromkeys(name for arm in arms for name in arm.configuration or {}))
    units: list[Unit] = list(dict.fromkeys(unit for arm in arms for unit in arm.a_run))
    rows = [
        ["objective", *(arm.objective for arm in arms)],
        ["task", *(arm.task for arm in arms)],
        *([name, *(_setting(arm.configuration, name) for arm in arms)] for name in settings),
        ["parameters", *(_each(f"{built.parameters:,}" for built in arm.built) for arm in arms)],
        ["device", *(_each(built.device for built in arm.built) for arm in arms)],
        ["precision", *(_each(built.precision for built in arm.built) for arm in arms)],
        *(
            [
                f"{formatting.UNIT_TITLES[unit]} a run",
                *(formatting.quantity(arm.a_run[unit], unit) if unit in arm.a_run else "–" for arm in arms),
            ]
            for unit in units
        ),
    ]
    told = [Row(tuple(row), quiet=len(set(row[1:])) == 1) for row in rows]
    return Table(("of each", *comparison.arms), tuple(told), notes=("Quiet rows are the same for all arms.",))


def _setting(configuration: Configuration | None, name: str) -> str:
    return formatting.setting(configuration[name]) if configuration and name in configuration else "–"


def _each(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values))) or "–"


def robustness(comparison: Comparison) -> Table:
    """The verdict where one choice of the analysis is another."""
    rows = [
        Row((f"{pair.a} – {pair.b}", variant.name, variant.verdict, "yes" if variant.verdict == pair.verdict else "no"))
        for pair in comparison.pairs
        for variant in pair.variants
    ]
    return Table(("pair", "variant of the analysis", "verdict", "the same"), tuple(rows))


def spending(report: StudyReport) -> Table:
    """Device time of each arm and phase by kind, and all of it in every unit that is known."""
    units = [unit for unit in formatting.UNIT_TITLES if any(unit in row.total for row in report.spending)]
    rows = [
        [
            found.arm,
            found.phase,
            *(formatting.duration(getattr(found, kind)) for kind in _DEVICE),
            *(formatting.quantity(found.total[unit], unit) if unit in found.total else "–" for unit in units),
        ]
        for found in report.spending
    ]
    columns = ["arm", "phase", *_DEVICE, *(f"all {formatting.UNIT_TITLES[unit]}" for unit in units)]
    notes = ("useful, overhead, lost and unreported are device time; the rest is all of it, useful or not",)
    return Table.of(columns, rows, (*_LEFT * 2, *_RIGHT * (len(columns) - 2)), notes)


def languages(report: StudyReport) -> Table:
    """The primary yardstick on each language's own text, of every pair of arms."""
    rows, seeds_alone = [], False
    for pair in report.pairs:
        for found in pair.languages:
            seeds_alone |= not found.text
            rows.append(
                [
                    f"{pair.a} –\n{pair.b}",
                    found.language if found.text else f"{found.language} *",
                    str(found.n),
                    formatting.score(found.mean_a),
                    formatting.score(found.mean_b),
                    formatting.difference(found.difference, found.interval, "\n"),
                ]
            )
    notes = [f"{report.comparison.primary}; n: pairs of runs; intervals: 95%, not adjusted for the number of languages"]
    notes += ["* the interval is over seeds alone: the language's text is too little to show its chance"] * seeds_alone
    columns = ["pair", "language", "n", "first", "second", "difference"]
    return Table.of(columns, rows, (*_LEFT * 2, *_RIGHT * 3, "left"), notes)


def overhead(report: StudyReport) -> Table:
    """Seconds beside training steps, by cause."""
    causes = list(dict.fromkeys(cause for found in report.spending for cause in found.overhead_seconds))
    rows = [
        [found.arm, found.phase, *(formatting.duration(found.overhead_seconds.get(cause, 0.0)) for cause in causes)]
        for found in report.spending
    ]
    align = (*_LEFT * 2, *_RIGHT * len(causes))
    return Table.of(["arm", "phase", *(cause.replace("_", " ") for cause in causes)], rows if causes else [], align)


def failures(report: StudyReport) -> Table:
    """The trials that diverged, failed or were lost, and those of which an attempt was repeated."""
    rows = [
        [found.trial, found.outcome or "not ended", str(found.retried), found.reason]
        for found in report.trials
        if found.outcome in ("lost", *BROKEN) or found.retried
    ]
    return Table.of(["trial", "outcome", "repeated", "reason"], rows, (*_LEFT * 2, *_RIGHT))


def trials(report: StudyReport) -> Table:
    """Every trial."""
    unit = report.comparison.unit
    names = list(dict.fromkeys(name for found in report.trials for name in found.yardsticks))
    units: list[Unit] = [unit] if unit == "device_seconds" else [unit, "device_seconds"]
    columns = ["trial", "configuration", "outcome", "seed", "attempts", "progress"]
    columns += [formatting.UNIT_TITLES[unit] for unit in units] + names
    rows = [
        [
            found.trial,
            formatting.settings(found.configuration, "\n"),
            found.outcome or "not ended",
            str(found.seed),
            str(found.attempts),
            f"{found.progress:.0%}",
            *(_spent(found, unit) for unit in units),
            *(formatting.score(found.yardsticks.get(name)) for name in names),
        ]
        for found in report.trials
    ]
    return Table.of(columns, rows, (*_LEFT * 3, *_RIGHT * (len(columns) - 3)))


def _spent(trial: TrialRow, unit: Unit) -> str:
    return formatting.quantity(trial.spent[unit], unit) if unit in trial.spent else "–"


def names(reports: Sequence[StudyReport]) -> list[str]:
    """What tells studies apart: their names, and their folders where several have one name."""
    shared = Counter(report.name for report in reports)
    return [report.name if shared[report.name] == 1 else report.folder for report in reports]


def studies(reports: Sequence[StudyReport]) -> Table:
    """A row for each study and pair of arms."""
    rows = []
    for report, name in zip(reports, names(reports), strict=True):
        comparison = report.comparison
        for pair in comparison.pairs:
            row = pair.yardsticks[comparison.primary]
            rows.append(
                [
                    name,
                    f"{pair.a} –\n{pair.b}",
                    pair.verdict + ("\n(exploratory)" if pair.standing == "exploratory" else ""),
                    comparison.primary,
                    str(row.n),
                    formatting.difference(row.difference, row.interval, "\n"),
                    formatting.p_value(row.p_adjusted),
                    formatting.quantity(comparison.amount, comparison.unit),
                    report.protocol_digest,
                ]
            )
        if not comparison.pairs:
            rows.append([name, "–", "nothing is compared", comparison.primary, *["–"] * 5])
    columns = ["study", "pair", "verdict", "yardstick", "n", "difference", "p\n(adjusted)", "budget", "protocol"]
    return Table.of(columns, rows, (*_LEFT * 4, *_RIGHT, *_LEFT, *_RIGHT * 2))


def day(seconds: float) -> str:
    """``2026-01-31 14:05 UTC``, of seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
