"""The comparison: what the confirmation says about every two arms, by rules fixed beforehand.

A yardstick is compared at the end of the confirmation runs, whose budgets are equal, seed by seed. Arms are compared
only where their task is the same: recovering a masked token, which sees both sides of it, and predicting the next one
are different tasks, and no yardstick means the same in both.

Where several configurations of an arm were confirmed, one of them stands for it
(:func:`orchestrator.analysis.selection.chosen_runs`). That choice is made by the values that the test then sees, so a
pair of such an arm is ``exploratory``, as is every pair of a study that was extended: its verdict is one for a next
study to confirm.

The verdict is that of :mod:`orchestrator.analysis.statistics.rule`, once every planned seed has ended. With adaptive
stopping a pair of arms is settled by its first look that has a verdict, and its numbers are those of the seeds up to
there, in their order; what was trained beyond, for another pair's sake, is not in them. Until then it has neither p nor
interval. A run that diverged or failed counts as the worst model that is known (:mod:`orchestrator.analysis.worth`). A
seed at which either arm's run was lost is no pair: it is missing, and listed. A verdict is withheld where neither arm
has surely learned anything (:mod:`orchestrator.analysis.floors`), and where it would rest on what did not break
(:data:`orchestrator.analysis.statistics.rule.Withheld`).

Only the primary yardstick was named beforehand, with margin, seeds and stopping rule. All others are exploratory, as
are ``matched``, ``branches``, ``time_to_target`` and ``tuning``: they may suggest a question, and answer none. Their
p-values and intervals are those of a fixed number of pairs, also where stopping was adaptive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import comb
from typing import Literal

from pydantic import JsonValue, ValidationError

from orchestrator import formatting
from orchestrator.analysis.statistics.evidence import Interval
from orchestrator.analysis.statistics.rule import Withheld
from orchestrator.analysis.statistics.time_to_target import TimeToTarget
from orchestrator.analysis.statistics.tuning_curves import TuningCurve
from orchestrator.ledger.records import ArmDesign, Outcome, TrainingPhase
from search_spaces import Configuration, Setting
from trainables.config import Config
from trainables.models.config import Task
from trainables.training.config import Unit
from trainables.training.state import Built, Spent

Role = Literal["primary", "exploratory"]
Standing = Literal["confirmatory", "exploratory"]
FloorName = Literal["chance", "untrained", "unigram", "bigram"]
Trend = Literal["branches", "course"]


class Difference(Config):
    """A yardstick of two arms, seed by seed. What there is not yet is None."""

    n: int
    """Complete pairs."""
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    """Mean of a - b."""
    interval: Interval | None
    """95%."""


class Row(Difference):
    """One yardstick of a pair of arms."""

    role: Role
    lower_is_better: bool
    deviation: float | None
    """Standard deviation of the paired differences."""
    seed_error: float | None
    """Standard error of the difference by the seeds alone."""
    text_error: float | None
    """Likewise by the held-out text alone; None where its documents' scores are not known."""
    text_degrees: float | None = None
    """Of freedom, of that error."""
    fixed_text: tuple[str, ...] = ()
    """Languages whose text is taken as it is beside others, as it has too few units to show its chance."""
    p: float | None
    p_adjusted: float | None
    """Over all pairs of arms; the exploratory ones among themselves."""


class Gap(Config):
    """A run that ended without a value."""

    seed: int
    arm: str
    outcome: Outcome
    reason: str


class BranchRow(Row):
    """One yardstick where the branches at a share of the budget end."""

    share: float
    yardstick: str
    missing: tuple[Gap, ...]


Tier = Literal["zero-shot", "probe", "fine-tuned"]
"""How a task is asked: by likelihoods, of frozen features, or of models that were trained on it."""


class MetricRow(Difference):
    """What a task's field measures it by, in the mean over its languages. It is no mean of examples: its interval is by
    the seeds alone."""

    name: str
    chance: float
    """What one answer to all comes to, at most."""


class VariesBy(Config):
    """Shares of the variance of a difference between fine-tuned models."""

    pretraining: float
    """Other seeds of pretraining."""
    fine_tuning: float
    """Other seeds of fine-tuning: what more fine-tunings of each model would take away."""
    items: float
    """Other examples."""


