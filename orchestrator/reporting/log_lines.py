"""The dashboard without a terminal: one short line for every noteworthy record, easy to search in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator

from orchestrator import formatting
from orchestrator.analysis.comparison import best_of_search, compare
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.segments import Record

PHASES = ("prepare", "search", "confirm", "anytime", "compare")


def finished(history: History) -> bool:
    """Whether the study's comparison is done and nothing runs after it."""
    return history.phases.get("compare") == "end" and history.phase is None


def lines_of(record: Record, history: History) -> Iterator[str]:
    """The lines a record is worth: a time, a word for its kind, the rest.

    Args:
        record: the newest record.
        history: the study's state with the record in it.
    """
    for line in _describe(record, history):
        yield f"{time.strftime('%H:%M:%S', time.localtime(record['time']))} {line}"


def _describe(record: Record, history: History) -> Iterator[str]:
    kind = record["kind"]
    if kind == "study":
        yield f"study    {record['name']} {record['question']}".rstrip()
    elif kind == "phase":
        yield f"phase    {record['phase']} {record['status']}s"
    elif kind in ("event", "cap"):
        yield f"event    {record['message']}"
    elif kind == "trial":
        yield _beginning(record)
    elif kind == "end":
        yield from _ending(record, history)
    elif kind == "comparison":
        for paragraph in verdict_in_words(compare(history)).split("\n\n"):
            yield f"verdict  {paragraph}"


def _beginning(record: Record) -> str:
    if record["attempt"] > 1:
        return f"resume   {record['trial']} attempt={record['attempt']} step={record['start_step']}"
    settings = formatting.settings(record["configuration"])
    return f"start    {record['trial']} arm={record['arm']} seed={record['seed']} {settings}"


def _ending(record: Record, history: History) -> Iterator[str]:
    assert history.study is not None
    trial, unit = history.trials[record["trial"]], history.study["budget"]["unit"]
    primary = history.study["yardsticks"]["primary"]
    spent = formatting.quantity(trial.spent.get(unit, 0.0), unit)
    reason = f" ({record['reason']})" if record["reason"] else ""
    score = formatting.score(trial.score(primary))
    if trial.outcome is None:  # there is more to come: what it has reached and spent, its next report says
        yield f"{record['outcome']:<8} {trial.trial}{reason}"
        return
    yield f"{record['outcome']:<8} {trial.trial} {primary}={score} spent {spent}{reason}"
    if trial.phase == "search" and best_of_search(history, trial.arm) is trial:
        yield f"best     {trial.arm} {primary}={score} {formatting.settings(trial.configuration)}"
