"""A study's downstream tasks: prepared, and as many of their examples as a trial can afford."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.config.folder import anew
from orchestrator.config.study import StudySpec
from orchestrator.config.task_files import TasksSpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import TaskDescription, TasksRecord
from trainables.errors import InputError
from trainables.evaluation.yardstick import TASK_ITEMS
from trainables.storage import Location
from trainables.tasks.config import FineTuningConfig
from trainables.tasks.cost import zero_shot_flops
from trainables.tasks.kinds import KINDS
from trainables.tasks.prepared import Tasks, prepare_tasks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from orchestrator.planning.arm_plan import ArmPlan

SHARE, SHARE_OF_SHORT = 0.02, 0.05
"""Of a run's FLOPs, what zero-shot tasks take at its end; the larger one where the smaller buys few examples."""
FEW = 100  # examples of each task and language
CHARACTERS_A_TOKEN = 2  # where there is no tokenizer yet: rather too few


class TasksPlan(NamedTuple):
    """How much a study asks of its tasks at a run's end."""

    record: TasksRecord
    share: float | None
    """Of a run's FLOPs, at most: what the zero-shot tasks take of the arm of which they take most. None where a run's
    are not known beforehand."""
    error: float
    """Standard error, at most, that the choice of examples gives to a model's mean over tasks."""


def prepared_tasks(
    spec: StudySpec, suite: TasksSpec, store: Location, tokenizer: PreTrainedTokenizerFast | None
) -> TasksRecord:
    """The tasks of a suite, of the languages of a study's text, prepared in the store. Raises InputError: something is
    wrong with a definition or with what it names, or the tokenizer does not know a language."""
    return plan_tasks(spec, suite, store, tokenizer).record


def plan_tasks(
    spec: StudySpec, suite: TasksSpec, store: Location, tokenizer: PreTrainedTokenizerFast | None
) -> TasksPlan:
    """As :func:`prepared_tasks`, with what the tasks cost and can tell."""
    from orchestrator.planning.arm_plan import arm_plans

    languages = list(dict.fromkeys(source.language for source in spec.corpora.sources))
    tasks = Tasks(prepare_tasks(suite.tasks_in(languages), store, suite.folder, languages, tokenizer))
    plans = arm_plans(spec)
    if suite.fine_tuning is not None:
        _require_affordable(plans, suite, suite.fine_tuning, tasks)
    costs = _costs(plans, tasks, tokenizer)
    items = spec.yardsticks.evaluation.task_items or _affordable(costs)
    learned_items = spec.yardsticks.evaluation.learned_task_items
    share = None if costs is None else max((cost.of(items) for cost in costs), default=0.0)
    return TasksPlan(record_of(tasks, items), share, _standard_error(tasks, items, learned_items))


class _Cost(NamedTuple):
    """Of the zero-shot tasks, for one arm."""

    shares: Sequence[float]
    """Of each task and language, what one example takes of a run's FLOPs."""
    counts: Sequence[int]
    """How many examples each has."""

    def of(self, items: int) -> float:
        """As a share of a run's FLOPs, with so many of each at most."""
        return math.fsum(share * min(items, count) for share, count in zip(self.shares, self.counts, strict=True))


def _costs(plans: Sequence[ArmPlan], tasks: Tasks, tokenizer: PreTrainedTokenizerFast | None) -> list[_Cost] | None:
    """By arm; None where an arm's run has no FLOPs that are known beforehand."""
    num_tokens = _counter(tokenizer)
    zero_shot = {name: entry for name, entry in tasks.manifest.tasks.items() if not KINDS.find(entry.kind).learns}
    examples = {
        (name, language): tasks.first(name, "test", language, TASK_ITEMS)
        for name in zero_shot
        for language in tasks.languages(name)
    }
    costs = []
    for plan in plans:
        if (run := plan.run_flops) is None:
            return None
        shares, counts = [], []
        for (name, language), own in examples.items():
            kind = KINDS.find(zero_shot[name].kind)()
            flops = zero_shot_flops(plan.learner.config, plan.objective.task, kind, own, num_tokens)
            shares.append(len(plan.objective.scorers) * flops / run)  # a model answers by each of its scorers
            counts.append(zero_shot[name].counts["test"][language])
        costs.append(_Cost(shares, counts))
    return costs


