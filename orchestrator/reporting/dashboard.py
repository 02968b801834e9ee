"""The dashboard: a study's state on a terminal, and its results when it is done.

:func:`render` makes a Rich renderable of a :class:`~orchestrator.ledger.history.History`, :func:`follow` keeps it on
a terminal while the ledger grows, :func:`print_results` shows what came out. A demonstration:
``python -m orchestrator.reporting.dashboard``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator import formatting
from orchestrator.analysis.comparison import compare
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting.log_lines import finished, lines_of
from orchestrator.reporting.panels import (
    FirstFitting,
    SideBySide,
    arm_panel,
    footer,
    header_panel,
    pair_panel,
    running_panel,
)
from orchestrator.reporting.terminal import no_echo_of_keys
from trainables.storage import Location

POLL_SECONDS = 0.5
REMOTE_POLL_SECONDS = 5.0
"""An object store is asked less often: every question costs money."""

FEW_SEEDS = 3
"""With so many or fewer no interval should be leaned on (docs/statistics.md)."""

ARM_WIDTH = 48
"""Columns an arm's panel needs."""


def render(history: History, now: float | None = None) -> RenderableType:
    """The dashboard of a study's state.

    Args:
        history: what the ledger says.
        now: seconds since the epoch; without it, the time of the last record.
    """
    if history.study is None:
        return Text("waiting for the study to begin", style="dim")
    comparison = compare(history)
    arms = [arm_panel(history, arm, description) for arm, description in comparison["arms"].items()]
    running = [trial for trial in history.trials.values() if trial.runs]
    with_evidence = [pair for pair in comparison["pairs"] if any(p["n"] for p in pair["matched"].values())]
    return Group(
        header_panel(history, now),
        SideBySide(arms, ARM_WIDTH),
        *([running_panel(running)] if running else []),
        *(pair_panel(comparison, pair) for pair in with_evidence),
        footer(history),
    )


def follow(
    folder: Location,
    console: Console,
    until: Callable[[], bool] | None = None,
    *,
    since: float = 0.0,
) -> History:
    """Show a study while it runs: a live dashboard on a terminal, else a line for every noteworthy thing.

    Args:
        folder: the study's folder.
        console: where to.
        until: asked at every turn whether to stop; without it, the study's comparison is waited for.
        since: records before this time, seconds since the epoch, print no lines: no old news on a resume.

    Returns:
        The study's state at the end.
    """
    reader, history = LedgerReader(folder / "ledger"), History()
    pause = POLL_SECONDS if folder.local else REMOTE_POLL_SECONDS
    terminal = Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext()
    with no_echo_of_keys() if console.is_terminal else nullcontext(), terminal as live:
        while True:
            stop = until is not None and until()  # asked first, so that the last records are read after it
            for record in reader.poll():
                history.apply(record)
                if live is None and record["time"] >= since:
                    for line in lines_of(record, history):
                        console.print(line, markup=False, highlight=False, soft_wrap=True)
            stop = stop or (until is None and finished(history))
            if live is not None:
                live.transient = stop and history.study is None  # an error follows, or the study was there
                live.update(render(history, None if stop else time.time()), refresh=True)
            if stop:
                return history
            time.sleep(pause)


