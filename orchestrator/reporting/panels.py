"""The panels of the dashboard: values made of a study's state.

Names and messages are put in as ``Text``, so that brackets in them are not taken for markup.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator import formatting
from orchestrator.analysis.comparison import best_of_search, lower_is_better
from orchestrator.analysis.wording import what_would_settle
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.reporting.log_lines import PHASES, finished

MOST_RUNNING, MOST_EVENTS, MOST_DOTS = 8, 4, 12
"""Running trials and events shown; confirm runs shown as dots, above which a number says it."""

SPEED_MEASURES = 5
"""Reports over which a trial's speed is taken."""

SILENT_SECONDS = 120
"""A study that has not been heard of for so long, though it is not done, is said to be silent."""

STOP = {
    "begin": "stopping: what runs is saved first; Ctrl-C once more to stop at once",
    "end": "stopped; h2h resume goes on with it",
}
"""What is said of a session that was asked to stop."""


class FirstFitting:
    """The first of several renderables that fits the width there is; the last where none does."""

    def __init__(self, *renderables: RenderableType) -> None:
        self._renderables = renderables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(max_width=10_000)
        widths = [Measurement.get(console, unbounded, renderable).maximum for renderable in self._renderables]
        fitting = [r for r, w in zip(self._renderables, widths, strict=True) if w <= options.max_width]
        yield (fitting or self._renderables[-1:])[0]


