"""A study's downstream tasks: prepared, and as many of their examples as a trial can afford."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.config.folder import anew
from orchestrator.config.study import StudySpec
from orchestrator.config.task_files import TasksSpec
from orchestrator.ledger.history import History
from orchestrator.ledger.records import TaskDescription, TasksRecord
from trainables.errors import InputError
from trainables.storage import Location
from trainables.tasks.config import FineTuningConfig
from trainables.tasks.prepared import Tasks, prepare_tasks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def prepared_tasks(
    spec: StudySpec, suite: TasksSpec, store: Location, tokenizer: PreTrainedTokenizerFast | None
) -> TasksRecord:
    """The tasks of a suite, of the languages of a study's text, prepared in the store. Raises InputError: something is
    wrong with a definition or with what it names, or the tokenizer does not know a language."""
    languages = list(dict.fromkeys(source.language for source in spec.corpora.sources))
    folder = prepare_tasks(suite.tasks_in(languages), store, suite.folder, languages, tokenizer)
    if suite.fine_tuning is not None:
        _require_affordable(spec, suite, suite.fine_tuning, Tasks(folder))
    return record_of(Tasks(folder), spec.yardsticks.evaluation.task_items)


def _require_affordable(spec: StudySpec, suite: TasksSpec, settings: FineTuningConfig, tasks: Tasks) -> None:
    """Raises InputError where fine-tuning may cost more than its share of pretraining, or no rate can be chosen."""
    from orchestrator.planning.arm_plan import arm_plans
    from trainables.tasks.fine_tuning import require_affordable, training_languages

    if len(settings.learning_rates) > 1 and not spec.search.budget_per_arm:
        raise InputError(
            "no learning rate can be chosen for fine-tuning",
            where="yardsticks.tasks.fine_tuning.learning_rates",
            why="search models choose it, and the study has no search",
            remedy="--set yardsticks.tasks.fine_tuning.learning_rates='[3e-4]'",
        )
    entries = tasks.manifest.tasks
    fitted = {name: len(training_languages(entries[name], tasks.languages(name), settings)) for name in suite.tuned}
    for plan in arm_plans(spec):
        flops = plan.trial_in_units().get("flops")
        if flops is not None:
            run = flops * spec.confirm_budget.amount / spec.budget.amount
            require_affordable(plan.learner.config, settings, fitted, run)


def record_of(tasks: Tasks, items: int) -> TasksRecord:
    """What the ledger says of prepared tasks."""
    return TasksRecord(
        digest=tasks.folder.name,
        items=items,
        tasks={
            name: TaskDescription(
                kind=entry.kind, items=dict(entry.counts["test"]), chance=dict(entry.chance), licence=entry.licence
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
