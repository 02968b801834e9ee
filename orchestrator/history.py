"""What the ledger's records add up to: the state of a study, made by reading alone.

Everything that shows or decides something starts from a :class:`History`: the dashboard, the comparison, the
results and, after a restart, the search itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.ledger import Record


@dataclass
class TrialHistory:
    """One trial: its configuration and what counts of its attempts' reports."""

    phase: str
    arm: str
    trial: str
    number: int
    """Position in the arm's sequence of trials, from 0."""
    seed: int
    configuration: dict[str, Any]
    """The searched settings' values."""
    attempts: int = 0
    failures: int = 0
    """Attempts that failed and were repeated."""
    measures: list[Record] = field(default_factory=list)
    """The ``measure`` records that count, by step: those that a later attempt rolled back are left out."""
    outcome: str | None = None
    """None while it runs or waits to be resumed; else ``completed``, ``pruned``, ``diverged`` or ``failed``."""
    reason: str = ""
    paused: bool = False
    """It waits at a rung, and goes on if it is promoted."""

    def forget_curve(self) -> None:
        """Keep, of an ended trial's reports, those that anything is decided by: a long search stays small in memory."""
        if self.outcome is not None:
            self.measures = [m for m in self.measures if m["yardsticks"] or m is self.measures[-1]]

    @property
    def spent(self) -> dict[str, float]:
        """What the trial has spent so far, by budget unit; {} before the first report."""
        return dict(self.measures[-1]["spent"]) if self.measures else {}

    @property
    def progress(self) -> float:
        """Share of the trial's budget that is spent, 0 to 1."""
        return float(self.measures[-1]["progress"]) if self.measures else 0.0

    @property
    def evaluations(self) -> list[Record]:
        """The measures at which yardsticks were taken."""
        return [measure for measure in self.measures if measure["yardsticks"]]

    def score(self, yardstick: str) -> float | None:
        """The yardstick's last overall value, or None where it was never taken."""
        for measure in reversed(self.measures):
            if yardstick in measure["yardsticks"]:
                return float(measure["yardsticks"][yardstick]["overall"])
        return None


@dataclass
class History:
    """A study's state. Feed it records in the ledger's order; it never looks ahead."""

    study: Record | None = None
    corpus: Record | None = None
    phases: dict[str, str] = field(default_factory=dict)
    """Phase to ``begin`` or ``end``, in the order of their beginnings."""
    trials: dict[str, TrialHistory] = field(default_factory=dict)
    """By trial name, in the order of their beginnings."""
    resources: Record | None = None
    events: list[Record] = field(default_factory=list)
    comparison: Record | None = None
    search: dict[str, list[Record]] = field(default_factory=dict)
    """By arm, the search's ``trial`` and ``end`` records and its measures at rungs: what its decisions depend on."""
    started: float | None = None
    """Time of the first record, seconds since the epoch."""
    updated: float | None = None
    """Time of the last one."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> History:
        """The state after ``records``."""
        history = cls()
        for record in records:
            history.apply(record)
        return history

    @property
    def phase(self) -> str | None:
        """The phase that runs; None between phases."""
        running = [phase for phase, status in self.phases.items() if status == "begin"]
        return running[-1] if running else None

    def trials_of(self, phase: str, arm: str | None = None) -> list[TrialHistory]:
        """The trials of a phase, and of one arm if asked, by number."""
        chosen = [t for t in self.trials.values() if t.phase == phase and arm in (None, t.arm)]
        return sorted(chosen, key=lambda t: (t.arm, t.number))

    def spent(self, phase: str, arm: str, unit: str) -> float:
        """What an arm has spent in a phase, in one budget unit."""
        return sum(trial.spent.get(unit, 0.0) for trial in self.trials_of(phase, arm))

    def apply(self, record: Record) -> None:
        """Take one record in."""
        self.started = self.started if self.started is not None else record["time"]
        self.updated = record["time"]
        kind = record["kind"]
        if record.get("phase") == "search" and (kind in ("trial", "end") or record.get("rung") is not None):
            self.search.setdefault(record["arm"], []).append(record)
        if kind in ("study", "corpus", "resources", "comparison"):
            setattr(self, kind, record)
        elif kind == "phase":
            self.phases[record["phase"]] = record["status"]
        elif kind == "event":
            self.events.append(record)
        elif kind == "trial":
            self._begin_attempt(record)
        elif kind == "measure":
            self.trials[record["trial"]].measures.append(record)
        elif kind == "end":
            trial = self.trials[record["trial"]]
            trial.reason = record["reason"]
            trial.failures += record["outcome"] == "retried"
            trial.paused = record["outcome"] == "paused"
            unfinished = record["outcome"] in ("interrupted", "retried", "paused")
            trial.outcome = None if unfinished else record["outcome"]

    def _begin_attempt(self, record: Record) -> None:
        trial = self.trials.get(record["trial"])
        if trial is None:
            names = ("phase", "arm", "trial", "number", "seed", "configuration")
            trial = self.trials[record["trial"]] = TrialHistory(**{name: record[name] for name in names})
        trial.attempts = record["attempt"]
        trial.outcome, trial.reason, trial.paused = None, "", False
        # A new attempt starts from a checkpoint: what an earlier one reported beyond it was rolled back.
        trial.measures = [m for m in trial.measures if m["step"] <= record["start_step"]]