class SideBySide:
    """Renderables in as many equal columns as leave each the width it needs."""

    def __init__(self, renderables: Sequence[RenderableType], width: int) -> None:
        self._renderables, self._width = renderables, width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = max(1, min(len(self._renderables), options.max_width // self._width))
        grid = Table.grid(expand=True)
        for _ in range(columns):
            grid.add_column(ratio=1)
        for start in range(0, len(self._renderables), columns):
            grid.add_row(*self._renderables[start : start + columns])
        yield grid


def _panel(content: RenderableType, title: Text, subtitle: Text | None = None) -> Panel:
    return Panel(
        content,
        title=title,
        title_align="left",
        subtitle=subtitle,
        subtitle_align="right",
        border_style="dim",
        box=box.ROUNDED,
    )


def _bar(completed: float, total: float) -> ProgressBar:
    return ProgressBar(total=total, completed=completed, complete_style="cyan", finished_style="green")


def header_panel(history: History, now: float | None) -> Panel:
    """The study's name, question, phase and age."""
    study, started, updated = history.study, history.started, history.updated
    assert study is not None
    assert started is not None
    assert updated is not None
    marks = {"end": ("✓", "green"), "begin": ("●", "bold cyan"), None: ("○", "dim")}
    phases = Text()
    for phase in PHASES:
        if phase == "anytime" and not study.get("anytime"):
            continue
        mark, style = marks[history.phases.get(phase)]
        phases.append(f"{mark} {phase}  ", style)
    age = Text(f"{formatting.duration((now or updated) - started)} since it began")
    if now and now - updated > SILENT_SECONDS and not finished(history) and history.stop != "end":
        age.append(f", silent for {formatting.duration(now - updated)}", "yellow")
    question = [Text(study["question"], "italic")] if study["question"] else []
    stop = [Text(STOP[history.stop], "yellow")] if history.stop else []
    return _panel(Group(*question, phases, *stop), Text(study["name"], "bold"), age)


def arm_panel(history: History, arm: str, description: dict[str, Any]) -> Panel:
    """An arm's search budget, trials, best so far and confirm runs; ``description`` is the comparison's."""
    study = history.study
    assert study is not None
    search, confirm = (
        # What was interrupted waits: it does not run.
        description["counts"][phase] | {"running": sum(t.runs for t in history.trials_of(phase, arm))}
        for phase in ("search", "confirm")
    )
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row("search", _budget(history, arm))
    if search["planned"]:
        grid.add_row("trials", _counts(search))
    best = best_of_search(history, arm)
    if best is not None:
        primary = study["yardsticks"]["primary"]
        up = ", lower is better" if lower_is_better(study, primary) else ""
        score = Text.assemble(
            (formatting.score(best.score(primary)), "bold"), (f" {primary} (validation{up})", "dim")
        )
        grid.add_row("best", Group(score, Text(formatting.settings(best.configuration))))
    if history.trials_of("confirm", arm):
        grid.add_row("confirm", _confirm_runs(confirm))
    return _panel(grid, Text.assemble((arm, "bold"), f" {description['objective']}"))


def _budget(history: History, arm: str) -> Table:
    """A bar of the arm's search budget, and what is left of it."""
    assert history.study is not None
    unit = history.study["budget"]["unit"]
    amount = history.study["budget"]["amount"] * history.study["search_budget"]
    if not amount:
        return Table.grid()
    spent = history.spent("search", arm, unit)
    left = formatting.quantity(max(0.0, amount - spent), unit).removesuffix(f" {unit}")
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    bar.add_row(_bar(spent, amount), f"{left} left of {formatting.quantity(amount, unit)}")
    return bar


def _counts(counts: dict[str, int]) -> Text:
    styles = {"completed": "green", "running": "cyan", "pruned": "", "diverged": "red", "failed": "red"}
    counts = counts | {"waiting": counts["planned"] - sum(counts[name] for name in styles)}
    styles["waiting"] = "dim"
    told = [(f"{counts[name]} {name}", style) for name, style in styles.items() if counts[name]]
    return Text(" · ", style="dim").join(Text(*part) for part in told)


def _confirm_runs(counts: dict[str, int]) -> Text:
    broken = counts["failed"] + counts["diverged"]
    waiting = counts["planned"] - counts["completed"] - counts["running"] - broken
    text = Text()
    if counts["planned"] <= MOST_DOTS:
        text.append("●" * counts["completed"], "green").append("◐" * counts["running"], "cyan")
        text.append("✗" * broken, "red").append("○" * waiting, "dim").append("  ")
    text.append(f"{counts['completed']} of {formatting.plural(counts['planned'], 'run')}")
    return text.append(f", {broken} failed", "red") if broken else text


def running_panel(trials: list[TrialHistory]) -> Panel:
    """The trials that run. A loss stands beside its own trial alone: across arms it means nothing."""
    table = Table(box=None, expand=True, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("trial", overflow="fold")
    table.add_column("progress", ratio=1, min_width=8)
    for title in ("", "loss", "tokens/s"):
        table.add_column(title, justify="right", no_wrap=True)
    for trial in trials[:MOST_RUNNING]:
        label = (
            f"{trial.arm} seed {trial.seed}" if trial.phase == "confirm" else f"{trial.arm} #{trial.number}"
        )
        loss = formatting.score(trial.measures[-1]["loss"] if trial.measures else None)
        bar = _bar(trial.progress, 1.0)
        table.add_row(Text(label), bar, f"{trial.progress:.0%}", loss, _speed(trial))
    more = len(trials) - MOST_RUNNING
    content = Group(table, Text(f"and {more} more", style="dim")) if more > 0 else table
    return _panel(content, Text(f"running {len(trials)}"))


def _speed(trial: TrialHistory) -> str:
    """Tokens a second over the last reports of the attempt that runs."""
    recent = [m for m in trial.measures if m["attempt"] == trial.attempts][-SPEED_MEASURES:]
    seconds = recent[-1]["time"] - recent[0]["time"] if recent else 0.0
    if seconds <= 0:
        return "–"
    return "".join(
        formatting.scaled((recent[-1]["spent"]["tokens"] - recent[0]["spent"]["tokens"]) / seconds)
    )


def pair_panel(comparison: dict[str, Any], pair: dict[str, Any]) -> Panel:
    """Two arms at equal spending, exploratory, and how sure the difference is by now."""
    row = pair["yardsticks"][comparison["primary"]]
    words = f"{pair['verdict']} is ahead" if pair["verdict"] in (pair["a"], pair["b"]) else pair["verdict"]
    words += ", exploratory" if pair["role"] == "exploratory" else ""
    state = Text.assemble((words, "bold"), f"  n = {formatting.plural(row['n'], 'seed')}")
    if row["p_adjusted"] is not None:
        state.append(f", p = {formatting.p_value(row['p_adjusted'])}")
    if pair["pending"]:
        state.append(f", {pair['pending']} yet to end", "dim")
    elif pair["verdict"] == "undecided" and pair["more_seeds"] is not None:
        state.append(f", {what_would_settle(pair, row['n'])}")
    reached = pair["time_to_target"].get(comparison["unit"])
    if reached and reached["ratio"] is not None:
        state.append(f"\n{_time_to_target(pair, reached, comparison['unit'])}", "dim")
    if pair["missing"]:
        gaps = ", ".join(f"seed {gap['seed']} ({gap['arm']} {gap['outcome']})" for gap in pair["missing"])
        state.append(f"\nmissing: {gaps}", "red")
    if any(point["n"] and not point["annealed"] for point in pair["matched"].values()):
        state.append("\n≈ both mid-schedule: an indication, no evidence", "dim")
    apart = [unit for unit, point in pair["matched"].items() if not point["n"]]
    if apart:
        titles = " or ".join(formatting.UNIT_TITLES[unit] for unit in apart)
        state.append(
            f"\nno row at equal {titles}: one arm would be mid-schedule there; a budget in that unit compares them",
            "dim",
        )
    tables = FirstFitting(*(_matched(pair, comparison["primary"], separator) for separator in (" ", "\n")))
    title = Text.assemble((pair["a"], "bold"), " against ", (pair["b"], "bold"), f" {comparison['primary']}")
    if row["lower_is_better"]:
        title.append(" (lower is better)", "dim")
    return _panel(Group(tables, state), title)


def _time_to_target(pair: dict[str, Any], reached: dict[str, Any], unit: str) -> str:
    """``headless reaches 0.412 with 0.62 times vanilla's tokens [0.55, 0.71]``; an end that is open is a dash."""
    bound = {"=": "", "<=": "at most ", ">=": "at least "}[reached["relation"]]
    ends = ["–" if end is None else f"{end:.2f}" for end in reached["interval"] or ()]
    interval = f" [{', '.join(ends)}]" if ends else ""
    target = formatting.score(reached["target"])
    title = formatting.UNIT_TITLES.get(unit, unit)
    return f"{pair['a']} reaches {target} with {bound}{reached['ratio']:.2f} times {pair['b']}'s {title}{interval}"


def _matched(pair: dict[str, Any], primary: str, separator: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("at equal", no_wrap=True)
    table.add_column(Text(pair["a"]), justify="right", overflow="fold")
    table.add_column(Text(pair["b"]), justify="right", overflow="fold")
    table.add_column(f"difference{separator}(exploratory)", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for unit, point in pair["matched"].items():
        if point["n"]:
            spent = formatting.quantity(point["spent"], unit)
            table.add_row(
                f"{' ' if point['annealed'] else '≈'}{'device ' if unit == 'device_seconds' else ''}{spent}",
                formatting.score(point["mean_a"]),
                formatting.score(point["mean_b"]),
                formatting.difference(point["difference"], point["interval"], separator),
                str(point["n"]),
                style="" if point["annealed"] else "dim",
            )
    for point in pair["anytime"]:
        if point["yardstick"] != primary:
            continue
        table.add_row(
            f" {point['share']:.0%} of the budget",
            formatting.score(point["mean_a"]),
            formatting.score(point["mean_b"]),
            formatting.difference(point["difference"], point["interval"], separator),
            str(point["n"]),
        )
    return table


def footer(history: History) -> RenderableType:
    """The cluster's use and the last events."""
    lines = Table.grid(padding=(0, 1), expand=True)
    lines.add_column(style="dim", no_wrap=True, width=8)
    lines.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    if history.resources is not None:
        shares = history.resources["cluster"].items()
        lines.add_row("cluster", " · ".join(f"{name} {used:g}/{total:g}" for name, (used, total) in shares))
    for event in history.events[-MOST_EVENTS:]:
        lines.add_row(time.strftime("%H:%M:%S", time.localtime(event["time"])), Text(event["message"]))
    return Padding(lines, (0, 2))
