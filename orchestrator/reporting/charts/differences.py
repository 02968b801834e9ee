"""Intervals of differences: of the primary yardstick seed by seed, of all yardsticks, and by language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from orchestrator import formatting
from orchestrator.analysis.comparison import Comparison, Difference, Pair, Row
from orchestrator.analysis.paired_seeds import LanguageDifference, PairedSeeds
from orchestrator.analysis.report import StudyReport
from orchestrator.reporting.charts.chart import ARM_COLOURS, QUIET, ROW, WIDTH, Chart, Datum, made, named_rows, of
from orchestrator.reporting.table import Table

_STUDENT = "95%, Student's t over seeds"
MOST_GAPS = 6
_ZERO: tuple[Datum, ...] = ({"zero": 0},)


def by_seed(report: StudyReport) -> Iterator[Chart]:
    """The primary yardstick of every pair of arms, with the margin of equivalence."""
    comparison, primary = report.comparison, report.comparison.primary
    rows = [(pair, pair.yardsticks[primary]) for pair in comparison.pairs]
    if not any(row.n for _, row in rows):
        return
    names = [_named(pair, row) for pair, row in rows]
    own = {(found.a, found.b): found for found in report.pairs}
    seeds: list[Datum] = [
        {"row": name, "value": seed.difference, "tip": _seed_in_words(pair, own[pair.a, pair.b], place)}
        for name, (pair, _) in zip(names, rows, strict=True)
        if (pair.a, pair.b) in own
        for place, seed in enumerate(own[pair.a, pair.b].seeds)
    ]
    margins: list[Datum] = [
        {"row": name, "low": -pair.margin, "high": pair.margin, "tip": f"margin of equivalence ±{pair.margin:.2g}"}
        for name, (pair, _) in zip(names, rows, strict=True)
        if pair.margin is not None
    ]
    band = (
        alt.Chart(of("margins"))
        .mark_rect(color=QUIET, opacity=0.16)
        .encode(alt.X("low:Q"), alt.X2("high:Q"), named_rows(names), alt.Description("tip:N"), alt.Tooltip("tip:N"))
    )
    thin = (
        alt.Chart(of("seeds"))
        .mark_tick(thickness=1.5, size=20, opacity=0.6, color=QUIET)
        .encode(alt.X("value:Q"), named_rows(names), alt.Description("tip:N"), alt.Tooltip("tip:N"))
    )
    drawing = alt.layer(*([band] if margins else []), _zero(), thin, *_intervals("intervals", names, _axis(rows[0][1])))
    shaded = " Shaded: the margin of equivalence." if margins else ""
    told = f"Thick: mean and interval ({_method(comparison)}). Thin: single seeds.{shaded}"
    legend = " ".join([told, *_missing(comparison)])
    yield made(
        "differences",
        f"Difference of {primary} on the test split, seed by seed",
        legend,
        drawing.properties(width=WIDTH, height=ROW * 1.4 * len(rows)),
        _numbers("pair", [f"{pair.a} – {pair.b}" for pair, _ in rows], [row for _, row in rows], own),
        {"margins": margins, "seeds": seeds, "zero": _ZERO, "intervals": _data([row for _, row in rows], names)},
    )


def by_yardstick(report: StudyReport) -> Iterator[Chart]:
    """Every yardstick, each on its own axis; all but the primary one are exploratory."""
    comparison = report.comparison
    if not comparison.pairs or len(comparison.pairs[0].yardsticks) < 2:
        return
    panels, labels, found = [], list[str](), list[Difference]()
    data: dict[str, Sequence[Datum]] = {"zero": _ZERO}
    for name in comparison.pairs[0].yardsticks:
        rows = [(pair, pair.yardsticks[name]) for pair in comparison.pairs if pair.yardsticks[name].n]
        if not rows:
            continue
        role = "" if name == comparison.primary else ", exploratory"
        named = [_named(pair, row) for pair, row in rows]
        axis = _axis(rows[0][1], f"{name}{role}")
        data[name] = _data([row for _, row in rows], named)
        panel = alt.layer(_zero(), *_intervals(name, named, axis))
        panels.append(panel.properties(width=WIDTH, height=ROW * len(rows)))
        labels += [f"{name}: {pair.a} – {pair.b}" for pair, _ in rows]
        found += [row for _, row in rows]
    if panels:
        legend = (
            f"Mean and interval of the primary one: {_method(comparison)}; of the others as of a fixed number of seeds."
        )
        drawing = alt.vconcat(*panels).resolve_scale(x="independent")
        numbers = _numbers("yardstick and pair", labels, found)
        yield made("yardsticks", "Difference on every yardstick, on the test split", legend, drawing, numbers, data)


def by_language(report: StudyReport) -> Iterator[Chart]:
    """The primary yardstick on each language's text."""
    panels, labels, found = [], list[str](), list[LanguageDifference]()
    data: dict[str, Sequence[Datum]] = {"zero": _ZERO}
    for pair in report.pairs:
        if not any(row.n for row in pair.languages):
            continue
        named = [f"{row.language}, n = {row.n}" for row in pair.languages]
        axis = alt.Axis(title=f"{report.comparison.primary}, {pair.a} – {pair.b}")
        data[f"{pair.a} {pair.b}"] = _data(pair.languages, named)
        panel = alt.layer(_zero(), *_intervals(f"{pair.a} {pair.b}", named, axis))
        panels.append(panel.properties(width=WIDTH, height=ROW * len(named)))
        labels += [f"{pair.a} – {pair.b}, {row.language}" for row in pair.languages]
        found += pair.languages
    if panels:
        some, every = (test(row.text for row in found) for test in (any, all))
        text = " and held-out text" if every else " and, where it has units enough, held-out text" if some else ""
        legend = f"Mean and interval ({_STUDENT}{text}), exploratory: not adjusted."
        drawing = alt.vconcat(*panels).resolve_scale(x="shared")
        title = f"Difference of {report.comparison.primary} by language, on the test split"
        yield made("languages", title, legend, drawing, _numbers("pair and language", labels, found), data)


