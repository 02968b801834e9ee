"""How the arms' searches went: the configurations tried, and how good the best of so many is. Exploratory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from orchestrator import formatting
from orchestrator.analysis.comparison import ArmSummary
from orchestrator.analysis.report import SearchedPoint, StudyReport
from orchestrator.reporting.charts.chart import WIDTH, Chart, Datum, colours, legend, made, of
from orchestrator.reporting.table import Align, Table

_SHAPES = {
    "completed": "circle",
    "pruned": "cross",
    "diverged": "triangle-up",
    "failed": "triangle-down",
    "lost": "square",
    "running": "diamond",
}


def tuning(report: StudyReport) -> Iterator[Chart]:
    """The median best by spending, over the configurations that were tried."""
    arms = {name: arm for name, arm in report.comparison.arms.items() if arm.tuning is not None and arm.tuning.spent}
    if not arms:
        return
    primary, labels = report.comparison.primary, {name: _label(name, arm) for name, arm in arms.items()}
    configurations = {trial.trial: formatting.settings(trial.configuration) for trial in report.trials}
    points = [point for point in report.searched if point.arm in arms]
    tried: list[Datum] = [
        {
            "arm": labels[point.arm],
            "x": point.spent,
            "y": point.value,
            "outcome": point.outcome or "running",
            "tip": f"{point.trial} {point.outcome or 'running'}, {formatting.score(point.value)}: "
            + configurations[point.trial],
        }
        for point in points
    ]
    shapes = {name: shape for name, shape in _SHAPES.items() if any(row["outcome"] == name for row in tried)}
    color = alt.Color("arm:N", scale=colours(list(labels.values())), legend=legend())
    x = alt.X("x:Q", axis=alt.Axis(title="spent on the search, in trial budgets"))
    y = alt.Y("y:Q", axis=alt.Axis(title=f"{primary}, validation split"), scale=alt.Scale(zero=False))
    shape = alt.Shape(
        "outcome:N",
        scale=alt.Scale(domain=list(shapes), range=list(shapes.values())),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    dots = (
        alt.Chart(of("tried"))
        .mark_point(size=40, opacity=0.55, strokeWidth=1.2)
        .encode(x, y, color, shape, alt.Description("tip:N"), alt.Tooltip("tip:N"))
    )
    curves = alt.Chart(of("curves")).encode(x, color)
    median = curves.mark_line(strokeWidth=2.5, aria=False).encode(alt.Y("median:Q"))
    bounds = [
        curves.mark_line(strokeWidth=1, strokeDash=[4, 3], aria=False).encode(alt.Y(f"{bound}:Q"))
        for bound in ("low", "high")
    ]
    yield made(
        "tuning",
        f"Best {primary} of a search by what it spent",
        "Thick: median best of so many trials; dashed: its 95% band, for all at once and without assumptions, where "
        "the trials set a bound (Lourie et al. 2024). Marks: the configurations tried, in their order.",
        alt.layer(dots, *bounds, median).properties(width=WIDTH, height=260),
        _numbers(points),
        {"tried": tried, "curves": _curves(arms, labels)},
    )


def _label(name: str, arm: ArmSummary) -> str:
    counts, found = arm.counts["search"], arm.search
    begun = counts.planned if found is None else found.begun
    missing = {"pruned": counts.pruned, "diverged": counts.diverged, "failed": counts.failed, "lost": counts.lost}
    told = "".join(f", {count} {outcome}" for outcome, count in missing.items() if count)
    return f"{name}: n = {formatting.plural(begun, 'trial')}, {counts.completed} completed{told}"


def _curves(arms: dict[str, ArmSummary], labels: dict[str, str]) -> list[Datum]:
    rows: list[Datum] = []
    for name, arm in arms.items():
        assert arm.tuning is not None
        found = arm.tuning
        for spent, median, low, high in zip(found.spent, found.median, found.low, found.high, strict=True):
            rows.append({"arm": labels[name], "x": spent, "median": median, "low": low, "high": high})
    return rows


def _numbers(points: Sequence[SearchedPoint]) -> Table:
    rows = [
        [
            point.trial,
            f"{point.spent:.2g}",
            formatting.score(point.value),
            formatting.score(point.best),
            point.outcome or "running",
        ]
        for point in points
    ]
    align: tuple[Align, ...] = ("left", "right", "right", "right", "left")
    return Table.of(["trial", "spent so far", "value", "best so far", "outcome"], rows, align)
