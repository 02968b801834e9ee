"""What trials cost beside what they spend: useful, overhead and lost, attempt by attempt.

- *useful*: what training steps spent that the trial still has.
- *lost*: what they spent and a later attempt did again, from a checkpoint before it. Known to the last report; what
  came after that is in *unreported*.
- *overhead*: seconds that were not training, by cause: ``placement`` (asked for until its process has begun, or until
  its end if it never did), ``startup``, ``compile``, ``data_wait``, ``evaluation``, ``checkpoint``.
- *unreported*: the rest of the seconds between the records of an attempt's beginning and end. Of an attempt that was
  cut off it bounds what was lost and overhead after its last report; of another it is its reports' way to the ledger.

So the seconds of useful and lost steps, overhead and unreported ones are an attempt's whole time, none counted twice.
Placement is time alone: an attempt that waits for room has no devices, and costs neither energy nor money.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from orchestrator.ledger.records import AttemptOutcome, BegunRecord
from trainables.training.config import MEASURED_UNITS, Unit
from trainables.training.state import Overhead, Spent


@dataclass(slots=True)
class Attempt:
    """What the ledger has of one attempt. Amounts of spending are the trial's, from its first attempt on."""

    number: int
    asked: float  # time of the record, seconds since the epoch
    workers: int = 1
    usd_per_hour: float | None = None  # price of a worker in the session that asked for it; None where there is none
    begun: float | None = None  # when its process had built the trial; None before, and where it never did
    ended: float | None = None  # None while it runs. Where its study was cut off, the time of the last record before
    outcome: AttemptOutcome | None = None
    start: Spent = field(default_factory=dict)  # spent up to the checkpoint that it began from
    reached: Spent = field(default_factory=dict)  # spent at its last report
    overhead: Overhead = field(default_factory=dict)  # seconds by cause at its last report
    placement_seconds: float | None = None  # until it had begun; None before, and where it never did: all of its time

    def begin(self, record: BegunRecord) -> None:
        """Take in that its process has built the trial."""
        self.begun, self.workers = record.time, record.workers
        self.start = record.spent if any(record.spent.values()) else _nothing(tuple(record.spent))
        self.overhead = record.overhead
        self.placement_seconds = max(0.0, self.begun - self.asked - sum(self.overhead.values()))

    def report(self, spent: Spent, overhead: Overhead) -> None:
        """Take in what a report says."""
        # What is repeated from before the checkpoint was reached by an attempt before.
        self.reached, self.overhead = spent, overhead
        if any(amount < self.start.get(unit, amount) for unit, amount in spent.items()):
            self.reached = {unit: max(amount, self.start.get(unit, amount)) for unit, amount in spent.items()}


