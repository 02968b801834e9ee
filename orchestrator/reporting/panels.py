"""The panels of the dashboard: values made of a study's state."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from orchestrator import formatting
from orchestrator.analysis.comparison import ArmSummary, Comparison, Counts, Pair
from orchestrator.analysis.selection import best_of_search
from orchestrator.analysis.wording import barred_by, time_to_target_in_words, what_would_settle
from orchestrator.ledger.history import History
from orchestrator.ledger.records import PHASES
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.layout import FirstFitting, bar, labelled, panel
from orchestrator.reporting.log_lines import clock, waiting_in_words
from orchestrator.reporting.pace import per_second

MOST_RUNNING, MOST_EVENTS, MOST_DOTS = 8, 4, 12
"""Running trials and events shown; confirmation runs shown as dots, above which a number says it."""

SILENT_SECONDS = 120  # a study that has not been heard of for so long, though it is not done, is said to be silent

STOP = {
    "begin": "stopping: what runs is saved first; Ctrl-C once more to stop at once",
    "end": "stopped; h2h resume goes on with it",
}
"""What is said of a session that was asked to stop."""


def header_panel(history: History, now: float | None) -> Panel:
    """The study's name, question, phase and age."""
    study, updated = history.study, history.updated
    assert study is not None
    marks = {"end": ("✓", "green"), "begin": ("●", "bold cyan"), None: ("○", "dim")}
    phases = Text()
    for phase in PHASES:
        planned = {"anytime": bool(study.design.anytime), "fine_tuning": phase in history.phases}
        if not planned.get(phase, True):
            continue
        mark, style = marks[history.phases.get(phase)]
        phases.append(f"{mark} {phase}  ", style)
    age = Text(f"{formatting.duration((now or updated) - (history.started or 0.0))} since it began")
    if now and now - updated > SILENT_SECONDS and not history.finished and history.stop != "end":
        age.append(f", silent for {formatting.duration(now - updated)}", "yellow")
    question = [Text(study.design.question, "italic")] if study.design.question else []
    stop = [Text(STOP[history.stop], "yellow")] if history.stop else []
    return panel(Group(*question, phases, *stop), Text(study.name, "bold"), age)


def arm_panel(history: History, arm: str, summary: ArmSummary) -> Panel:
    """An arm's search budget, trials, best so far and confirmation runs; ``summary`` is the comparison's."""
    design = history.design
    rows = labelled(expand=True)
    rows.add_row("search", _budget(history, arm))
    if summary.counts["search"].planned:
        running = sum(trial.runs for trial in history.trials_of("search", arm))
        rows.add_row("trials", _counts(summary.counts["search"], running))
    best = best_of_search(history, arm)
    if best is not None:
        primary = design.yardsticks.primary
        direction = ", lower is better" if design.lower_is_better(primary) else ""
        score = Text.assemble(
            (formatting.score(best.score(primary)), "bold"), (f" {primary} (validation{direction})", "dim")
        )
        rows.add_row("best", Group(score, Text(formatting.settings(best.configuration))))
    confirmation = history.trials_of("confirm", arm)
    if confirmation:
        running = sum(trial.runs for trial in confirmation)
        rows.add_row("confirm", _confirm_runs(summary.counts["confirm"], running))
    return panel(rows, Text.assemble((arm, "bold"), f" {summary.objective}"))


def _budget(history: History, arm: str) -> Grid:
    """A bar of the arm's search budget, and what is left of it."""
    unit, amount = history.design.unit, history.design.amount * history.design.search_budget
    if not amount:
        return Grid.grid()
    spent = history.spent("search", arm, unit)
    left = formatting.quantity(max(0.0, amount - spent), unit).removesuffix(f" {unit}")
    line = Grid.grid(Column(ratio=1), Column(justify="right", no_wrap=True), padding=(0, 1), expand=True)
    line.add_row(bar(spent, amount), f"{left} left of {formatting.quantity(amount, unit)}")
    return line


def _counts(counts: Counts, running: int) -> Text:
    """What was interrupted waits: it does not run."""
    told = [
        (counts.completed, "completed", "green"),
        (running, "running", "cyan"),
        (counts.pruned, "pruned", ""),
        (counts.diverged, "diverged", "red"),
        (counts.failed, "failed", "red"),
        (counts.lost, "lost", "red"),
    ]
    waiting = counts.planned - sum(count for count, _, _ in told)
    told.append((waiting, "waiting", "dim"))
    parts = (Text(f"{count} {name}", style) for count, name, style in told if count)
    return Text(" · ", style="dim").join(parts)