def final_table(comparison: dict[str, Any], *, upright: bool = False) -> Table:
    """What each arm was set to, how it did on the test split (mean ± standard deviation), what it spent.

    Args:
        comparison: see :mod:`orchestrator.analysis.comparison`.
        upright: a column an arm, which suits a narrow terminal, and not a row.
    """
    unit, arms = comparison["unit"], comparison["arms"]
    yardsticks = list(next(iter(arms.values()))["yardsticks"])
    configurations = {arm: arms[arm]["configuration"] or {} for arm in arms}
    settings = list(
        dict.fromkeys(name for configuration in configurations.values() for name in configuration)
    )
    lines = [["arm", *(settings if upright else ["best configuration"]), "seeds", *yardsticks, "spent"]]
    for arm, description in arms.items():
        confirm, spent = description["counts"]["confirm"], description["spent"]
        total = sum(spent[phase].get(unit, 0.0) for phase in ("search", "confirm", "anytime"))
        lines.append(
            [
                arm,
                *(
                    [formatting.setting(configurations[arm].get(name, "–")) for name in settings]
                    if upright
                    else [formatting.settings(configurations[arm], "\n")]
                ),
                f"{confirm['completed']} of {confirm['planned']}",
                *(_mean_and_deviation(description["yardsticks"][name]) for name in yardsticks),
                formatting.quantity(total, unit),
            ]
        )
    (corner, *titles), *rows = zip(*lines, strict=True) if upright else lines
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(corner), style="bold", overflow="fold")
    for title in titles:
        table.add_column(Text(title), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _mean_and_deviation(values: dict[str, Any]) -> str:
    deviation = "" if values["deviation"] is None else f" ± {values['deviation']:.3f}"
    return formatting.score(values["mean"]) + deviation


def comparison_table(comparison: dict[str, Any], separator: str = " ") -> Table:
    """One row per pair of arms, yardstick and share of the budget; a ``separator`` of a new line makes it narrow."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("pair", "yardstick", "n", "difference", "p (Holm)"):
        table.add_column(title.replace(" ", separator), overflow="fold")
    for pair in comparison["pairs"]:
        at_the_end = list(pair["yardsticks"].items())
        on_the_way = [
            (f"{row['yardstick']}{separator}at {row['share']:.0%} of the budget", row)
            for row in pair["anytime"]
        ]
        for name, row in at_the_end + on_the_way:
            exploratory = "exploratory" in (row["role"], pair["role"])
            cells = [
                f"{pair['a']} –{separator}{pair['b']}",
                f"{name}{separator}(exploratory)" if exploratory else name,
                str(row["n"]),
                formatting.difference(row["difference"], row["interval"], separator),
                formatting.p_value(row["p_adjusted"]),
            ]
            table.add_row(*map(Text, cells), style="dim" if exploratory else "")
            if row["n"] <= FEW_SEEDS and row["interval"]:
                table.caption, table.caption_justify = (
                    f"n <= {FEW_SEEDS}: do not lean on the interval",
                    "left",
                )
    return table


def beside_table(comparison: dict[str, Any], separator: str = " ") -> Table:
    """What stands beside the question, in short, by arm: how search went, and what failed. Exploratory."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("arm", style="bold", overflow="fold")
    for title in ("median best of n trials", "early ranks (tau)", "diverged, failed, retried"):
        table.add_column(title.replace(" ", separator, 2), overflow="fold")
    for arm, description in comparison["arms"].items():
        table.add_row(*map(Text, (arm, *_beside(description, separator))), style="dim")
    return table


def _beside(description: dict[str, Any], separator: str) -> Iterator[str]:
    tuning, best = description["tuning"], []
    if tuning is not None:
        total = tuning["n"][-1]
        wanted = sorted({max(1, total // 4), max(1, total // 2), total})
        places = [max(i for i, n in enumerate(tuning["n"]) if n <= most) for most in wanted]
        best = [f"{tuning['n'][i]}: {formatting.score(tuning['median'][i])}" for i in places]
    yield f",{separator}".join(best) or "–"
    ranks = [
        f"rung {row['rung']}: {row['tau']:.2f}" for row in description["ranks"] if row["tau"] is not None
    ]
    yield f",{separator}".join(ranks) or "–"
    counts = description["failures"].values()
    yield ", ".join(str(sum(count[kind] for count in counts)) for kind in ("diverged", "failed", "retried"))


def detectable_in_words(comparison: dict[str, Any]) -> str:
    """The smallest differences that the planned seeds would have found, a line a pair; empty before they are known."""
    lines = (
        f"{pair['a']} – {pair['b']}: the planned seeds would find a difference of {pair['detectable']:.2g} on "
        f"{comparison['primary']} four times in five, at the deviation observed"
        for pair in comparison["pairs"]
        if pair["detectable"] is not None
    )
    return "\n".join(lines)


def spending_table(history: History) -> Table:
    """Device time of each arm, search and confirmation: in steps that count, beside them, and lost to failures."""
    assert history.study is not None
    price = history.study.get("usd_per_hour")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("device time", style="bold", overflow="fold")
    for title in ("useful", "overhead", "lost", "unreported", *(["energy"] if _has_joules(history) else [])):
        table.add_column(title, justify="right")
    if price is not None:
        table.add_column("price", justify="right")
    for arm in history.study["arms"]:
        spending = history.spending(arm=arm)
        parts = [
            spending.useful.get("device_seconds", 0.0),
            spending.overhead_device_seconds,
            spending.lost.get("device_seconds", 0.0),
            spending.unreported_device_seconds,
        ]
        cells = [f"{formatting.duration(part)} {part / (sum(parts) or 1.0):.0%}" for part in parts]
        if _has_joules(history):
            cells.append(formatting.quantity(spending.useful.get("joules", 0.0), "joules"))
        if price is not None:
            cells.append(formatting.quantity(spending.total("usd"), "usd"))
        table.add_row(*map(Text, [arm, *cells]))
    return table


def _has_joules(history: History) -> bool:
    return "joules" in history.spending().useful


def print_results(history: History, folder: Location, console: Console) -> None:
    """Print what a study found, and where it lies."""
    comparison = compare(history)
    console.print(FirstFitting(final_table(comparison), final_table(comparison, upright=True)))
    if comparison["pairs"]:
        console.print(FirstFitting(comparison_table(comparison), comparison_table(comparison, "\n")))
    if history.trials:
        console.print(spending_table(history))
        console.print(FirstFitting(beside_table(comparison), beside_table(comparison, "\n")))
    if detectable := detectable_in_words(comparison):
        console.print(Text(detectable, style="dim"), end="\n\n")
    console.print(Text(verdict_in_words(comparison), style="bold"))
    console.print()
    for label, value in (
        ("results", folder.uri),
        ("look again", f"h2h watch {folder.uri}"),
        ("in Python", f'from orchestrator import Results; Results("{folder.uri}").trials'),
    ):  # never wrapped: these are to be copied
        console.print(Text.assemble((f"{label:<11}", "dim"), value), soft_wrap=True)


if __name__ == "__main__":
    from orchestrator.demonstration import records

    everything = list(records())
    for share in (0.3, 0.75, 1.0):
        Console().print(render(History.of(everything[: int(share * len(everything))])), "")
    print_results(History.of(everything), Location("studies/demonstration"), Console())
