"""Learning curves by arm, against any unit that is measured, and performance profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import altair as alt

from orchestrator import formatting
from orchestrator.analysis import learning_curves, profile
from orchestrator.analysis.learning_curves import LearningCurve
from orchestrator.analysis.report import StudyReport
from orchestrator.reporting.charts.chart import WIDTH, Chart, Datum, colours, legend, made, of
from orchestrator.reporting.table import Table
from trainables.training.config import Unit

UNITS: tuple[Unit, ...] = ("tokens", "flops", "device_seconds", "usd", "joules")
"""That curves are drawn against, where they are known."""

_AXES = {"device_seconds": "device time (s)", "usd": "US dollars", "joules": "energy (J)"}


def learning(report: StudyReport) -> Iterator[Chart]:
    """A chart a unit, the binding one first."""
    curves = [curve for curve in report.curves if any(run.points for run in curve.runs)]
    binding = report.comparison.unit
    for unit in sorted(UNITS, key=lambda unit: unit != binding):
        if curves and all(unit in run.points[-1].spent for curve in curves for run in curve.runs if run.points):
            yield _learning(report, curves, unit)


def _learning(report: StudyReport, curves: Sequence[LearningCurve], unit: Unit) -> Chart:
    labels = {curve.arm: _label(curve) for curve in curves}
    runs: list[Datum] = [
        {
            "arm": labels[curve.arm],
            "run": run.trial,
            "x": point.spent[unit],
            "y": point.value,
            "tip": f"{curve.arm}, seed {run.seed}, {run.outcome or 'running'}",
        }
        for curve in curves
        for run in curve.runs
        for point in run.points
    ]
    means: list[Datum] = [
        {
            "arm": labels[curve.arm],
            "x": point.spent[unit],
            "y": point.value,
            "low": (point.interval or (point.value,) * 2)[0],
            "high": (point.interval or (point.value,) * 2)[1],
            "tip": f"{curve.arm} at {formatting.quantity(point.spent[unit], unit)}: {formatting.score(point.value)}"
            + (_interval(point.interval) if point.interval else ""),
        }
        for curve in curves
        for point in curve.mean
    ]
    primary = report.comparison.primary
    said = legend()
    color = alt.Color("arm:N", scale=colours(list(labels.values())), legend=said)
    x = alt.X("x:Q", axis=alt.Axis(title=_AXES.get(unit, formatting.UNIT_TITLES[unit]), format="~s"))
    y = alt.Y("y:Q", axis=alt.Axis(title=primary), scale=alt.Scale(zero=False))
    single = (
        alt.Chart(of("runs"))
        .mark_line(strokeWidth=1, opacity=0.3)
        .encode(x, y, color, alt.Detail("run:N"), alt.Description("tip:N"), alt.Tooltip("tip:N"))
    )
    mean = alt.Chart(of("means")).encode(x, color)
    band = mean.mark_area(opacity=0.2, aria=False).encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    line = mean.mark_line(strokeWidth=2.5, aria=False).encode(y)
    dots = mean.mark_point(size=36, filled=True, opacity=1).encode(y, alt.Description("tip:N"), alt.Tooltip("tip:N"))
    title = formatting.UNIT_TITLES[unit]
    words = f"Thick: mean over seeds; band: {learning_curves.INTERVAL}; thin: single runs."
    return made(
        f"learning-{unit.replace('_', '-')}",
        f"{primary} on the validation split by {title}",
        words,
        alt.layer(single, band, line, dots).properties(width=WIDTH, height=260),
        _numbers(curves, unit),
        {"runs": runs, "means": means},
    )


def _label(curve: LearningCurve) -> str:
    others = "".join(f", {count} {outcome}" for outcome, count in sorted(curve.others.items()))
    return f"{curve.arm}: n = {curve.n} of {formatting.plural(curve.planned, 'run')}{others}"


def _interval(interval: tuple[float, float]) -> str:
    return f" [{formatting.score(interval[0])}, {formatting.score(interval[1])}]"


def _numbers(curves: Sequence[LearningCurve], unit: Unit) -> Table:
    rows = [
        [
            curve.arm,
            str(curve.n),
            f"{point.progress:.0%}",
            formatting.quantity(point.spent[unit], unit),
            formatting.score(point.value) + (_interval(point.interval) if point.interval else ""),
        ]
        for curve in curves
        for point in curve.mean
    ]
    return Table.of(["arm", "n", "of its budget", formatting.UNIT_TITLES[unit], "mean"], rows, numbers=True)


def performance_profile(report: StudyReport) -> Iterator[Chart]:
    """On what share of runs and languages each arm is better than a value."""
    if not report.profiles:
        return
    labels: Mapping[str, str] = {
        found.arm: f"{found.arm}: n = {formatting.plural(found.n, 'run')}"
        + (f" by {formatting.plural(found.languages, 'language')}" if found.languages > 1 else "")
        + (f", {found.broken} of them broke" if found.broken else "")
        for found in report.profiles
    }
    data: list[Datum] = [
        {
            "arm": labels[found.arm],
            "x": point.value,
            "y": point.share,
            "low": (point.interval or (point.share,) * 2)[0],
            "high": (point.interval or (point.share,) * 2)[1],
            "tip": f"{found.arm}: {point.share:.0%} better than {formatting.score(point.value)}",
        }
        for found in report.profiles
        for point in found.points
    ]
    primary = report.comparison.primary
    color = alt.Color("arm:N", scale=colours(list(labels.values())), legend=legend())
    x = alt.X("x:Q", axis=alt.Axis(title=f"{primary}, test split"), scale=alt.Scale(zero=False))
    shared = alt.Chart(of("profiles")).encode(x, color)
    band = shared.mark_area(opacity=0.2, interpolate="step-after", aria=False).encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    y = alt.Y("y:Q", axis=alt.Axis(title="share that is better", format="%"))
    line = shared.mark_line(strokeWidth=2.5, interpolate="step-after", aria=False).encode(y)
    dots = shared.mark_point(size=16, filled=True).encode(y, alt.Description("tip:N"), alt.Tooltip("tip:N"))
    rows = [
        [found.arm, str(found.n), formatting.score(point.value), f"{point.share:.0%}"]
        for found in report.profiles
        for point in found.points[::5]
    ]
    yield made(
        "profile",
        "Share of runs and languages that are better than a value",
        f"Band: {profile.INTERVAL}. Exploratory.",
        alt.layer(band, line, dots).properties(width=WIDTH, height=220),
        Table.of(["arm", "n", primary, "share better"], rows, numbers=True),
        {"profiles": data},
    )