class TaskRow(Row):
    """One downstream task, in the mean over its languages: shares of its examples that are right."""

    task: str
    tier: Tier
    languages: tuple[str, ...]
    items: int
    """Examples of all languages; translations of one are one."""
    chance: float
    """What an answer without a look gets right."""
    untrained: float | None
    """What the models that the arms began with get right, or their embeddings alone, the best of these; None where that
    is not known."""
    informative: bool
    """Whether an arm is surely above both: of what neither has learned, differences tell nothing."""
    metric: MetricRow | None = None
    """None where the field's is the share that is right, or where not every model was measured by it."""
    bag_a: float | None = None
    """Of a probe, what the embeddings of a's models tell alone; None where that is not known."""
    bag_b: float | None = None
    varies_by: VariesBy | None = None
    """Of fine-tuned models; None of fewer than two, or of one fine-tuning of each."""
    rate_a: float | None = None
    """Of fine-tuned models, the learning rate that a's search models chose; None of others."""
    rate_b: float | None = None
    rate_a_at_edge: bool = False
    """Whether that is the first or last of several that were tried: a better one may lie beyond."""
    rate_b_at_edge: bool = False


class OverTasks(Config):
    """Several tasks in one number, beside their mean: of what is right beyond chance, without fine-tuning (Agarwal et
    al. 2021, arXiv 2108.13264)."""

    tasks: int
    middle_a: float | None
    """The interquartile mean over a's runs and tasks; None of few tasks."""
    middle_a_interval: Interval | None
    """95%, of the runs alone, by the bootstrap."""
    middle_b: float | None
    middle_b_interval: Interval | None
    improvement: float
    """The chance that a run of a is better than one of b, in the mean over tasks."""


class Matched(Difference):
    """The primary yardstick at equal spending in one unit, at the greatest share of their schedules that all paired
    runs have reached. A point in the middle of a schedule is never compared with the end of one: where arms of equal
    budgets in one unit differ in another there is none (n = 0). Until a pair has completed both are in the middle,
    interpolated along their evaluations: an indication, without an interval."""

    spent: float | None
    progress: float | None
    """The share."""
    annealed: bool
    """The share is the whole."""

    @classmethod
    def nothing(cls) -> Matched:
        """No point."""
        fields = dict.fromkeys(("spent", "progress", "mean_a", "mean_b", "difference", "interval"))
        return cls(n=0, annealed=False, **fields)


class Stopping(Config):
    """Adaptive stopping, in pairs."""

    minimum: int
    maximum: int
    ended_early: bool = False
    """Whether it came to its end with fewer pairs than the maximum, and unsettled: it was judged by those there are."""


class Pair(Config):
    """Two arms of one task, a headless one first."""

    a: str
    b: str
    task: Task
    standing: Standing
    """``exploratory`` where a configuration was chosen or the study extended."""
    verdict: str
    """An arm's name, ``equivalent`` or ``undecided``."""
    margin: float | None
    """Of equivalence: the study's, or what these runs imply; None before they imply any."""
    more_seeds: int | None
    """Beyond the n so far that it would take; None: no practical number."""
    more_text: float | None
    """Times as much held-out text that it would take, with the seeds as they are; None: no practical amount."""
    detectable: float | None
    """The smallest true difference that the planned seeds would name with a chance of 80%, at the deviation observed;
    None before two pairs, or where no number of them could."""
    pending: int
    """Planned seeds yet to end; 0 once settled."""
    missing: tuple[Gap, ...]
    broken: tuple[Gap, ...]
    """Runs of the pairs that diverged or failed, and count as the worst model known."""
    withheld: Withheld | None
    steady: bool
    """Whether device time tells something: of each arm, that of the same work differs by no more than 10% between runs.
    If not, nothing is compared by it."""
    below: dict[FloorName, float]
    """What neither arm is surely above, by value: of the floors that bar a verdict the highest; the bigram table."""
    stopping: Stopping | None
    yardsticks: dict[str, Row]
    matched: dict[Unit, Matched]
    time_to_target: dict[Unit, TimeToTarget | None]
    """What the first of the two spends to reach the study's target or, where it names none, the worse of the two final
    means, over what the second does, by annealed models alone. None without branches of every completed run."""
    branches: tuple[BranchRow, ...]
    """By share of the budget, ascending."""
    variants: tuple[Variant, ...]
    """Of the primary yardstick; empty until the pair has its verdict."""
    tasks: tuple[TaskRow, ...] = ()
    """Downstream tasks, exploratory: p is adjusted over all of them and all pairs of arms."""
    over_tasks: OverTasks | None = None
    tasks_time_to_target: Mapping[Unit, TimeToTarget | None] = {}
    """By the yardstick `tasks`, where it is taken and is not the primary one; its target is the worse final mean."""

    @property
    def barred(self) -> bool:
        """Whether no verdict can be had where it stands: for another reason than chance."""
        return self.withheld is not None or bool(self.below.keys() - {"bigram"})


class Variant(Config):
    """A verdict where one choice of the analysis is another."""

    name: str
    verdict: str


