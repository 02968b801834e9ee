"""The dashboard without a terminal: one short line for every noteworthy record, easy to search in a log."""

import time
from collections.abc import Iterator

from orchestrator import formatting
from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.selection import best_of_search
from orchestrator.ledger import records
from orchestrator.ledger.history import History
from orchestrator.reporting.pace import Left, Pace, silent_seconds

QUIET_SECONDS = 8.0  # a log in which nothing noteworthy was written for so long says what goes on


def lines_of(record: records.Record, history: History) -> Iterator[str]:
    """The lines a record is worth: a time, a word for its kind, the rest."""
    for line in _describe(record, history):
        yield f"{clock(record.time)} {line}"


def clock(seconds: float) -> str:
    """The time of day, of seconds since the epoch."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def standing(history: History, now: float, *, leads: bool = False) -> str:
    """What goes on ``now``, seconds since the epoch, in a line: for a log that would be silent otherwise. ``leads``:
    this process runs the study, and so is not gone."""
    running = [trial for trial in history.trials.values() if trial.runs]
    told = [f"{trial.trial} {trial.progress:.0%}" for trial in running[:4]]
    more = f" and {len(running) - 4} more" if len(running) > 4 else ""
    waits = f"; {waiting_in_words(history.waiting)}" if history.waiting is not None else ""
    left, silent = Pace(history).study_left() if running else None, silent_seconds(history, now)
    rest = "" if left is None else f"; {time_left(left)}"
    if silent is not None:
        gone = "" if leads else ": h2h resume goes on with it if its process is gone"
        rest = f"; {'no report' if leads else 'silent'} for {formatting.duration(silent)}{gone}"
    return f"{history.phase or 'between phases'}: {', '.join(told) or 'no trial runs'}{more}{rest}{waits}"


def time_left(left: Left) -> str:
    """``about 3.4 min left at this pace``."""
    return f"{'at most ' if left.at_most else ''}about {formatting.duration(left.seconds)} left at this pace"


def waiting_in_words(waiting: records.WaitingRecord) -> str:
    """Which workers wait for which room, and why."""
    each = " and ".join(formatting.plural(round(amount), kind) for kind, amount in sorted(waiting.each.items())[::-1])
    who = "1 worker waits for a machine" if waiting.workers == 1 else f"{waiting.workers} workers wait for machines"
    return f"{who} with {each} free: {waiting.reason}"


def _describe(record: records.Record, history: History) -> Iterator[str]:
    if isinstance(record, records.StudyRecord):
        yield f"study    {record.name} {record.design.question}".rstrip()
    elif isinstance(record, records.PhaseRecord):
        yield f"phase    {record.phase} {record.status}s"
    elif isinstance(record, records.EventRecord | records.CapRecord):
        yield f"event    {record.message}"
    elif isinstance(record, records.WaitingRecord):
        yield f"waiting  {waiting_in_words(record)}" if record.workers else "waiting  is over: all workers have room"
    elif isinstance(record, records.EnqueuedRecord):
        yield f"enqueued {record.arm} trial={record.number} {formatting.settings(record.configuration)}"
    elif isinstance(record, records.TrialRecord):
        yield _beginning(record)
    elif isinstance(record, records.EndRecord):
        yield from _ending(record, history)
    elif isinstance(record, records.ComparisonRecord):
        for paragraph in answer_of(history).verdict.split("\n\n"):
            yield f"verdict  {paragraph}"


def _beginning(record: records.TrialRecord) -> str:
    if record.attempt > 1:
        return f"resume   {record.trial} attempt={record.attempt} step={record.start_step}"
    settings = formatting.settings(record.configuration)
    return f"start    {record.trial} arm={record.arm} seed={record.seed} {settings}"


def _ending(record: records.EndRecord, history: History) -> Iterator[str]:
    trial, design = history.trial(record.trial), history.design
    primary = design.yardsticks.primary
    spent = formatting.quantity(trial.spent.get(design.unit, 0.0), design.unit)
    reason = f" ({record.reason})" if record.reason else ""
    score = formatting.score(trial.score(primary))
    if trial.outcome is None:  # there is more to come: what it has reached and spent, its next report says
        yield f"{record.outcome:<8} {trial.trial}{reason}"
        return
    yield f"{record.outcome:<8} {trial.trial} {primary}={score} spent {spent}{reason}"
    if trial.phase == "search" and best_of_search(history, trial.arm) is trial:
        yield f"best     {trial.arm} {primary}={score} {formatting.settings(trial.configuration)}"
