"""The panels of the dashboard: values made of a study's state. A short screen has each as lines without a frame."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from orchestrator import formatting
from orchestrator.analysis.comparison import Comparison, Matched, Pair, Row
from orchestrator.analysis.wording import barred_by, time_to_target_in_words, what_would_settle
from orchestrator.reporting.glances import FEW, glances, is_few
from orchestrator.reporting.layout import AtWidth, FirstFitting, Line, bar, labelled, panel
from orchestrator.reporting.now import ArmNow, Now, State, TrialNow
from orchestrator.reporting.sparklines import Curve, sparkline

MOST_DOTS = 12
"""Confirmation runs shown as dots, above which a number says it."""
MOST_EVENTS, MOST_GLANCES = 4, 6

SPARK_WIDTH, SHORT_SPARK_WIDTH = 24, 16
Scale = tuple[float, float]

_COLOURS: Mapping[State, str] = {
    "completed": "green",
    "running": "cyan",
    "diverged": "red",
    "failed": "red",
    "lost": "red",
    "waiting": "dim",
}


def _phases(now: Now) -> Text:
    marks = {"end": ("✓", "green"), "begin": ("●", "bold cyan"), None: ("○", "dim")}
    shown = ((f"{marks[status][0]} {phase}", marks[status][1]) for phase, status in now.phases)
    return Text("  ").join(Text(*each) for each in shown)


def header_panel(now: Now) -> Panel:
    """The study's name, question and phases, the time it took and the time left."""
    question = [Text(now.question, "italic")] if now.question else []
    warnings = [Text(warning, "yellow") for warning in now.warnings]
    return panel(Group(*question, _phases(now), *warnings), Text(now.name, "bold"), Text(" · ".join(now.said)))


def header_lines(now: Now) -> RenderableType:
    """The same, short."""
    title = Text.assemble((now.name, "bold"), "  ", _phases(now))
    said = Line(Text(" · ".join(now.said), "dim"))
    return Group(Line(title), said, *(Line(Text(warning, "yellow")) for warning in now.warnings))


def verdict_lines(comparison: Comparison) -> RenderableType:
    """What the study says so far, a line for each pair of arms."""
    found = glances(comparison)
    lines = [
        Text.assemble(
            (f"{glance.pair}: ", "dim"),
            (glance.verdict, "bold"),
            f"{glance.difference and ', '}{glance.difference}",
            (f"{glance.said and ', '}{glance.said}", "dim"),
        )
        for glance in found[:MOST_GLANCES]
    ]
    more = [Text(f"and {len(found) - MOST_GLANCES} more pairs", "dim")] if len(found) > MOST_GLANCES else []
    return Padding(Group(*lines, *more), (0, 1))


def arm_panel(now: Now, arm: ArmNow, curve: Curve | None, scale: Scale) -> Panel:
    """An arm's search budget, trials, best so far, confirmation runs and learning curve."""
    rows = labelled(expand=True)
    if arm.left:
        line = Grid.grid(Column(ratio=1), Column(justify="right", no_wrap=True), padding=(0, 1), expand=True)
        line.add_row(bar(arm.searched, 1.0), arm.left)
        rows.add_row("search", line)
    if arm.search:
        rows.add_row("trials", _counts(arm.search))
    if arm.best:
        score = Text.assemble((arm.best, "bold"), (f" {now.primary}", "dim"))
        rows.add_row("best", Group(score, Text(arm.settings)))
    if arm.confirm:
        rows.add_row("confirm", _confirm_runs(arm))
    if curve is not None:
        rows.add_row("curve", _curve(curve, scale, SPARK_WIDTH))
    return panel(rows, Text.assemble((arm.name, "bold"), f" {arm.objective}"))


