"""The dashboard: a study's state on a terminal, and its results when it is done."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from typing import NamedTuple, Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.methods import estimand
from orchestrator.config.folder import LEDGER
from orchestrator.ledger import registry
from orchestrator.ledger.history import History, read_history
from orchestrator.ledger.records import Record
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting import result_tables
from orchestrator.reporting.keys import Keys, Scroll
from orchestrator.reporting.layout import Drawn, Line, Lines, SideBySide, drawn, panel, plain_where_needed
from orchestrator.reporting.listening import Listening, Stage
from orchestrator.reporting.log_lines import QUIET_SECONDS, clock, lines_of, standing
from orchestrator.reporting.now import in_order, now_of, trial_now
from orchestrator.reporting.pace import Pace
from orchestrator.reporting.paced import Paced, changes_answer
from orchestrator.reporting.panels import (
    arm_lines,
    arm_panel,
    footer,
    header_lines,
    header_panel,
    pair_panel,
    trials_grid,
    verdict_lines,
)
from orchestrator.reporting.sparklines import Curve, curves, scales
from orchestrator.reporting.table import on_terminal
from trainables.errors import InputError
from trainables.storage import Location

POLL_SECONDS = 0.5
REMOTE_POLL_SECONDS = 5.0  # an object store is asked less often: every question costs money
DRAW_SECONDS, LEAST_SECONDS = 1.0, 2.0  # between two drawings, and two computations of what a study says, at least
SHARE = 0.015
"""Of a core that either takes: of a large study they come less often."""
REPLAY_SHARE = 0.25
"""Of a core that what a study says takes in a replay, which is short, and whose time is not that of the clock."""
ARM_WIDTH = 48  # columns an arm's panel needs
MOST_RUNNING, LEAST_TRIALS = 8, 4
"""Running trials that are shown where no screen limits them; trials for which a screen must have room in panels."""


class Found(NamedTuple):
    """What takes long to compute of a study."""

    comparison: Comparison
    curves: Mapping[str, Curve]


def found_of(history: History) -> Found:
    """What a study says so far, and its arms' learning curves. Raises InputError as
    :func:`orchestrator.analysis.answer.answer_of`."""
    return Found(answer_of(history).comparison, curves(history))


def render(history: History, now: float | None = None, stage: str = "") -> RenderableType:
    """The dashboard at ``now``, seconds since the epoch, else at the last record, as long as it is; ``stage``: what is
    done beside it."""
    return Screen(history, found_of(history), now, stage) if history.study is not None else _doing(stage)


def _doing(stage: str) -> RenderableType:
    return Group(*([Text(f"{stage} ...", style="dim")] if stage else []))


class Screen:
    """The dashboard: panels and, on a screen too short for them, lines. Its trials scroll.

    Args:
        history: of a study that has begun.
        found: of that history, or of a little before.
        now: seconds since the epoch; None: at the last record.
        stage: what is done beside the ledger, told while no trial runs.
        silence: that the storage does not answer.
        scroll: where the trials are scrolled to, on a screen; None: no screen, it is as long as it is.
    """

    def __init__(
        self,
        history: History,
        found: Found,
        now: float | None = None,
        stage: str = "",
        silence: str = "",
        scroll: Scroll | None = None,
    ) -> None:
        self._history, self._found, self._scroll = history, found, scroll
        self._now = now_of(history, history.updated if now is None else now, silence)
        self._stage = "" if self._now.running else stage

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._scroll is None:
            running = [*self._now.running[:MOST_RUNNING]]
            number = len(self._now.running) + self._now.more
            hidden = [Text(f"and {number - len(running)} more", "dim")] if number > len(running) else []
            trials = panel(Group(trials_grid(running), *hidden), Text(f"running {number}")) if running else Group()
            yield from plain_where_needed(console, options, Group(*self._panels(), trials, *self._below()))
            return
        height = options.size.height - 1  # a line less than there is: the cursor stands in it
        lines = self._framed(console, options, height) or self._short(console, options, height)
        yield from plain_where_needed(console, options, Lines(lines[:height]))

    def _framed(self, console: Console, options: ConsoleOptions, height: int) -> list[Drawn] | None:
        """In panels, with the arms at equal spending if there is room; None where there is none."""
        above, running = drawn(console, options, *self._panels()), len(self._now.running)
        least = 3 + min(len(self._history.trials), max(LEAST_TRIALS, min(running, MOST_RUNNING)))
        for below in (self._below(), (footer(self._now), _doing(self._stage))):
            lines = drawn(console, options, *below)
            if (room := height - len(above) - len(lines)) >= least:
                return above + drawn(console, options, *self._trials(room - 3, framed=True)) + lines
        return None

    def _short(self, console: Console, options: ConsoleOptions, height: int) -> list[Drawn]:
        found = self._found
        arms = arm_lines(self._now, found.curves, scales(found.curves, self._history))
        above = drawn(console, options, header_lines(self._now), verdict_lines(found.comparison), arms)
        below = drawn(console, options, footer(self._now, most_events=1), _doing(self._stage))
        trials = drawn(console, options, *self._trials(max(1, height - len(above) - len(below) - 2), framed=False))
        return above + trials + below

    def _panels(self) -> list[RenderableType]:
        found, own = self._found, scales(self._found.curves, self._history)
        arms = [
            arm_panel(self._now, arm, found.curves.get(arm.name), own.get(arm.name, (0.0, 0.0)))
            for arm in self._now.arms
        ]
        return [header_panel(self._now), verdict_lines(found.comparison), SideBySide(arms, ARM_WIDTH)]

    def _below(self) -> list[RenderableType]:
        comparison = self._found.comparison
        with_evidence = [pair for pair in comparison.pairs if any(point.n for point in pair.matched.values())]
        pairs = (pair_panel(comparison, pair) for pair in with_evidence)
        return [*pairs, footer(self._now), _doing(self._stage)]

    def _trials(self, room: int, *, framed: bool) -> list[RenderableType]:
        """As many of all trials as there is ``room`` for, and which these are."""
        assert self._scroll is not None
        history, trials, pace = self._history, in_order(self._history), Pace(self._history)
        if not trials:
            return []
        first = self._scroll.show(room, len(trials))
        shown = [trial_now(history, pace, trial) for trial in trials[first : first + room]]
        title = f"running {sum(trial.runs for trial in trials)} of {len(trials)} trials"
        if len(trials) > room:
            title += f" · {first + 1} to {first + len(shown)} shown{self._scroll.hint}"
        return [panel(trials_grid(shown), Text(title))] if framed else [Line(Text(title, "dim")), trials_grid(shown)]


class _Shown:
    """The dashboard on a terminal, drawn again when something is new, and once a second for the clocks."""

    def __init__(self, console: Console, history: History, scroll: Scroll, share: float) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._history, self._scroll = history, scroll
        self._found: Paced[Found | None] = Paced(None, LEAST_SECONDS, share)
        self._due = 0.0

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        """What it came to stands on the terminal, whole. Nothing does where the study has not begun: an error follows,
        or it was there."""
        if self._history.study is not None and (raised is None or issubclass(raised, KeyboardInterrupt)):
            self._live.transient = False
            self._live.update(render(self._history), refresh=False)
        self._live.stop()

    def heard(self, record: Record) -> None:
        """Something is new."""
        self._found.stale |= changes_answer(record)

    def draw(self, now: float, stage: str, silence: str, *, at_once: bool = False) -> None:
        """Draw what there is, unless that was done a moment ago."""
        if time.monotonic() < self._due and not at_once:
            return
        if self._history.study is None:
            self._live.update(_doing(silence or stage), refresh=True)
            return
        if self._found.made is None or self._found.is_due():
            self._found.refresh(lambda: found_of(self._history))
            assert self._found.made is not None
        began = time.thread_time()
        screen = Screen(self._history, self._found.made, now, stage, silence, self._scroll)
        self._live.update(screen, refresh=True)
        self._due = time.monotonic() + max(DRAW_SECONDS, (time.thread_time() - began) / SHARE)


class Source(Protocol):
    """Where records come from."""

    @property
    def silence(self) -> str:
        """That the storage does not answer; empty while it does."""

    def heard(self) -> list[Record]:
        """What is new."""

    def last(self) -> list[Record]:
        """What is new, when nothing more is asked for."""

    def now(self) -> float:
        """The time to show them at, seconds since the epoch."""

    def close(self) -> None:
        """Ask no more."""


def follow(
    folder: Location,
    console: Console,
    until: Callable[[], bool] | None = None,
    *,
    since: float = 0.0,
    stage: Stage | None = None,
    patience: float | None = None,
    replays: Source | None = None,
    keys: Keys | None = None,
) -> History:
    """Show a study while it runs, a dashboard on a terminal, else a line for every noteworthy record after ``since``,
    seconds since the epoch; returns its last state. ``until`` is asked at every turn whether to stop, else its
    comparison is waited for; ``stage`` says what is done beside the ledger. ``patience``: for so many seconds the study
    that this process leads waits for a storage that does not answer. ``replays``: other records than
    those that are written now. ``keys`` scroll."""
    history = History(folder=folder, keeps_curves=False)
    source = replays or Listening(LedgerReader(folder / LEDGER), patience)
    pause = POLL_SECONDS if folder.local else REMOTE_POLL_SECONDS
    log, scroll = _Log(console, stage, leads=patience is not None), Scroll(keys is not None)
    draws = console.is_terminal and not console.is_dumb_terminal
    shown = _Shown(console, history, scroll, SHARE if replays is None else REPLAY_SHARE) if draws else nullcontext()
    with closing(source), keys or nullcontext(), shown as screen:
        while True:
            stop = until is not None and until()  # asked first, so that the last records are read after it
            for record in source.last() if stop else source.heard():
                try:
                    history.apply(record)
                except InputError:
                    read_history(folder / LEDGER, keeps_curves=False)  # refuses it too, and says in which line
                    raise
                if screen is not None:
                    screen.heard(record)
                    continue
                for line in lines_of(record, history) if record.time >= since else ():
                    log.line(line)
            if stage is not None and history.study is not None:
                stage.begun()
            stop = stop or (until is None and history.finished)
            if stop:
                return history
            if screen is None:
                log.still(history, source.now(), source.silence)
            else:
                screen.draw(source.now(), stage.text if stage is not None else "", source.silence)
            if keys is None or screen is None:
                time.sleep(pause)
            elif keys.scrolled(scroll, pause):
                return history
            elif scroll.moved:
                screen.draw(source.now(), "", source.silence, at_once=True)


class _Log:
    """Lines for a log, which is never quiet for long."""

    def __init__(self, console: Console, stage: Stage | None, *, leads: bool) -> None:
        self._console, self._stage, self._leads = console, stage, leads
        self._said, self._told = time.monotonic(), ""

    def line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._said = time.monotonic()

    def still(self, history: History, now: float, silence: str) -> None:
        """Say what goes on ``now``: a new stage at once, all else where nothing was said for a while; of a storage that
        does not answer, that."""
        what, stage = (self._stage.what, self._stage.text) if self._stage is not None else ("", "")
        before_trials = not any(trial.runs for trial in history.trials.values())
        if stage and before_trials and what != self._told:
            self._told = what
            self.line(f"{clock(time.time())} now      {stage}")
        elif time.monotonic() - self._said > QUIET_SECONDS:
            doing = silence or (stage if stage and before_trials else standing(history, now, leads=self._leads))
            self.line(f"{clock(time.time())} still    {doing}")


def print_results(history: History, folder: Location, console: Console) -> None:
    """Print what a study found, and where it lies."""
    answer = answer_of(history)
    comparison, arms = answer.comparison, result_tables.arms_table(answer.comparison)
    console.print(on_terminal(arms, arms.upright))
    if comparison.pairs:
        console.print(on_terminal(result_tables.comparison_table(comparison)))
    if (tasks := result_tables.own_tasks_table(comparison)).rows:
        console.print(on_terminal(tasks))
    if history.trials:
        console.print(on_terminal(result_tables.spending_table(history)))
        console.print(on_terminal(result_tables.search_table(comparison)))
    if detectable := result_tables.detectable_in_words(comparison):
        console.print(Text(detectable, style="dim"), end="\n\n")
    console.print(Text(answer.verdict, style="bold"))
    console.print()
    if comparison.pairs:
        console.print(Text(estimand(history.design, comparison), style="dim"), end="\n\n")
    if began := registry.standing(history.first):
        console.print(Text(f"Begun as {began}.", style="dim"), end="\n\n")
    for label, value in (
        ("results", folder.uri),
        ("look again", f"h2h watch {folder.uri}"),
        *([("head", f"{history.head} (of its ledger)")] if history.head else []),
        ("in Python", f'from orchestrator import Results; Results("{folder.uri}").trials'),
    ):  # never wrapped: these are to be copied
        console.print(Text.assemble((f"{label:<11}", "dim"), value), soft_wrap=True)
