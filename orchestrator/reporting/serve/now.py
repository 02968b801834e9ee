"""What goes on in a study now, as the terminal's dashboard has it: values for the live page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from orchestrator import formatting
from orchestrator.analysis.selection import best_of_search
from orchestrator.ledger.history import History
from orchestrator.ledger.records import PHASES, Phase, Status
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.log_lines import clock
from orchestrator.reporting.pace import per_second, seconds_left, study_seconds_left
from orchestrator.reporting.panels import SILENT_SECONDS, STOP

MOST_RUNNING, MOST_EVENTS = 40, 6


@dataclass(frozen=True)
class ArmNow:
    """An arm's search and confirmation."""

    name: str
    objective: str
    searched: float
    """Share of its search budget that is spent."""
    left: str
    search: str
    best: str
    confirmed: float
    """Share of its planned runs that have ended."""
    confirm: str


@dataclass(frozen=True)
class TrialNow:
    """A trial that runs. A loss stands beside its own trial alone: across arms it means nothing."""

    name: str
    progress: float
    loss: str
    pace: str
    left: str


@dataclass(frozen=True)
class Now:
    """A study."""

    phases: tuple[tuple[Phase, Status | None], ...]
    said: tuple[str, ...]
    """Its age, the time left, and what is out of order."""
    arms: tuple[ArmNow, ...]
    running: tuple[TrialNow, ...]
    more: int
    """Trials that run beside those shown."""
    cluster: str
    events: tuple[tuple[str, str], ...]
    """With their times, newest first."""


def now_of(history: History, now: float, silence: str = "") -> Now:
    """At ``now``, seconds since the epoch; ``silence``: that the storage does not answer."""
    design = history.design
    running = [trial for trial in history.trials.values() if trial.runs]
    resources = {} if history.resources is None else history.resources.cluster
    return Now(
        phases=tuple((phase, history.phases.get(phase)) for phase in PHASES if phase != "anytime" or design.anytime),
        said=tuple(_said(history, now, silence)),
        arms=tuple(_arm(history, arm) for arm in design.arms),
        running=tuple(_trial(history, trial) for trial in running[:MOST_RUNNING]),
        more=max(0, len(running) - MOST_RUNNING),
        cluster=" · ".join(f"{name} {used:g}/{total:g}" for name, (used, total) in resources.items()),
        events=tuple((clock(event.time), event.message) for event in history.events[: -MOST_EVENTS - 1 : -1]),
    )


def _said(history: History, now: float, silence: str) -> list[str]:
    ended = history.finished or history.stop == "end"
    age = formatting.duration((history.updated if ended else now) - (history.started or 0.0))
    said = [f"finished after {age}" if history.finished else f"{age} since it began"]
    left = None if ended else study_seconds_left(history)
    if left is not None:
        said.append(f"about {formatting.duration(left)} left at this pace")
    if history.stop:
        said.append(STOP[history.stop])
    if silence:
        said.append(silence)
    elif not ended and now - history.updated > SILENT_SECONDS:
        said.append(f"silent for {formatting.duration(now - history.updated)}")
    return said


def _arm(history: History, arm: str) -> ArmNow:
    design = history.design
    search, confirm = history.trials_of("search", arm), history.trials_of("confirm", arm)
    budget = design.search_budget * design.amount
    spent = sum(trial.spent.get(design.unit, 0.0) for trial in search)
    left = formatting.quantity(max(0.0, budget - spent), design.unit)
    best = best_of_search(history, arm)
    primary = design.yardsticks.primary
    score = "" if best is None else f"{formatting.score(best.score(primary))} {primary} (validation)"
    planned = max(history.planned_seeds, len(confirm))
    return ArmNow(
        name=arm,
        objective=design.arms[arm].objective,
        searched=min(1.0, spent / budget) if budget else 0.0,
        left=f"{left} left of {formatting.quantity(budget, design.unit)}" if budget else "",
        search=_counted(search),
        best="" if best is None else f"{score}: {formatting.settings(best.configuration)}",
        confirmed=sum(trial.outcome is not None for trial in confirm) / planned,
        confirm=f"{_counted(confirm)} of {formatting.plural(planned, 'run')}" if confirm else "",
    )


def _counted(trials: list[TrialHistory]) -> str:
    """``3 completed · 2 running``."""
    states: Counter[str] = Counter(trial.outcome or ("running" if trial.runs else "waiting") for trial in trials)
    order = ("completed", "running", "pruned", "diverged", "failed", "lost", "waiting")
    return " · ".join(f"{states[state]} {state}" for state in order if states[state])


def _trial(history: History, trial: TrialHistory) -> TrialNow:
    unit = history.design.unit
    tokens, left = per_second(trial, "tokens"), seconds_left(trial, unit)
    return TrialNow(
        name=trial.trial,
        progress=trial.progress,
        loss=formatting.score(trial.measures[-1].loss if trial.measures else None),
        pace="–" if tokens is None else f"{''.join(formatting.scaled(tokens))} tokens/s",
        left="–" if left is None else formatting.duration(left),
    )
