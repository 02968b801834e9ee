"""What the ledger's records add up to: the state of a study, made by reading alone.

Everything that shows or decides something starts from a :class:`History`: the dashboard, the comparison, the
results and, after a restart, the search itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.ledger.segments import Record
from orchestrator.ledger.spending import Attempt, AttemptSpending, attempt_spendings, total


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
    amount: float | None = None
    """Its budget, in the study's unit; None: the study's."""
    share: float | None = None
    """Of the budget of a confirmation run, for one that leaves it on its way."""
    attempts: int = 0
    failures: int = 0
    """Attempts that failed and were repeated."""
    stalls: int = 0
    """Of these, the last in a row that left no newer checkpoint."""
    furthest_start: int = 0
    """The newest checkpoint, as a step, that an attempt was to go on from."""
    plan: int = 0
    """The study's ``plans`` when it began."""
    attempt_records: list[Attempt] = field(default_factory=list)
    """What the ledger has of each attempt, for :meth:`spendings`."""
    _settled: AttemptSpending | None = field(default=None, repr=False)
    measures: list[Record] = field(default_factory=list)
    """The ``measure`` records that count, by step: those that a later attempt rolled back are left out."""
    outcome: str | None = None
    """None while it runs or waits to be resumed; else ``completed``, ``pruned``, ``diverged`` or ``failed``."""
    reason: str = ""
    paused: bool = False
    """It waits at a rung, and goes on if it is promoted."""

    @property
    def runs(self) -> bool:
        """Whether an attempt of it is under way."""
        return bool(self.attempt_records) and self.attempt_records[-1].ended is None

    def forget_curve(self) -> None:
        """Of an ended trial's reports keep the last one and those with yardsticks: a long search stays in memory."""
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

    def spendings(self, now: float) -> list[AttemptSpending]:
        """What each attempt cost, useful, lost and overhead apart, those that run up to ``now``."""
        return attempt_spendings(self.attempt_records, now)

    def spending(self, now: float) -> AttemptSpending:
        """What all attempts cost, up to ``now`` where one runs; cached once the trial has ended, as caps ask often."""
        if self.outcome is None:
            return total(self.spendings(now))
        if self._settled is None:
            self._settled = total(self.spendings(now))
        return self._settled

    @property
    def evaluations(self) -> list[Record]:
        """The measures at which yardsticks were taken."""
        return [measure for measure in self.measures if measure["yardsticks"]]

    def close_attempt(self, time: float, outcome: str | None = None) -> None:
        """The newest attempt has ended, if it had not."""
        if self.runs:
            self.attempt_records[-1].ended, self.attempt_records[-1].outcome = time, outcome

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
    extensions: list[Record] = field(default_factory=list)
    """What the study was later let spend more of."""
    plans: int = 0
    """How often an extension changed which runs a confirmation seed has."""
    comparison: Record | None = None
    search: dict[str, list[Record]] = field(default_factory=dict)
    """By arm, the search's ``trial`` and ``end`` records and its measures at rungs: what its decisions depend on."""
    stop: str | None = None
    """``begin`` once this session was asked to save and stop, ``end`` once it has."""
    seeds_paid: int | None = None
    """Confirmation seeds that the study's cap paid for, where it ended the phase early."""
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

    def spending(self, phase: str | None = None, arm: str | None = None) -> AttemptSpending:
        """What a phase and an arm, or all, have cost so far: useful, lost and overhead apart."""
        return total(
            trial.spending(self.updated or 0.0)
            for trial in self.trials.values()
            if phase in (None, trial.phase) and arm in (None, trial.arm)
        )

    @property
    def planned_seeds(self) -> int:
        """Confirmation seeds that are run: those of the study, or as many as its cap could pay for."""
        assert self.study is not None
        seeds = int(self.study["seeds"])
        return seeds if self.seeds_paid is None else min(seeds, self.seeds_paid)

    def apply(self, record: Record) -> None:
        """Take one record in."""
        before = self.updated
        self.started = self.started if self.started is not None else record["time"]
        self.updated = record["time"]
        kind = record["kind"]
        if record.get("phase") == "search" and (kind in ("trial", "end") or record.get("rung") is not None):
            self.search.setdefault(record["arm"], []).append(record)
        if kind in ("study", "corpus", "resources", "comparison"):
            setattr(self, kind, record)
            if kind == "study":
                self.stop = None
                # A session before it was cut off: its trials ran up to its last record at least.
                self._close_attempts(before or 0.0)
        elif kind == "stop":
            self.stop = record["status"]
            if self.stop == "end":
                self._close_attempts(record["time"])
                self.resources = None
        elif kind == "phase":
            self.phases[record["phase"]] = record["status"]
            if (record["phase"], record["status"]) == ("confirm", "begin"):
                self.seeds_paid = None
        elif kind == "extension":
            changed = [key for key in record["changes"] if not key.startswith("resources.")]
            if changed:  # other machines change no answer
                self.extensions.append(record)
                searched = any(key.startswith("search.") for key in changed)
                if any(key.partition(".")[0] == "cap" for key in changed):
                    searched |= any(e["kind"] == "cap" and e["phase"] == "search" for e in self.events)
                replanned = any(key.startswith(("confirm.top", "confirm.budget")) for key in changed)
                self.plans += searched or replanned
                for phase in ("search", "confirm", "anytime", "compare")[0 if searched else 1 :]:
                    self.phases.pop(phase, None)
                self.comparison = None
        elif kind == "cap":
            self.events.append(record)
            self.seeds_paid = record["seeds"]
        elif kind == "begun":
            self.trials[record["trial"]].attempt_records[-1].begin(record)
        elif kind == "event":
            self.events.append(record)
        elif kind == "trial":
            self._begin_attempt(record, before or record["time"])
        elif kind == "measure":
            trial = self.trials[record["trial"]]
            trial.measures.append(record)
            trial.attempt_records[-1].report(record)
        elif kind == "end":
            trial = self.trials[record["trial"]]
            if "spent" in record:
                trial.attempt_records[-1].report(record)
            trial.close_attempt(record["time"], record["outcome"])
            trial.reason = record["reason"]
            trial.failures += record["outcome"] == "retried"
            trial.stalls += record["outcome"] == "retried"
            trial.paused = record["outcome"] == "paused"
            unfinished = record["outcome"] in ("interrupted", "retried", "paused")
            trial.outcome = None if unfinished else record["outcome"]

    def _close_attempts(self, time: float) -> None:
        for trial in self.trials.values():
            trial.close_attempt(time)

    def _begin_attempt(self, record: Record, before: float) -> None:
        trial = self.trials.get(record["trial"])
        if trial is None:
            names = ("phase", "arm", "trial", "number", "seed", "configuration")
            trial = self.trials[record["trial"]] = TrialHistory(
                **{name: record[name] for name in names},
                amount=record.get("amount"),
                share=record.get("share"),
                plan=self.plans,
            )
        trial.close_attempt(before)
        trial.attempts = record["attempt"]
        if record["start_step"] > trial.furthest_start:
            trial.furthest_start, trial.stalls = record["start_step"], 0
        trial.outcome, trial.reason, trial.paused, trial._settled = None, "", False, None
        # A new attempt starts from a checkpoint: what an earlier one reported beyond it was rolled back.
        trial.measures = [m for m in trial.measures if m["step"] <= record["start_step"]]
        price = None if self.study is None else self.study.get("usd_per_hour")
        trial.attempt_records.append(
            Attempt(trial.attempts, record["time"], record.get("workers", 1), price, trial.spent)
        )
