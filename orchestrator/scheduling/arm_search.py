"""One arm's search in virtual time: what is tried next depends on results in an order that no machine decides.

The arm has ``search.parallel`` slots. A step of a trial, to its next rung or its end, occupies one for as long as it
spends, in trial budgets, from the moment at which it was decided. Decisions are made when a slot is free, and know the
results of those steps alone that had ended by then in this time. Real trials run in any order, on any number of
machines: a decision waits for the results that it depends on, and the same results give the same decisions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import NamedTuple

from orchestrator.ledger.history import Arrived, Decision, Ended
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.halving import Pays, Step
from orchestrator.scheduling.sampler import ArmSampler
from search_spaces import Configuration
from trainables.errors import InputError

HOPELESS_TRIALS = 16  # an arm of which so many trials in a row broke or were lost is searched no further
AT_REST = ("interrupted", "retried")  # ends of attempts after which a trial is where it was

Result = Arrived | Ended


class Decided(NamedTuple):
    """A step that a trial is to take."""

    start: float
    """In virtual time."""
    decision: int
    """Which of the arm's, from 0."""
    number: int
    after: int
    """So many results of the arm, those that it could depend on."""
    configuration: Configuration


class ArmSearch:
    """One arm's search.

    Args:
        sampler: what it tries, and how its trials stand.
        parallel: slots.
        pays: gives the test of whether a step is paid for, by what is spent and committed now.
        find: a trial of that number, if there is one.
        carried_out: decisions of earlier sessions, by number. They stand, whatever the rule now says: the study may
            have been extended, or its cap tell something else by now.
    """

    def __init__(
        self,
        sampler: ArmSampler,
        parallel: int,
        pays: Callable[[], Pays],
        find: Callable[[int], TrialHistory | None],
        carried_out: Mapping[int, Decision],
    ) -> None:
        self.sampler, self._parallel, self._pays, self._find = sampler, parallel, pays, find
        self._carried_out = dict(carried_out)
        self._unwritten: list[Decided] = []
        self._num_decisions = 0  # made so far
        self._taken_in = 0  # results that have come up
        self.clock = 0.0
        self.ended_at: float | None = None  # when nothing ran any more and nothing could begin
        self.decided: dict[int, Decided] = {}  # steps that have not come up, by trial
        self._running: list[tuple[float, int]] = []  # a heap: when a step ends, of which trial
        self._known: dict[int, list[Result]] = {}  # results that have not come up
        self._seen: set[tuple[int, int | None]] = set()  # of which trial and rung, None for its end, one is known
        self._broken = 0  # trials in a row

    @property
    def hopeless(self) -> bool:
        """Whether so many trials in a row broke that no more begin."""
        return self._broken >= HOPELESS_TRIALS

    @property
    def num_running(self) -> int:
        """Steps under way in virtual time."""
        return len(self._running)

    def tell(self, result: Result) -> None:
        """Take in a result. One that was told before changes nothing."""
        if isinstance(result, Ended) and result.outcome in (*AT_REST, "pruned"):
            return
        key = result.number, result.rung if isinstance(result, Arrived) else None
        if key not in self._seen:
            self._seen.add(key)
            self._known.setdefault(result.number, []).append(result)

    def unwritten(self) -> list[Decided]:
        """Decisions made since this was last asked."""
        made, self._unwritten = self._unwritten, []
        return made

    def goes_on(self, number: int) -> bool:
        """Whether a trial is to begin, or to go on from its last result. It is not while a result of it is known that
        has not come up in virtual time: that one decides."""
        return number in self.decided and not self._known.get(number)

    def advance(self, *, waits: Callable[[float], bool], bars: Callable[[float, float], bool]) -> None:
        """Decide all that can be decided. ``waits`` tells whether at a virtual time another arm is to come further
        first; ``bars``, whether one that ended long before keeps this one from spending so much."""
        while not waits(self.clock):
            self._fill(bars)
            if not self._running:
                self.ended_at = self.clock if self.ended_at is None else self.ended_at
                return
            self.ended_at = None
            end, number = self._running[0]
            if not self._known.get(number):
                return
            heapq.heappop(self._running)
            self.clock = end
            del self.decided[number]
            first, *later = self._known.pop(number)
            if later:
                self._known[number] = later
            self._take_in(number, first)

    def next_step(self, pays: Pays | None = None) -> Step | None:
        """What is next for a free slot."""
        may_begin = not self.hopeless and not self.sampler.exhausted
        return self.sampler.halving.next_step(pays or self._pays(), may_begin=may_begin)

    def _fill(self, bars: Callable[[float, float], bool]) -> None:
        sampler, halving = self.sampler, self.sampler.halving
        while self.num_running < self._parallel:
            recorded = self._carried_out.get(self._num_decisions)
            if recorded is not None:
                if recorded.after > self._taken_in:
                    return
                number = recorded.number
            else:
                step = self.next_step()
                if step is None or bars(self.clock, halving.committed + step.most):
                    return
                number = sampler.asked if step.number is None else step.number
            before = halving.committed
            if number == sampler.asked:
                sampler.begin(self._find(number))
            elif halving.has_stopped(number):
                halving.go_on(number)
            else:
                raise InputError(
                    f"the ledger decided a step of trial {number} of '{sampler.arm}', which was not waiting for one",
                    where=f"{sampler.arm}, decision {self._num_decisions}",
                    remedy="h2h verify FOLDER; copy the folder again from where the study ran",
                )
            made = Decided(self.clock, self._num_decisions, number, self._taken_in, sampler.configuration_of(number))
            self.decided[number] = made
            if made.decision not in self._carried_out:
                self._unwritten.append(made)
            self._num_decisions += 1
            heapq.heappush(self._running, (self.clock + halving.committed - before, number))

    def _take_in(self, number: int, result: Result) -> None:
        self._taken_in += 1
        healthy = True
        if isinstance(result, Arrived):
            self.sampler.arrived(result)
        else:
            trial = self._find(number)
            assert trial is not None, "it has ended"
            self.sampler.ended(trial, result.outcome)
            healthy = result.outcome == "completed"
        if not self.hopeless:  # an arm that is given up stays so, whatever comes of its trials under way
            self._broken = 0 if healthy else self._broken + 1
