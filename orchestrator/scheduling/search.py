"""The search: every arm within its budget, by decisions that do not depend on which trials happen to end first."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import Arrived, Ended, History
from orchestrator.ledger.records import AttemptOutcome, DecisionRecord, MeasureRecord
from orchestrator.ledger.trials import TrialHistory, trial_name
from orchestrator.scheduling.arm_search import ArmSearch, Decided
from orchestrator.scheduling.halving import Pays
from orchestrator.scheduling.sampler import ArmSampler
from orchestrator.scheduling.study_budget import StudyBudget
from orchestrator.scheduling.trials import PlannedTrial, Planner

LEAD = 1.0  # of virtual time, a whole trial: no arm decides further ahead of another that still searches
TOLERANCE = 1e-9  # amounts in trial budgets that differ by less are the same


class SearchPhase:
    """Tunes every arm within its search budget. The state is the ledger's.

    Arms are searched apart, each in virtual time (:mod:`orchestrator.scheduling.arm_search`). They are kept together:
    none decides more than :data:`LEAD` ahead of another. Where an arm has ended for good, its grid gone through or
    nothing but broken trials, the others end too once they would have spent a trial more.
    """

    def __init__(self, spec: StudySpec, history: History, corpus: str) -> None:
        self._spec, self._history = spec, history
        self._planner = Planner(spec, history, corpus)
        self._cap = None if spec.cap is None else StudyBudget(spec, history, spec.cap)
        self._launched: set[str] = set()
        self.go_through()

    def go_through(self) -> None:
        """Go through the ledger's decisions and results again, and decide what follows: as a session does that begins,
        and one that goes on when something was enqueued. What is not written down is decided anew."""
        spec, history = self._spec, self._history
        self._arms: dict[str, ArmSearch] = {}
        # What is measured may turn out dearer: side by side, that would be known too late to keep within the cap.
        parallel = spec.search.parallel if self._cap is None or self._cap.exact else 1
        for name, arm in spec.arms.items():
            sampler = ArmSampler(
                name, arm.search_space, spec.search, history.design, spec.confirm.top, history.enqueued.get(name)
            )
            self._arms[name] = ArmSearch(
                sampler, parallel, partial(self._pays, name), partial(self._find, name), history.decisions.get(name, {})
            )
            for event in history.search.get(name, ()):
                if isinstance(event, Arrived | Ended):
                    self._arms[name].tell(event)
        self._advance()
        # Those that have come to where they stop, in a session that was cut off before they did.
        begun = [trial for trial in history.trials_of("search") if trial.outcome is None]
        self._stopping = [
            trial
            for trial in begun
            if trial.trial not in self._launched and not self._arms[trial.arm].goes_on(trial.number)
        ]

    def _find(self, arm: str, number: int) -> TrialHistory | None:
        return self._history.trials.get(trial_name("search", arm, number))

    def _pays(self, arm: str, *, capped: bool = True) -> Pays:
        """Whether a step of an arm is paid for: by its own budget, and the study's."""
        committed = {name: own.sampler.halving.committed for name, own in self._arms.items()}
        left = self._spec.search.budget_per_arm - committed[arm]
        cap = self._cap if capped else None
        waiting = Counter(own for _, own in self._ready())
        allows = cap.for_search(committed, waiting) if cap else None
        waits = cap is not None and self._arms[arm].num_running > 0 and cap.waits_for_costs("search")

        def pays(cost: float, kept: float | None) -> bool:
            # An arm comes to its end also where trials went further beyond their rungs than was thought.
            slack = self._arms[arm].sampler.halving.unforeseen if kept is None else 0.0
            if waits or cost + (kept or 0.0) > left + slack + TOLERANCE:
                return False
            return allows is None or allows(arm, cost, kept)

        return pays

    def _advance(self) -> None:
        """Decide all that can be decided: where one arm comes further, another may."""
        state = None
        while state != (state := [(arm.clock, len(arm.decided), arm.ended_at) for arm in self._arms.values()]):
            for name, arm in self._arms.items():
                others = [own for other, own in self._arms.items() if other != name]
                arm.advance(waits=partial(_is_ahead, others), bars=partial(_is_barred, others))

    def _ready(self) -> Iterator[tuple[Decided, str]]:
        """Steps to be launched, with their arms."""
        for arm, search in self._arms.items():
            for number, decided in search.decided.items():
                if search.goes_on(number) and trial_name("search", arm, number) not in self._launched:
                    yield decided, arm

    def next(self) -> PlannedTrial | None:
        """The step that was decided first, in virtual time, of those that do not run."""
        if self._stopping:
            planned = self._planner.plan_again(self._stopping.pop(0))
        else:
            decided, arm = min(self._ready(), default=(None, ""), key=lambda ready: ready[0][:2])
            if decided is None:
                return None
            trial = self._find(arm, decided.number)
            if trial is not None:
                planned = self._planner.plan_again(trial)
            else:
                # One seed for all: configurations are compared on the same data and initial weights.
                seed, configuration = self._spec.seed, decided.configuration
                planned = self._planner.plan("search", arm, decided.number, seed, configuration)
        self._launched.add(planned.trial)
        return planned

    def decisions(self) -> Iterator[DecisionRecord]:
        for arm, search in self._arms.items():
            for decided in search.unwritten():
                yield DecisionRecord(arm=arm, decision=decided.decision, number=decided.number, after=decided.after)

    def exhausted(self) -> bool:
        return not self._launched and not self._stopping and next(self._ready(), None) is None

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        """A trial stops at a rung if it is not its turn, or if that depends on others that are still to come."""
        primary = self._history.design.yardsticks.primary
        if measure.rung is None or primary not in measure.yardsticks:
            return False
        arm = self._arms[trial.arm]
        arm.tell(Arrived(trial.number, measure.rung, measure.yardsticks[primary].overall, measure.progress))
        self._advance()
        return not arm.goes_on(trial.number)

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        self._launched.discard(trial.trial)
        arm = self._arms[trial.arm]
        if trial.outcome is None and not arm.goes_on(trial.number):
            self._stopping.append(trial)
        arm.tell(Ended(trial.number, outcome))
        self._advance()

    def ended_early(self) -> str:
        going_on = (arm.next_step(self._pays(name, capped=False)) for name, arm in self._arms.items())
        return "" if self._cap is None or not any(going_on) else self._cap.search_ended()


def _is_ahead(others: list[ArmSearch], clock: float) -> bool:
    """Whether an arm that is so far is to wait for another."""
    return any(other.ended_at is None and other.clock < clock - LEAD for other in others)


def _is_barred(others: list[ArmSearch], clock: float, spending: float) -> bool:
    """Whether an arm that ended long before keeps one from spending so much."""
    return any(
        other.ended_at is not None
        and other.ended_at <= clock - LEAD
        and spending > other.sampler.halving.committed + 1.0 + TOLERANCE
        for other in others
    )
