"""What two arms' models get right of each downstream task. It decides only as a part of the yardstick ``tasks``.

That yardstick's items are right beyond chance, (right - chance) / (1 - chance); here they are shares that are right.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from orchestrator.analysis.comparison import TaskRow, Tier
from orchestrator.analysis.held_out_text import evidence_above, evidence_of_items, items_before, items_of
from orchestrator.analysis.rows import row_of
from orchestrator.analysis.selection import Runs
from orchestrator.analysis.statistics.components import variance_components
from orchestrator.analysis.worth import Pairs, untrained_worth
from orchestrator.config.confirmation import ALPHA, TASKS
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_evaluation, read_tuning
from orchestrator.ledger.records import Design, TaskDescription, TasksRecord, TuningRecord
from trainables.evaluation.item_scores import ItemScores
from trainables.storage import Location
from trainables.tasks.kinds import KINDS

Both = Sequence[tuple[ItemScores, ItemScores]]
"""What two arms' models get right, item by item, seed by seed."""


def task_rows(history: History, pairs: Pairs) -> Iterator[TaskRow]:
    """Of a study's own tasks, by pairs of models seed by seed; none where no task was taken, or of a model nothing is
    known by item. Raises InputError where a file of item scores is gone or another."""
    both = [(items_of(history, TASKS, a), items_of(history, TASKS, b)) for a, b in pairs.values()]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    if history.tasks is not None and known and len(known) == len(both):
        untrained = _untrained(history, pairs)
        yield from rows_of(history.design, history.tasks, known, untrained)
        yield from _tuned_rows(history, history.tasks, pairs, untrained)


def evaluated_rows(history: History, tasks: TasksRecord, a: Runs, b: Runs) -> Iterator[TaskRow]:
    """Likewise of tasks that were chosen when the study had ended, by the runs that were asked them."""
    found, folder = history.evaluations.get(tasks.digest, {}), history.folder
    seeds = [seed for seed in sorted(a.keys() & b.keys()) if a[seed].trial in found and b[seed].trial in found]
    if not seeds or folder is None:
        return
    known = []
    for seed in seeds:
        records = (found[a[seed].trial], found[b[seed].trial])
        one, other = (read_evaluation(folder, own)[TASKS, next(iter(own.scores))] for own in records)
        known.append((one, other))
    yield from rows_of(history.design, tasks, known, [])


def rows_of(design: Design, tasks: TasksRecord, known: Both, untrained: Sequence[ItemScores]) -> Iterator[TaskRow]:
    """Task by task; ``untrained`` are of the models that the arms began with."""
    for task, description in tasks.tasks.items():
        tier: Tier = "probe" if KINDS.find(description.kind).learns else "zero-shot"
        yield _row(design, task, tier, description, known, untrained)


def _tuned_rows(
    history: History, tasks: TasksRecord, pairs: Pairs, untrained: Sequence[ItemScores]
) -> Iterator[TaskRow]:
    """Of models that were fine-tuned: the mean over the fine-tunings of each is its score."""
    of_test = [record for record in history.tunings.values() if record.split == "test"]
    for task in dict.fromkeys(record.task for record in of_test):
        tuned = {record.trial: record for record in of_test if record.task == task}
        both = [(tuned.get(a.of.trial), tuned.get(b.of.trial)) for a, b in pairs.values()]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        if not known or len(known) < len(both) or history.folder is None:
            continue
        scores = [tuple(_tunings(history.folder, record) for record in pair) for pair in known]
        means = [(_mean(a), _mean(b)) for a, b in scores]
        # The untrained model is asked by a probe, if at all: of the same examples, so that it is a floor here too.
        row = _row(history.design, task, "fine-tuned", tasks.tasks[task], means, untrained)
        yield row.model_copy(update={"tuning_share": _tuning_share(scores)})


def _tunings(folder: Location, record: TuningRecord) -> list[ItemScores]:
    found = read_tuning(folder, record)
    return [found[TASKS, scorer] for _, scorer in sorted(found)]


def _mean(scores: Sequence[ItemScores]) -> ItemScores:
    return scores[0]._replace(value_I=np.mean([own.value_I for own in scores], axis=0))


def _tuning_share(scores: Sequence[tuple[Sequence[ItemScores], ...]]) -> float | None:
    """None of fewer than two models or fine-tunings of each."""
    if len(scores) < 2 or min(len(own) for pair in scores for own in pair) < 2:
        return None
    influence_SKI = [[x.influences() - y.influences() for x, y in zip(a, b, strict=True)] for a, b in scores]
    overall_SK = np.array([[x.overall - y.overall for x, y in zip(a, b, strict=True)] for a, b in scores])
    count = len(scores[0][0][0].item_I)
    # Items' parts of the difference, whose mean it is.
    return variance_components(overall_SK[:, :, None] + count * np.array(influence_SKI)).tuning_share


def _row(
    design: Design, task: str, tier: Tier, description: TaskDescription, known: Both, untrained: Sequence[ItemScores]
) -> TaskRow:
    own = [(_of_task(a, task, description.chance), _of_task(b, task, description.chance)) for a, b in known]
    before = [_of_task(items, task, description.chance) for items in untrained]
    scores = [(a.overall, b.overall) for a, b in own]
    chance = float(np.mean(list(description.chance.values())))
    bars = [(chance, None), *((items.overall, items) for items in before)]
    return TaskRow(
        **dict(row_of(design, TASKS, evidence_of_items(own), scores)) | {"role": "exploratory"},
        task=task,
        tier=tier,
        languages=tuple(description.chance),
        items=len(set(own[0][0].item_I.tolist())),
        chance=chance,
        untrained=max((items.overall for items in before), default=None),
        informative=any(_is_above(side, bars) for side in zip(*own, strict=True)),
    )


def _untrained(history: History, pairs: Pairs) -> list[ItemScores]:
    """Of the models that the two arms began with, where they were measured."""
    arms = dict.fromkeys(worth.of.arm for both in pairs.values() for worth in both)
    known = (untrained_worth(history, TASKS, arm) for arm in arms)
    items = [items_before(history, TASKS, worth) for worth in known if worth is not None]
    return [own for own in items if own is not None]


def _of_task(items: ItemScores, task: str, chance: Mapping[str, float]) -> ItemScores:
    """One task's items by language, as shares that are right."""
    part = items.some(np.array([name.partition("/")[0] == task for name in items.language_I.tolist()]))
    language_I = np.array([name.partition("/")[2] for name in part.language_I.tolist()])
    chance_I = np.array([chance[language] for language in language_I.tolist()])
    return part._replace(language_I=language_I, value_I=part.value_I * (1 - chance_I) + chance_I * part.weight_I)


def _is_above(models: Sequence[ItemScores], bars: Sequence[tuple[float, ItemScores | None]]) -> bool:
    """Whether an arm's models are surely above all of these: one-sided, over seeds and examples."""
    if len(models) < 2:
        return False
    scores = [model.overall for model in models]
    return all(evidence_above(models, scores, *bar).interval(2 * ALPHA)[0] > 0 for bar in bars)