@dataclass(frozen=True, slots=True)
class AttemptSpending:
    """One attempt's costs, or the sum of several; see the module."""

    useful: Spent = field(default_factory=dict)
    lost: Spent = field(default_factory=dict)
    overhead: Overhead = field(default_factory=dict)
    unreported_seconds: float = 0.0
    overhead_device_seconds: float = 0.0  # overhead but for placement, times the devices that stood by
    unreported_device_seconds: float = 0.0
    overhead_usd: float = 0.0  # of both, at the attempts' own prices

    @property
    def step_device_seconds(self) -> float:
        """In training steps, kept or lost."""
        return self.useful.get("device_seconds", 0.0) + self.lost.get("device_seconds", 0.0)

    @property
    def device_seconds(self) -> float:
        """All of the attempts' time since they had begun, times their devices."""
        return self.step_device_seconds + self.overhead_device_seconds + self.unreported_device_seconds

    @property
    def wall_seconds(self) -> float:
        """All of the attempts' time, one after the other."""
        steps = self.useful.get("wall_seconds", 0.0) + self.lost.get("wall_seconds", 0.0)
        return steps + sum(self.overhead.values()) + self.unreported_seconds

    def starting(self, unit: Unit) -> float:
        """Of the :meth:`total` what went on starting, which a longer run does no more often."""
        beside = sum(seconds for cause, seconds in self.overhead.items() if cause != "placement")
        if unit not in MEASURED_UNITS or not beside or not self.device_seconds:
            return 0.0
        starts = (self.overhead.get("startup", 0.0) + self.overhead.get("compile", 0.0)) / beside
        return self.total(unit) * starts * self.overhead_device_seconds / self.device_seconds

    def __add__(self, other: AttemptSpending) -> AttemptSpending:
        return AttemptSpending(
            _sum(self.useful, other.useful),
            _sum(self.lost, other.lost),
            _sum(self.overhead, other.overhead),
            self.unreported_seconds + other.unreported_seconds,
            self.overhead_device_seconds + other.overhead_device_seconds,
            self.unreported_device_seconds + other.unreported_device_seconds,
            self.overhead_usd + other.overhead_usd,
        )

    def total(self, unit: Unit) -> float:
        """All of it in one unit, with overhead and unreported seconds where that is time, energy or money. Energy is
        measured in training steps alone; outside of them the devices are taken to draw as much: an upper bound."""
        steps = self.useful.get(unit, 0.0) + self.lost.get(unit, 0.0)
        if unit == "wall_seconds":
            return self.wall_seconds
        if unit == "device_seconds":
            return self.device_seconds
        if unit == "usd":
            return steps + self.overhead_usd
        if unit == "joules":
            in_steps = self.step_device_seconds
            return steps * self.device_seconds / in_steps if in_steps else 0.0
        return steps


def attempt_spendings(attempts: Sequence[Attempt], now: float, *, from_nothing: bool = True) -> list[AttemptSpending]:
    """What each of a trial's attempts cost; one that runs until ``now``, seconds since the epoch. ``from_nothing``: the
    first had spent nothing when it began; a branch has what its run had."""
    spendings = []
    for index, attempt in enumerate(attempts):
        # After a damaged checkpoint an attempt may take back what was there before the one before it began.
        starts = [later.start for later in attempts[index + 1 :] if later.begun is not None]
        start = attempt.start
        if index == 0 and attempt.begun is None and starts and from_nothing:
            # The record of its beginning was lost with the study's process: it trained on, and left a checkpoint.
            start = dict.fromkeys(starts[0], 0.0)
        reached = attempt.reached or start
        if starts:  # a checkpoint may be newer than the last report
            reached = {unit: max(amount, starts[0].get(unit, amount)) for unit, amount in reached.items()}
        kept = {
            unit: min([amount, *(later[unit] for later in starts if unit in later)]) for unit, amount in reached.items()
        }
        useful = {unit: max(0.0, amount - start[unit]) for unit, amount in kept.items() if unit in start}
        lost = {unit: reached[unit] - start[unit] - amount for unit, amount in useful.items()}
        ended = now if attempt.ended is None else attempt.ended
        placement = attempt.placement_seconds
        if placement is None:
            placement = max(0.0, ended - attempt.asked)
        overhead = {"placement": placement, **attempt.overhead}
        seconds = useful.get("wall_seconds", 0.0) + lost.get("wall_seconds", 0.0) + sum(overhead.values())
        unreported = max(0.0, ended - attempt.asked - seconds)
        beside = sum(attempt.overhead.values()) * attempt.workers, unreported * attempt.workers
        usd = sum(beside) * (attempt.usd_per_hour or 0.0) / 3600
        spendings.append(AttemptSpending(useful, lost, overhead, unreported, *beside, usd))
    return spendings


@cache
def _nothing(units: tuple[Unit, ...]) -> Spent:
    """What most attempts begin with: one for all."""
    return dict.fromkeys(units, 0.0)


_Key = TypeVar("_Key", bound=str)


def _sum(a: dict[_Key, float], b: dict[_Key, float]) -> dict[_Key, float]:
    return {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}
