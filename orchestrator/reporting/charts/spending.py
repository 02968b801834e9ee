"""What was spent on what, and what it takes to get as far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from orchestrator import formatting
from orchestrator.analysis.report import StudyReport
from orchestrator.reporting.charts.chart import (
    ARM_COLOURS,
    INK,
    KIND_COLOURS,
    QUIET,
    ROW,
    WIDTH,
    Chart,
    Datum,
    Drawing,
    colours,
    made,
    named_rows,
    of,
)
from orchestrator.reporting.table import Table

KINDS = ("useful", "overhead", "lost", "unreported")


def by_kind(report: StudyReport) -> Iterator[Chart]:
    """Device time of every arm and phase."""
    if not any(spending.total.get("device_seconds") for spending in report.spending):
        return
    data: list[Datum] = []
    rows = []
    for spending in report.spending:
        amounts = [float(getattr(spending, kind)) for kind in KINDS]
        count = sum((trial.phase, trial.arm) == (spending.phase, spending.arm) for trial in report.trials)
        name = f"{spending.arm}, {spending.phase}\nn = {formatting.plural(count, 'trial')}"
        for place, (kind, amount) in enumerate(zip(KINDS, amounts, strict=True)):
            tip = f"{spending.arm}, {spending.phase}, {kind}: {formatting.duration(amount)}"
            data.append({"row": name, "kind": kind, "order": place, "amount": amount, "tip": tip})
        rows.append([f"{spending.arm}, {spending.phase}", *map(formatting.duration, amounts)])
    names = list(dict.fromkeys(str(row["row"]) for row in data))
    bars = (
        alt.Chart(of("amounts"))
        .mark_bar()
        .encode(
            alt.X("sum(amount):Q", axis=alt.Axis(title="device time (s)", format="~s")),
            named_rows(names),
            alt.Color("kind:N", scale=colours(KINDS, KIND_COLOURS), legend=alt.Legend(title=None, orient="top")),
            alt.Order("order:Q"),
            alt.Description("tip:N"),
            alt.Tooltip("tip:N"),
        )
    )
    yield made(
        "spending",
        "Device time by kind",
        "Useful: steps that the models have; overhead: start-up, compiling, evaluation, checkpoints, waiting for data; "
        "lost: steps done again after a failure; unreported: between the reports. Sums, not means.",
        alt.layer(bars).properties(width=WIDTH, height=ROW * 1.2 * len(names)),
        Table.of(["arm and phase", *KINDS], rows, numbers=True),
        {"amounts": data},
    )


def time_to_target(report: StudyReport) -> Iterator[Chart]:
    """What the first of two arms spends to reach the target, over what the second does."""
    found = [
        (pair, unit, reached, reached.ratio)
        for pair in report.comparison.pairs
        for unit, reached in pair.time_to_target.items()
        if reached is not None and reached.ratio is not None
    ]
    if not found:
        return
    known = [
        end for _, _, reached, ratio in found for end in (ratio, 1.0, *(reached.interval or ())) if end is not None
    ]
    edges = min(known) / 1.2, max(known) * 1.2  # of what is open
    data: list[Datum] = []
    rows = []
    for pair, unit, reached, ratio in found:
        low, high = reached.interval or (ratio, ratio)
        title, target = formatting.UNIT_TITLES[unit], formatting.score(reached.target)
        bound = {"=": "", "<=": "at most ", ">=": "at least "}[reached.relation or "="]
        ends = f" [{_end(low)}, {_end(high)}]" if reached.interval else ""
        data.append(
            {
                "row": f"{pair.a} over {pair.b}\n{title}, n = {formatting.plural(reached.n, 'seed')}",
                "ratio": ratio,
                "low": edges[0] if low is None else low,
                "high": edges[1] if high is None else high,
                "open": low is None or high is None,
                "label": f"{bound}{ratio:.2f}",
                "tip": f"{bound}{ratio:.2f}{ends} times as much to reach {target}",
            }
        )
        both = f"{reached.reached_a} and {reached.reached_b}"
        rows.append([f"{pair.a} over {pair.b}, {title}", str(reached.n), target, both, f"{bound}{ratio:.2f}{ends}"])
    yield made(
        "time-to-target",
        f"Spending to reach the same {report.comparison.primary}",
        "Point: ratio of the arms' mean curves of annealed models, or a bound of it; bar: 95%, bootstrap over seeds in "
        "pairs, none of fewer than 6; dashed: an end is open. Exploratory.",
        _ratios([str(row["row"]) for row in data]),
        Table.of(["pair and unit", "n", "target", "runs that reach it", "ratio"], rows, numbers=True),
        {"ratios": data, "one": [{"one": 1}]},
    )


def _ratios(names: Sequence[str]) -> Drawing:
    shared = alt.Chart(of("ratios")).encode(named_rows(names), alt.Description("tip:N"), alt.Tooltip("tip:N"))
    axis = alt.Axis(title="times the second arm's spending (less than 1: the first gets there with less)")
    x = alt.X("ratio:Q", axis=axis, scale=alt.Scale(zero=False))
    one = alt.Chart(of("one")).mark_rule(color=QUIET, strokeDash=[4, 3], aria=False).encode(alt.X("one:Q"))
    dash = alt.condition("datum.open", alt.value([6, 4]), alt.value([1, 0]))
    bars = shared.mark_rule(strokeWidth=4, color=ARM_COLOURS[0]).encode(
        alt.X("low:Q"), alt.X2("high:Q"), strokeDash=dash
    )
    dots = shared.mark_point(size=90, filled=True, opacity=1, color=ARM_COLOURS[0]).encode(x)
    said = shared.mark_text(dy=-12, dx=30, color=INK, fontSize=12, aria=False).encode(
        alt.X("ratio:Q"), alt.Text("label:N")
    )
    return alt.layer(one, bars, dots, said).properties(width=WIDTH, height=ROW * 1.4 * len(names))


def _end(end: float | None) -> str:
    return "–" if end is None else f"{end:.2f}"
