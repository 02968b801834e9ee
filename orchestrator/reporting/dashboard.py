"""The dashboard: a study's state on a terminal, and its results when it is done."""

import time
from collections.abc import Callable
from contextlib import closing, nullcontext

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.methods import estimand
from orchestrator.config.folder import LEDGER
from orchestrator.ledger import registry
from orchestrator.ledger.history import History
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting import result_tables
from orchestrator.reporting.layout import SideBySide
from orchestrator.reporting.listening import Listening
from orchestrator.reporting.log_lines import QUIET_SECONDS, clock, lines_of, standing
from orchestrator.reporting.panels import arm_panel, footer, header_panel, pair_panel, running_panel
from orchestrator.reporting.table import on_terminal
from trainables.storage import Location

POLL_SECONDS = 0.5
REMOTE_POLL_SECONDS = 5.0  # an object store is asked less often: every question costs money
ARM_WIDTH = 48  # columns an arm's panel needs


class Stage:
    """What is done before there is anything in the ledger, or beside it: set by the study, read by the dashboard."""

    def __init__(self, what: str = "") -> None:
        self.what, self.how_far = what, ""

    def say(self, what: str, how_far: str = "") -> None:
        """Take in what is done now."""
        self.what, self.how_far = what, how_far

    @property
    def text(self) -> str:
        """Both, in a line."""
        return " ".join(filter(None, [self.what, self.how_far]))


def render(history: History, now: float | None = None, stage: str = "") -> RenderableType:
    """The dashboard at ``now``, seconds since the epoch, else at the last record; ``stage``: what is done beside it."""
    doing = [Text(f"{stage} ...", style="dim")] if stage else []
    if history.study is None:
        return Group(*doing)
    comparison = answer_of(history).comparison
    arms = [arm_panel(history, arm, summary) for arm, summary in comparison.arms.items()]
    running = [trial for trial in history.trials.values() if trial.runs]
    with_evidence = [pair for pair in comparison.pairs if any(point.n for point in pair.matched.values())]
    return Group(
        header_panel(history, now),
        SideBySide(arms, ARM_WIDTH),
        *([running_panel(running)] if running else []),
        *(pair_panel(comparison, pair) for pair in with_evidence),
        footer(history),
        *([] if running else doing),
    )


def follow(
    folder: Location,
    console: Console,
    until: Callable[[], bool] | None = None,
    *,
    since: float = 0.0,
    stage: Stage | None = None,
    patience: float | None = None,
) -> History:
    """Show a study while it runs, a dashboard on a terminal, else a line for every noteworthy record after ``since``,
    seconds since the epoch; returns its last state. ``until`` is asked at every turn whether to stop, else its
    comparison is waited for; ``stage`` says what is done beside the ledger. ``patience``: for so many seconds the study
    that this process leads waits for a storage that does not answer."""
    listening, history = Listening(LedgerReader(folder / LEDGER), patience), History(folder=folder, keeps_curves=False)
    pause = POLL_SECONDS if folder.local else REMOTE_POLL_SECONDS
    log = _Log(console, stage)
    screen = Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext()
    with closing(listening), screen as live:
        while True:
            stop = until is not None and until()  # asked first, so that the last records are read after it
            for record in listening.last() if stop else listening.heard():
                history.apply(record)
                if live is None:
                    for line in lines_of(record, history) if record.time >= since else ():
                        log.line(line)
            stop = stop or (until is None and history.finished)
            if live is not None:
                live.transient = stop and history.study is None  # an error follows, or the study was there
                doing = listening.silence or (stage.text if stage is not None else "")
                shown = render(history, None if stop else time.time(), "" if stop else doing)
                live.update(shown, refresh=True)
            elif not stop:
                log.still(history, listening.silence)
            if stop:
                return history
            time.sleep(pause)


class _Log:
    """Lines for a log, which is never quiet for long."""

    def __init__(self, console: Console, stage: Stage | None) -> None:
        self._console, self._stage = console, stage
        self._said, self._told = time.monotonic(), ""

    def line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._said = time.monotonic()

    def still(self, history: History, silence: str) -> None:
        """Say what goes on: a new stage at once, all else where nothing was said for a while; of a storage that does
        not answer, that."""
        what, stage = (self._stage.what, self._stage.text) if self._stage is not None else ("", "")
        before_trials = not any(trial.runs for trial in history.trials.values())
        if stage and before_trials and what != self._told:
            self._told = what
            self.line(f"{clock(time.time())} now      {stage}")
        elif time.monotonic() - self._said > QUIET_SECONDS:
            doing = silence or (stage if stage and before_trials else standing(history))
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
