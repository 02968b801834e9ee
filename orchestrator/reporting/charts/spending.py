"""What was spent on what, and what it takes to get as far."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from orchestrator import formatting
from orchestrator.analysis.report import StudyReport
from orchestrator.reporting.charts.chart import (
    ARM_COLOURS,
    KIND_COLOURS,
    QUIET,
    ROW,
    WIDTH,
    Chart,
    Datum,
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
    data: list[Datum] = []
    rows, seeds = [], set()
    for pair in report.comparison.pairs:
        for unit, found in pair.time_to_target.items():
            if found is None or found.ratio is None:
                continue
            bound = {"=": "", "<=": "at most ", ">=": "at least "}[found.relation or "="]
            low, high = found.interval or (None, None)
            name = f"{pair.a} over {pair.b}\n{formatting.UNIT_TITLES[unit]}, n = {formatting.plural(found.n, 'seed')}"
            ends = f" [{_end(low)}, {_end(high)}]" if found.interval else ""
            target = formatting.score(found.target)
            data.append(
                {
                    "row": name,
                    "ratio": found.ratio,
                    "low": low,
                    "high": high,
                    "label": f"{bound}{found.ratio:.2f}",
                    "tip": f"{bound}{found.ratio:.2f}{ends} times as much to reach {target}",
                }
            )
            seeds.add(found.n)
            reached = f"{found.reached_a} and {found.reached_b}"
            place = f"{pair.a} over {pair.b}, {formatting.UNIT_TITLES[unit]}"
            rows.append([place, str(found.n), target, reached, f"{bound}{found.ratio:.2f}{ends}"])
    if not data:
        return
    names = list(dict.fromkeys(str(row["row"]) for row in data))
    shared = alt.Chart(of("ratios")).encode(named_rows(names), alt.Description("tip:N"), alt.Tooltip("tip:N"))
    axis = alt.Axis(title="times the second arm's spending (less than 1: the first gets there with less)")
    x = alt.X("ratio:Q", axis=axis, scale=alt.Scale(type="log"))
    one = alt.Chart(of("one")).mark_rule(color=QUIET, strokeDash=[4, 3], aria=False).encode(alt.X("one:Q"))
    whole = "isValid(datum.low) && isValid(datum.high)"
    bars = (
        shared.transform_filter(whole)
        .mark_rule(strokeWidth=4, color=ARM_COLOURS[0])
        .encode(alt.X("low:Q"), alt.X2("high:Q"))
    )
    dots = shared.mark_point(size=90, filled=True, opacity=1, color=ARM_COLOURS[0]).encode(x)
    said = shared.mark_text(dy=-12, color=QUIET, fontSize=12, aria=False).encode(alt.X("ratio:Q"), alt.Text("label:N"))
    few = "" if min(seeds) >= 6 else " None below 6 seeds."
    yield made(
        "time-to-target",
        f"Spending to reach the same {report.comparison.primary}",
        f"Point: ratio of the arms' mean curves of annealed models; interval: 95%, bootstrap over seeds in pairs.{few} "
        "Exploratory.",
        alt.layer(one, bars, dots, said).properties(width=WIDTH, height=ROW * 1.4 * len(names)),
        Table.of(["pair and unit", "n", "target", "runs that reach it", "ratio"], rows, numbers=True),
        {"ratios": data, "one": [{"one": 1}]},
    )


def _end(end: float | None) -> str:
    return "–" if end is None else f"{end:.2f}"
