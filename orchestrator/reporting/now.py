"""What goes on in a study now: values for the terminal, the live page and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orchestrator import formatting
from orchestrator.analysis.selection import best_of_search, confirmed, current_runs
from orchestrator.ledger.history import History
from orchestrator.ledger.records import PHASES, Outcome, Phase, Status
from orchestrator.ledger.trials import TrialHistory
from orchestrator.reporting.log_lines import clock, time_left, waiting_in_words
from orchestrator.reporting.pace import Pace, per_second, silent_seconds

MOST_RUNNING, MOST_EVENTS = 40, 6

STOP = {
    "begin": "stopping: what runs is saved first; Ctrl-C once more to stop at once",
    "end": "stopped; h2h resume (in Python: resume()) goes on with it",
}
"""What is said of a session that was asked to stop."""

State = Literal[Outcome, "running", "waiting"]


@dataclass(frozen=True)
class ArmNow:
    """An arm's search and confirmation."""

    name: str
    objective: str
    searched: float
    """Share of its search budget that is spent."""
    left: str
    """Of that budget; empty where there is none."""
    search: tuple[tuple[int, State], ...]
    """How many of its search trials are in which state."""
    best: str
    """The value of its best search trial; empty before there is one."""
    settings: str
    """Of that trial."""
    confirm: tuple[tuple[int, State], ...]
    """Of its planned confirmation runs; empty before the first has begun."""

    @property
    def planned(self) -> int:
        """Confirmation runs."""
        return sum(count for count, _ in self.confirm)

    def confirmed(self, *states: State) -> int:
        """Confirmation runs in these states."""
        return sum(count for count, state in self.confirm if state in states)

    @property
    def ended(self) -> float:
        """The share of its planned confirmation runs that have ended."""
        return 1 - self.confirmed("running", "waiting") / self.planned if self.planned else 0.0


@dataclass(frozen=True)
class TrialNow:
    """A trial. A loss stands beside its own trial alone: across arms it means nothing."""

    name: str
    title: str
    """Its arm and which of its trials it is, in a few words."""
    state: State
    progress: float
    loss: str
    score: str
    """Of the primary yardstick, where it was last measured."""
    pace: str
    left: str


@dataclass(frozen=True)
class Now:
    """A study."""

    name: str
    question: str
    phases: tuple[tuple[Phase, Status | None], ...]
    said: tuple[str, ...]
    """The time that was worked on it, and the time left, or that it is silent."""
    warnings: tuple[str, ...]
    """That it stops, waits for room, or that its storage does not answer."""
    primary: str
    """The yardstick that decides, with its direction where that is down."""
    arms: tuple[ArmNow, ...]
    running: tuple[TrialNow, ...]
    more: int
    """Trials that run beside those shown."""
    cluster: str
    events: tuple[tuple[str, str], ...]
    """With their times, newest first."""


def now_of(history: History, now: float, silence: str = "") -> Now:
    """At ``now``, seconds since the epoch; ``silence``: that the storage does not answer."""
    design, study = history.design, history.study
    assert study is not None  # it has a design
    running = [trial for trial in history.trials.values() if trial.runs]
    resources = {} if history.resources is None else history.resources.cluster
    planned = {"anytime": bool(design.anytime), "fine_tuning": "fine_tuning" in history.phases}
    primary, pace = design.yardsticks.primary, Pace(history)
    return Now(
        name=study.name,
        question=design.question,
        phases=tuple((phase, history.phases.get(phase)) for phase in PHASES if planned.get(phase, True)),
        said=tuple(_said(history, pace, now, silence)),
        warnings=tuple(_warnings(history, silence)),
        primary=f"{primary} (validation{', lower is better' if design.lower_is_better(primary) else ''})",
        arms=tuple(_arm(history, arm) for arm in design.arms),
        running=tuple(trial_now(history, pace, trial) for trial in running[:MOST_RUNNING]),
        more=max(0, len(running) - MOST_RUNNING),
        cluster=" · ".join(f"{name} {used:g}/{total:g}" for name, (used, total) in resources.items()),
        events=tuple((clock(event.time), event.message) for event in history.events[: -MOST_EVENTS - 1 : -1]),
    )


def _said(history: History, pace: Pace, now: float, silence: str) -> Iterator[str]:
    age = formatting.duration(history.worked(now))
    yield f"finished after {age}" if history.finished else f"{age} of work so far"
    silent = None if silence else silent_seconds(history, now)
    if silent is not None:
        yield f"silent for {formatting.duration(silent)}"
    elif not history.rests and (left := pace.study_left()) is not None:
        yield time_left(left)


def _warnings(history: History, silence: str) -> Iterator[str]:
    if history.stop:
        yield STOP[history.stop]
    if history.waiting is not None:
        yield waiting_in_words(history.waiting)
    if silence:
        yield silence


def _arm(history: History, arm: str) -> ArmNow:
    design = history.design
    search, confirm = history.trials_of("search", arm), current_runs(history, arm)
    planned = 0 if history.phases.get("confirm") == "end" else history.planned_seeds * len(confirmed(history, arm))
    budget = design.search_budget * design.amount
    spent = sum(trial.spent.get(design.unit, 0.0) for trial in search)
    left = formatting.quantity(max(0.0, budget - spent), design.unit).removesuffix(f" {design.unit}")
    best = best_of_search(history, arm)
    return ArmNow(
        name=arm,
        objective=design.arms[arm].objective,
        searched=min(1.0, spent / budget) if budget else 0.0,
        left=f"{left} left of {formatting.quantity(budget, design.unit)}" if budget else "",
        search=_counted(search),
        best="" if best is None else formatting.score(best.score(design.yardsticks.primary)),
        settings="" if best is None else formatting.settings(best.configuration),
        confirm=_counted(confirm, planned),
    )


def state_of(trial: TrialHistory) -> State:
    """What was interrupted waits: it does not run."""
    return trial.outcome or ("running" if trial.runs else "waiting")


_ORDER: tuple[State, ...] = ("completed", "running", "pruned", "diverged", "failed", "lost", "waiting")


def _counted(trials: list[TrialHistory], planned: int = 0) -> tuple[tuple[int, State], ...]:
    """How many are in which state; those that are planned beside them wait."""
    states = Counter(map(state_of, trials))
    states["waiting"] += max(0, planned - len(trials))
    return tuple((states[state], state) for state in _ORDER if states[state])


def in_order(history: History) -> list[TrialHistory]:
    """All trials: those that run, in the order in which they began, then the others, the last one first."""
    running = [trial for trial in history.trials.values() if trial.runs]
    return running + [trial for trial in reversed(history.trials.values()) if not trial.runs]


def trial_now(history: History, pace: Pace, trial: TrialHistory) -> TrialNow:
    """One of them."""
    running = trial.runs
    tokens = per_second(trial, "tokens") if running else None
    left = pace.trial_seconds_left(trial) if running else None
    which = f"#{trial.number}" if trial.phase == "search" else f"seed {trial.seed}"
    share = "" if trial.share is None else f" at {trial.share:.0%}"
    return TrialNow(
        name=trial.trial,
        title=f"{trial.arm} {which}{share}",
        state=state_of(trial),
        progress=trial.progress,
        loss=formatting.score(trial.measures[-1].loss if running and trial.measures else None),
        score=formatting.score(trial.score(history.design.yardsticks.primary)),
        pace="–" if tokens is None else "".join(formatting.scaled(tokens)),
        left="–" if left is None else formatting.duration(left),
    )