def _method(comparison: Comparison) -> str:
    primary = [pair.yardsticks[comparison.primary] for pair in comparison.pairs]
    text = " and held-out text" if any(row.text_error is not None for row in primary) else ""
    looks = any(pair.stopping is not None for pair in comparison.pairs)
    return f"{_STUDENT}{text}{', by the rule of adaptive stopping' if looks else ''}"


def _named(pair: Pair, row: Difference) -> str:
    return f"{pair.a} – {pair.b}\nn = {formatting.plural(row.n, 'seed')}"


def _missing(comparison: Comparison) -> Iterator[str]:
    """The runs without which their seeds are no pairs."""
    for pair in comparison.pairs:
        gaps = [f"seed {gap.seed} ({gap.arm} {gap.outcome})" for gap in pair.missing]
        more = f" and {len(gaps) - MOST_GAPS} more" if len(gaps) > MOST_GAPS else ""
        if gaps:
            of = f" of {pair.a} – {pair.b}" if len(comparison.pairs) > 1 else ""
            yield f"Missing{of}: {', '.join(gaps[:MOST_GAPS])}{more}."


def _axis(row: Row, title: str = "difference") -> alt.Axis:
    return alt.Axis(title=f"{title}, first – second{' (lower is better)' if row.lower_is_better else ''}")


def _zero() -> alt.Chart:
    rule: alt.Chart = (
        alt.Chart(of("zero")).mark_rule(color=QUIET, strokeDash=[4, 3], aria=False).encode(alt.X("zero:Q"))
    )
    return rule


def _data(rows: Sequence[Difference], names: Sequence[str]) -> list[Datum]:
    return [
        {
            "row": name,
            "value": row.difference,
            "low": row.interval[0] if row.interval else row.difference,
            "high": row.interval[1] if row.interval else row.difference,
            "tip": f"{formatting.difference(row.difference, row.interval)}, n = {row.n}",
        }
        for name, row in zip(names, rows, strict=True)
        if row.n
    ]


def _intervals(data: str, names: Sequence[str], axis: alt.Axis) -> list[alt.Chart]:
    shared = alt.Chart(of(data)).encode(named_rows(names), alt.Description("tip:N"), alt.Tooltip("tip:N"))
    bar = shared.mark_rule(strokeWidth=4, color=ARM_COLOURS[0]).encode(alt.X("low:Q", axis=axis), alt.X2("high:Q"))
    dot = shared.mark_point(size=90, filled=True, opacity=1, color=ARM_COLOURS[0]).encode(alt.X("value:Q"))
    return [bar, dot]


def _seed_in_words(pair: Pair, own: PairedSeeds, place: int) -> str:
    seed = own.seeds[place]
    broken = f" ({' and '.join(seed.broken)} broke: the worst model known)" if seed.broken else ""
    scores = f"{pair.a} {formatting.score(seed.a)}, {pair.b} {formatting.score(seed.b)}"
    return f"seed {seed.seed}: {formatting.difference(seed.difference)}; {scores}{broken}"


def _numbers(
    title: str, names: Sequence[str], rows: Sequence[Difference], own: dict[tuple[str, str], PairedSeeds] | None = None
) -> Table:
    lines = [
        [
            name,
            str(row.n),
            formatting.score(row.mean_a),
            formatting.score(row.mean_b),
            formatting.difference(row.difference, row.interval),
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    for found in (own or {}).values():
        for seed in found.seeds:
            scores = [formatting.score(seed.a), formatting.score(seed.b), formatting.difference(seed.difference)]
            broke = f" ({', '.join(seed.broken)} broke)" if seed.broken else ""
            lines.append([f"{found.a} – {found.b}, seed {seed.seed}{broke}", "1", *scores])
    return Table.of([title, "n", "first", "second", "difference"], lines, numbers=True)