def arm_lines(now: Now, curves: Mapping[str, Curve], scales: Mapping[str, Scale]) -> RenderableType:
    """All arms, two lines each."""
    lines: list[RenderableType] = []
    for arm in now.arms:
        told = [_confirm_runs(arm)]
        if not arm.confirm:
            told = [Text(f"search {arm.searched:.0%}")] * bool(arm.left) + [_counts(arm.search)] * bool(arm.search)
        lines.append(Line(Text.assemble((arm.name, "bold"), "  ", Text(" · ").join(told))))
        curve = curves.get(arm.name)
        if curve is not None:
            lines.append(Line(Text.assemble("  ", _curve(curve, scales[arm.name], SHORT_SPARK_WIDTH))))
    return Group(*lines)


def _curve(curve: Curve, scale: Scale, width: int) -> Text:
    return Text.assemble((sparkline(curve, scale, width), "cyan"), (f" {curve.said}", "dim"))


def _counts(counted: tuple[tuple[int, State], ...]) -> Text:
    parts = (Text(f"{count} {state}", _COLOURS.get(state, "")) for count, state in counted)
    return Text(" · ", style="dim").join(parts)


def _confirm_runs(arm: ArmNow) -> Text:
    completed, broken, lost = arm.confirmed("completed"), arm.confirmed("failed", "diverged"), arm.confirmed("lost")
    text = Text()
    if arm.planned <= MOST_DOTS:
        text.append("●" * completed, "green").append("◐" * arm.confirmed("running"), "cyan")
        text.append("✗" * (broken + lost), "red").append("○" * arm.confirmed("waiting"), "dim").append("  ")
    text.append(f"{completed} of {formatting.plural(arm.planned, 'run')}")
    for number, outcome in ((broken, "failed"), (lost, "lost")):
        if number:
            text.append(f", {number} {outcome}", "red")
    return text


def trials_grid(trials: Sequence[TrialNow]) -> RenderableType:
    """Trials, a line each, under titles; a narrow screen shows less of each."""
    narrow, middle = _trials(trials, ()), _trials(trials, ("loss", "tokens/s"))
    return AtWidth(54, narrow, AtWidth(62, middle, _trials(trials, ("loss", "score", "tokens/s"))))


def _trials(trials: Sequence[TrialNow], more: Sequence[str]) -> Grid:
    columns = [Column("trial", no_wrap=True, overflow="ellipsis")]
    columns += [Column("progress", ratio=1, min_width=8, no_wrap=True)]
    columns += [Column(title, justify="right", no_wrap=True) for title in ("", *more, "left")]
    rows = Grid(*columns, box=None, expand=True, padding=(0, 1), header_style="dim", pad_edge=False)
    for trial in trials:
        running = trial.state == "running"
        shown = bar(trial.progress, 1.0) if running else Text(trial.state, _COLOURS.get(trial.state, ""))
        known = {"loss": trial.loss if running else "", "score": trial.score, "tokens/s": trial.pace if running else ""}
        cells = (*(known[title] for title in more), trial.left if running else "")
        rows.add_row(Text(trial.title), shown, f"{trial.progress:.0%}", *cells)
    return rows


def pair_panel(comparison: Comparison, pair: Pair) -> Panel:
    """Two arms at equal spending, exploratory, and how sure the difference is by now."""
    grids = [_matched(pair, comparison.primary, separator) for separator in (" ", "\n")]
    tables = FirstFitting(*grids, _matched_lines(pair, comparison.primary))
    title = Text.assemble((pair.a, "bold"), " against ", (pair.b, "bold"), f" {comparison.primary}")
    if pair.yardsticks[comparison.primary].lower_is_better:
        title.append(" (lower is better)", "dim")
    return panel(Group(tables, _standing(comparison, pair)), title)