def _confirm_runs(counts: Counts, running: int) -> Text:
    broken = counts.failed + counts.diverged
    waiting = counts.planned - counts.completed - running - broken - counts.lost
    text = Text()
    if counts.planned <= MOST_DOTS:
        text.append("●" * counts.completed, "green").append("◐" * running, "cyan")
        text.append("✗" * (broken + counts.lost), "red").append("○" * waiting, "dim").append("  ")
    text.append(f"{counts.completed} of {formatting.plural(counts.planned, 'run')}")
    for number, outcome in ((broken, "failed"), (counts.lost, "lost")):
        if number:
            text.append(f", {number} {outcome}", "red")
    return text


def running_panel(trials: Sequence[TrialHistory]) -> Panel:
    """The trials that run. A loss stands beside its own trial alone: across arms it means nothing."""
    columns = [Column("trial", overflow="fold"), Column("progress", ratio=1, min_width=8)]
    columns += [Column(title, justify="right", no_wrap=True) for title in ("", "loss", "tokens/s")]
    rows = Grid(*columns, box=None, expand=True, padding=(0, 1), header_style="dim", pad_edge=False)
    for trial in trials[:MOST_RUNNING]:
        number = f"seed {trial.seed}" if trial.phase == "confirm" else f"#{trial.number}"
        loss = formatting.score(trial.measures[-1].loss if trial.measures else None)
        progress = bar(trial.progress, 1.0), f"{trial.progress:.0%}"
        rows.add_row(Text(f"{trial.arm} {number}"), *progress, loss, _speed(trial))
    more = len(trials) - MOST_RUNNING
    content = Group(rows, Text(f"and {more} more", style="dim")) if more > 0 else rows
    return panel(content, Text(f"running {len(trials)}"))


def _speed(trial: TrialHistory) -> str:
    """Tokens a second."""
    pace = per_second(trial, "tokens")
    return "–" if pace is None else "".join(formatting.scaled(pace))


def pair_panel(comparison: Comparison, pair: Pair) -> Panel:
    """Two arms at equal spending, exploratory, and how sure the difference is by now."""
    tables = FirstFitting(*(_matched(pair, comparison.primary, separator) for separator in (" ", "\n")))
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


def _matched(pair: Pair, primary: str, separator: str) -> Grid:
    columns = [Column("at equal", no_wrap=True)]
    columns += [Column(Text(arm), justify="right", overflow="fold") for arm in (pair.a, pair.b)]
    columns += [Column(f"difference{separator}(exploratory)", no_wrap=True), Column("n", justify="right", no_wrap=True)]
    rows = Grid(*columns, box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    points = []
    for unit, point in pair.matched.items():
        if point.n and point.spent is not None:
            device = "device " if unit == "device_seconds" else ""
            mark = " " if point.annealed else "≈"
            spent = formatting.quantity(point.spent, unit)
            points.append((f"{mark}{device}{spent}", point, "" if point.annealed else "dim"))
    branches = [(f" {row.share:.0%} of the budget", row, "") for row in pair.branches if row.yardstick == primary]
    for title, row, style in (*points, *branches):
        rows.add_row(
            title,
            formatting.score(row.mean_a),
            formatting.score(row.mean_b),
            formatting.difference(row.difference, row.interval, separator),
            str(row.n),
            style=style,
        )
    return rows


def footer(history: History) -> RenderableType:
    """The cluster's use and the last events."""
    columns = Column(style="dim", no_wrap=True, width=8), Column(no_wrap=True, overflow="ellipsis", ratio=1)
    lines = Grid.grid(*columns, padding=(0, 1), expand=True)
    if history.resources is not None:
        shares = history.resources.cluster.items()
        lines.add_row("cluster", " · ".join(f"{name} {used:g}/{total:g}" for name, (used, total) in shares))
    if history.waiting is not None:
        lines.add_row("waiting", Text(waiting_in_words(history.waiting), "yellow", no_wrap=False))
    for event in history.events[-MOST_EVENTS:]:
        lines.add_row(clock(event.time), Text(event.message))
    return Padding(lines, (0, 2))