class Counts(Config):
    """Trials of the present budget. A search plans a budget, not a number: ``planned`` is what has begun."""

    planned: int
    running: int
    completed: int
    pruned: int
    diverged: int
    failed: int
    lost: int


class Failures(Config):
    """Trials that diverged, failed or were lost, and attempts that were repeated."""

    diverged: int
    failed: int
    lost: int
    retried: int


class Summary(Config):
    """A yardstick of one arm, over its completed confirmation runs."""

    n: int
    mean: float | None
    deviation: float | None
    languages: dict[str, float]
    """Means."""


class Floor(Config):
    """What comes of nothing learned, or of counting alone, on the primary yardstick, and where an arm stands to it."""

    value: float
    difference: float | None
    """Mean of the arm's completed runs minus it; None before two of them."""
    interval: Interval | None
    """95%, over seeds and text."""
    above: bool | None
    """Whether the arm is surely better: one-sided, at the level of the tests."""
    times_budget: float | None
    """By a trend, how many times the budget would bring the arm's mean there: an indication. None where it is there, no
    practical number would, or there is no trend."""
    trend: Trend | None
    """Of what, where there is such a number: the ends of the arm's branches and runs; else the course of its runs, of
    which the number is a lower bound, as their learning rate falls to the end."""


class SearchSummary(Config):
    """What an arm's search came to. Exploratory."""

    spent: float
    """In trial budgets."""
    begun: int
    by_hand: int
    """Of these, with a configuration that a person chose while the search went on."""
    completed: int
    """Trials that came to the end of their budget: only they can be chosen."""
    gain: float | None
    """By how much the best is better than the first configuration on the primary yardstick, by one seed's run of either
    on the validation split: where the first was last measured; None where it never was."""
    gain_at: float | None
    """That share of a trial's budget: 1 where it completed."""
    better_if_doubled: float | None
    """An estimate of the chance that a search twice as long would find a better one by more than the margin: see
    :func:`orchestrator.analysis.statistics.tuning_curves.chance_of_better`."""


class Boundary(Config):
    """A searched setting whose best value lies at a bound of what was tried, its range not being closed there."""

    name: str
    value: Setting
    bound: Setting


class ArmSummary(ArmDesign):
    """One arm."""

    configuration: Configuration | None
    """The one that stands for it; before the confirmation, the best of the search."""
    confirmed: int
    """Configurations that were confirmed: beyond one, the best is chosen."""
    counts: dict[TrainingPhase, Counts]
    failures: dict[TrainingPhase, Failures]
    yardsticks: dict[str, Summary]
    spent: dict[TrainingPhase, Spent]
    tuning: TuningCurve | None
    built: tuple[Built, ...]
    """What its completed runs trained, and on what: each once."""
    a_run: dict[Unit, float]
    """What a completed run spent in the mean."""
    floors: dict[FloorName, Floor]
    """Empty where they were not measured."""
    search: SearchSummary | None = None
    """None where there was none, or it was not recorded."""
    boundaries: tuple[Boundary, ...] = ()
    """Where its search ended: no pair of an arm with one has a verdict. Empty too where the ledger has no space."""

    def spent_in_all(self, unit: Unit) -> float:
        """By all its phases."""
        return sum(spent.get(unit, 0.0) for spent in self.spent.values())


class Comparison(Config):
    """What the confirmation says so far."""

    unit: Unit
    """That binds."""
    amount: float
    """Of a confirmation run."""
    primary: str
    """The yardstick that decides."""
    alpha: float
    """Level of the tests."""
    arms: dict[str, ArmSummary]
    pairs: tuple[Pair, ...]
    not_compared: tuple[tuple[str, str], ...]
    """Of different tasks."""
    extensions: tuple[dict[str, tuple[JsonValue, JsonValue]], ...]
    """What the study was let spend more of after its first answer: before and after, by key."""
    control: str | None = None
    """The arm that the others are compared with, and they not with each other; None: every two arms of a task."""

    @property
    def leaves_pairs_out(self) -> bool:
        """Whether there are arms of one task that are not compared, as neither is the control."""
        same_task = Counter(arm.task for arm in self.arms.values())
        return self.control is not None and len(self.pairs) < sum(comb(number, 2) for number in same_task.values())

    def _repr_html_(self) -> str | None:
        return formatting.html(self)

    def to_json(self) -> dict[str, JsonValue]:
        """As the ledger has it."""
        content: dict[str, JsonValue] = self.model_dump(mode="json")
        return content

    @classmethod
    def from_json(cls, content: dict[str, JsonValue]) -> Comparison | None:
        """What :meth:`to_json` gave; None where another version wrote it in another form."""
        try:
            return cls.model_validate(content)
        except ValidationError:
            return None