def _standing(comparison: Comparison, pair: Pair) -> Text:
    row = pair.yardsticks[comparison.primary]
    words = f"{pair.verdict} is ahead" if pair.verdict in (pair.a, pair.b) else pair.verdict
    words += ", exploratory" if pair.standing == "exploratory" else ""
    state = Text.assemble((words, "bold"), f"  n = {formatting.plural(row.n, 'seed')}")
    if row.p_adjusted is not None:
        state.append(f", p {formatting.p_value(row.p_adjusted, '= ')}")
    if pair.pending:
        state.append(f", {pair.pending} yet to end", "dim")
    elif pair.barred:
        state.append(f", {barred_by(pair)}")
    elif pair.verdict == "undecided":
        state.append(f", {what_would_settle(pair, row)}")
    if is_few(row) or any(is_few(point) for _, point, _ in _points(pair, comparison.primary)):
        state.append(f"\n{FEW}", "dim")
    reached = pair.time_to_target.get(comparison.unit)
    if reached and reached.ratio is not None:
        state.append(f"\n{time_to_target_in_words(pair, reached, comparison.unit)}", "dim")
    if pair.missing:
        gaps = ", ".join(f"seed {gap.seed} ({gap.arm} {gap.outcome})" for gap in pair.missing)
        state.append(f"\nmissing: {gaps}", "red")
    if any(point.n and not point.annealed for point in pair.matched.values()):
        state.append("\n≈ both mid-schedule: an indication, no evidence", "dim")
    units = [unit for unit, point in pair.matched.items() if not point.n]
    if not pair.steady and "device_seconds" in units:
        units.remove("device_seconds")
        state.append("\nnothing is compared by device time: that of the same work differs by over 10%", "dim")
    apart = [formatting.UNIT_TITLES[unit] for unit in units]
    if apart:
        titles = " or ".join(apart)
        why = "one arm would be mid-schedule there; a budget in that unit compares them"
        state.append(f"\nno row at equal {titles}: {why}", "dim")
    return state


def _points(pair: Pair, primary: str) -> Iterator[tuple[str, Matched | Row, str]]:
    """What is compared at equal spending: where, the difference, and a style."""
    for unit, point in pair.matched.items():
        if point.n and point.spent is not None:
            device = "device " if unit == "device_seconds" else ""
            mark = " " if point.annealed else "≈"
            yield f"{mark}{device}{formatting.quantity(point.spent, unit)}", point, "" if point.annealed else "dim"
    for row in pair.branches:
        if row.yardstick == primary:
            yield f" {row.share:.0%} of the budget", row, ""


def _matched(pair: Pair, primary: str, separator: str) -> Grid:
    columns = [Column("at equal", no_wrap=True)]
    columns += [Column(Text(arm), justify="right", overflow="fold") for arm in (pair.a, pair.b)]
    columns += [Column(f"difference{separator}(exploratory)", no_wrap=True), Column("n", justify="right", no_wrap=True)]
    rows = Grid(*columns, box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    for title, point, style in _points(pair, primary):
        rows.add_row(
            title,
            formatting.score(point.mean_a),
            formatting.score(point.mean_b),
            formatting.difference(point.difference, point.interval, separator),
            str(point.n),
            style=style,
        )
    return rows


def _matched_lines(pair: Pair, primary: str) -> Text:
    """The same where no table fits."""
    lines = [Text(f"at equal: {pair.a}, {pair.b}, their difference (exploratory)", "dim")]
    for title, point, style in _points(pair, primary):
        means = f"{formatting.score(point.mean_a)}, {formatting.score(point.mean_b)}"
        lines.append(
            Text(f"{title}: {means}, {formatting.difference(point.difference, point.interval)}, n = {point.n}", style)
        )
    return Text("\n").join(lines)


def footer(now: Now, most_events: int = MOST_EVENTS) -> RenderableType:
    """The cluster's use and the last events."""
    lines: list[RenderableType] = []
    if now.cluster:
        lines.append(Line(Text.assemble((f"{'cluster':<9}", "dim"), now.cluster)))
    for time, message in reversed(now.events[:most_events]):
        lines.append(Line(Text.assemble((f"{time:<9}", "dim"), message)))
    return Padding(Group(*lines), (0, 1)) if lines else Group()
