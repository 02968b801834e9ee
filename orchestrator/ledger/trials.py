"""One trial, as the ledger tells it."""

from dataclasses import dataclass, field

from orchestrator.ledger.records import MeasureRecord, Outcome, TrainingPhase
from orchestrator.ledger.reports import Reports
from orchestrator.ledger.spending import Attempt, AttemptSpending, attempt_spendings
from search_spaces import Configuration
from trainables.training.state import Built, Environment, Floors, Spent


def trial_name(phase: TrainingPhase, arm: str, number: int, share: float | None = None) -> str:
    """A trial's name, also its folder's; a branch has its run's number, and the share where it is compared."""
    return f"{phase}-{arm}-{number:03d}" + ("" if share is None else f"-at-{share:g}")


@dataclass(slots=True)
class TrialHistory:
    """One trial: its configuration and what counts of its attempts' reports."""

    phase: TrainingPhase
    arm: str
    trial: str
    number: int  # position in the arm's sequence of trials, from 0
    seed: int
    configuration: Configuration
    amount: float  # its budget, in the study's unit
    share: float | None = None  # of a branch: the share of its confirmation run's budget at which it is compared
    by_hand: bool = False  # whether a person chose its configuration while the search went on
    attempts: int = 0
    failures: int = 0  # attempts that failed and were repeated
    stalls: int = 0  # of these, the last in a row that left no newer checkpoint
    furthest_start: int = 0  # the newest checkpoint, as a step, that an attempt was to go on from
    plan: int = 0  # the study's `plans` when it began
    attempt_records: list[Attempt] = field(default_factory=list)  # for :meth:`spendings`
    measures: Reports = field(default_factory=Reports)
    floors: Floors | None = None  # where it measured them
    environment: Environment | None = None  # of the last attempt
    built: tuple[Built, ...] = ()  # what its attempts trained, and on what: each once
    outcome: Outcome | None = None  # None while it runs or waits to be resumed
    reason: str = ""
    settled: AttemptSpending | None = field(default=None, repr=False)  # what all attempts cost, once it has ended

    @property
    def runs(self) -> bool:
        """Whether an attempt of it is under way."""
        return bool(self.attempt_records) and self.attempt_records[-1].ended is None

    def forget_curve(self) -> None:
        """Of an ended trial's reports keep the last one and those with yardsticks: a long search stays in memory. One
        that stopped at a rung may go on from before it: what is repeated then is told from what is new by all."""
        if self.outcome not in (None, "pruned"):
            last = self.measures[-1:]
            self.measures = self.measures.kept(lambda measure: bool(measure.yardsticks) or measure in last)

    @property
    def spent(self) -> Spent:
        """What the trial has spent so far, by budget unit; {} before the first report."""
        return self.measures.spent

    @property
    def progress(self) -> float:
        """Share of the trial's budget that is spent, 0 to 1."""
        return self.measures.progress

    def spendings(self, now: float) -> list[AttemptSpending]:
        """What each attempt cost, useful, lost and overhead apart, those that run up to ``now``."""
        return attempt_spendings(self.attempt_records, now, from_nothing=self.share is None)

    def spending(self, now: float) -> AttemptSpending:
        """What all attempts cost, up to ``now`` where one runs; kept once the trial has ended, as caps ask often."""
        if self.outcome is not None and self.settled is not None:
            return self.settled
        spending = sum(self.spendings(now), AttemptSpending())
        self.settled = None if self.outcome is None else spending
        return spending

    @property
    def evaluations(self) -> list[MeasureRecord]:
        """The measures at which yardsticks were taken."""
        return [measure for measure in self.measures if measure.yardsticks]

    def course(self, yardstick: str) -> list[tuple[float, float]]:
        """Progress and the yardstick at each evaluation, all on the same text."""
        return [
            (measure.progress, (measure.course or measure.yardsticks)[yardstick].overall)
            for measure in self.evaluations
            if yardstick in (measure.course or measure.yardsticks)
        ]

    def score(self, yardstick: str) -> float | None:
        """The yardstick's last overall value, or None where it was never taken."""
        return dict(self.measures.scores).get(yardstick)