def _counter(tokenizer: PreTrainedTokenizerFast | None) -> Callable[[Sequence[str]], list[int]]:
    """Tokens of texts, or a guess."""
    if tokenizer is None:
        return lambda texts: [len(text) // CHARACTERS_A_TOKEN for text in texts]
    pieces = tokenizer.backend_tokenizer
    return lambda texts: [len(own.ids) for own in pieces.encode_batch(list(texts), add_special_tokens=False)]


def _affordable(costs: Sequence[_Cost] | None) -> int:
    """Examples of each task and language that every arm can afford; one at the least."""
    if costs is None:
        return TASK_ITEMS

    def most(share: float, limit: int) -> int:
        return max((n for n in range(1, limit + 1) if all(cost.of(n) <= share for cost in costs)), default=1)

    return max(most(SHARE, TASK_ITEMS), most(SHARE_OF_SHORT, FEW))


def _standard_error(tasks: Tasks, items: int, learned_items: int) -> float:
    """At most: of shares of one half, with translations that are right and wrong together."""
    errors = []
    for entry in tasks.manifest.tasks.values():
        most = learned_items if KINDS.find(entry.kind).learns else items
        own = [
            0.5 / math.sqrt(min(most, entry.counts["test"][language])) / (1 - chance)
            for language, chance in entry.chance.items()
            if chance < 1
        ]
        errors.append(math.fsum(own) / max(1, len(own)))
    return math.hypot(*errors) / len(errors)


def _require_affordable(plans: Sequence[ArmPlan], suite: TasksSpec, settings: FineTuningConfig, tasks: Tasks) -> None:
    """Raises InputError where fine-tuning may cost more than its share of pretraining, or no rate can be chosen."""
    from trainables.tasks.fine_tuning import require_affordable, training_languages

    if len(settings.learning_rates) > 1 and not plans[0].spec.search.budget_per_arm:
        raise InputError(
            "no learning rate can be chosen for fine-tuning",
            where="yardsticks.tasks.fine_tuning.learning_rates",
            why="search models choose it, and the study has no search",
            remedy="--set yardsticks.tasks.fine_tuning.learning_rates='[3e-4]'",
        )
    entries = tasks.manifest.tasks
    tuned = suite.tuned(entries)
    fitted = {name: len(training_languages(entries[name], tasks.languages(name), settings)) for name in tuned}
    for plan in plans:
        if plan.run_flops is not None:
            require_affordable(plan.learner.config, settings, fitted, plan.run_flops)


def record_of(tasks: Tasks, items: int) -> TasksRecord:
    """What the ledger says of prepared tasks."""
    return TasksRecord(
        digest=tasks.folder.name,
        items=items,
        tasks={
            name: TaskDescription(
                kind=entry.kind,
                items=dict(entry.counts["test"]),
                chance=dict(entry.chance),
                licence=entry.licence,
                metric=entry.metric,
                metric_chance=dict(entry.metric_chance),
            )
            for name, entry in tasks.manifest.tasks.items()
        },
    )


def require_same_tasks(history: History, found: TasksRecord, folder: Location) -> None:
    """Refuse to go on with other examples: models that were asked different things are not compared."""
    if history.tasks is None or history.tasks.digest == found.digest:
        return
    raise InputError(
        f"the study's tasks {history.tasks.digest} are gone, and their sources now give {found.digest}",
        where="yardsticks.tasks",
        why="examples changed since the study began: what was measured on the old ones cannot be compared",
        remedy=f"bring back the folder or the files as they were, then h2h resume {folder}; or begin anew: "
        f"{anew(folder)}",
    )
