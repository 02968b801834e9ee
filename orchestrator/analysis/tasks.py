"""What two arms' models get right of each downstream task. It decides only as a part of the yardstick ``tasks``.

That yardstick's items are right beyond chance, (right - chance) / (1 - chance); here they are shares that are right.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.comparison import MetricRow, OverTasks, TaskRow, Tier, VariesBy
from orchestrator.analysis.held_out_text import evidence_above, evidence_of_items, items_before, items_of
from orchestrator.analysis.rows import row_of
from orchestrator.analysis.selection import Runs
from orchestrator.analysis.statistics.aggregates import FEWEST_TASKS, interquartile_mean, probability_of_improvement
from orchestrator.analysis.statistics.components import variance_components
from orchestrator.analysis.statistics.evidence import difference, of_seeds
from orchestrator.analysis.tuning import choose_rate, dev_scores
from orchestrator.analysis.worth import Pairs, Worth, untrained_worth
from orchestrator.config.confirmation import ALPHA, EMBEDDING_BAG, TASKS
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_evaluation, read_tuning
from orchestrator.ledger.records import Design, TaskDescription, TasksRecord, TuningRecord
from trainables.evaluation.item_scores import ItemScores
from trainables.evaluation.yardstick import Score
from trainables.storage import Location
from trainables.tasks.kinds import KINDS

Both = Sequence[tuple[ItemScores, ItemScores]]
"""What two arms' models get right, item by item, seed by seed."""


def task_rows(history: History, names: tuple[str, str], pairs: Pairs) -> Iterator[TaskRow]:
    """Of a study's own tasks, by pairs of two arms' models seed by seed; none where no task was taken, or of a model
    nothing is known by item. Raises InputError where a file of item scores is gone or another."""
    known = _known(history, TASKS, pairs)
    if history.tasks is not None and known:
        untrained = _untrained(history, pairs)
        bags = _known(history, EMBEDDING_BAG, pairs)
        scores = [(_score(a), _score(b)) for a, b in pairs.values()]
        yield from rows_of(history.design, history.tasks, known, scores, untrained, bags)
        yield from _tuned_rows(history, history.tasks, names, pairs, untrained)


def over_tasks(history: History, pairs: Pairs) -> OverTasks | None:
    """Of a study's own tasks, those alone that need no fine-tuning; None of a single task or where nothing is known."""
    known = _known(history, TASKS, pairs)
    if history.tasks is None or len(history.tasks.tasks) < 2 or not known:
        return None
    score_SM, other_SM = (
        [[_part(items, task).overall for task in history.tasks.tasks] for items in side]
        for side in zip(*known, strict=True)
    )
    enough = len(history.tasks.tasks) >= FEWEST_TASKS
    middle_a, middle_b = (interquartile_mean(own) if enough else None for own in (score_SM, other_SM))
    return OverTasks(
        tasks=len(history.tasks.tasks),
        middle_a=middle_a and middle_a.mean,
        middle_a_interval=middle_a and middle_a.interval,
        middle_b=middle_b and middle_b.mean,
        middle_b_interval=middle_b and middle_b.interval,
        improvement=probability_of_improvement(score_SM, other_SM),
    )


def _known(history: History, yardstick: str, pairs: Pairs) -> Both:
    """Empty unless it is known of every model."""
    both = [(items_of(history, yardstick, a), items_of(history, yardstick, b)) for a, b in pairs.values()]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    return known if len(known) == len(both) else []


def evaluated_rows(history: History, tasks: TasksRecord, a: Runs, b: Runs) -> Iterator[TaskRow]:
    """Likewise of tasks that were chosen when the study had ended, by the runs that were asked them."""
    found, folder = history.evaluations.get(tasks.digest, {}), history.folder
    seeds = [seed for seed in sorted(a.keys() & b.keys()) if a[seed].trial in found and b[seed].trial in found]
    if not seeds or folder is None:
        return
    known, scores = [], []
    for seed in seeds:
        records = (found[a[seed].trial], found[b[seed].trial])
        one, other = (read_evaluation(folder, own)[TASKS, next(iter(own.scores))] for own in records)
        known.append((one, other))
        first, second = (next(iter(own.scores.values())) for own in records)
        scores.append(([first], [second]))
    yield from rows_of(history.design, tasks, known, scores, [], [])


def rows_of(
    design: Design,
    tasks: TasksRecord,
    known: Both,
    scores: Sequence[tuple[Sequence[Score], Sequence[Score]]],
    untrained: Sequence[ItemScores],
    bags: Both,
) -> Iterator[TaskRow]:
    """Task by task; ``scores`` are what the models' records say, ``untrained`` are of the models that the arms began
    with and of their embeddings alone, ``bags`` of the trained models' embeddings alone."""
    for task, description in tasks.tasks.items():
        learns = KINDS.find(description.kind).learns
        row = _row(design, task, "probe" if learns else "zero-shot", description, known, untrained)
        row = row.model_copy(update={"metric": _metric(task, description, scores)})
        if learns and bags:
            own = [
                [_of_task(items, task, description.chance).overall for items in side]
                for side in zip(*bags, strict=True)
            ]
            row = row.model_copy(update={"bag_a": fmean(own[0]), "bag_b": fmean(own[1])})
        yield row


def _tuned_rows(
    history: History, tasks: TasksRecord, names: tuple[str, str], pairs: Pairs, untrained: Sequence[ItemScores]
) -> Iterator[TaskRow]:
    """Of models that were fine-tuned: the mean over the fine-tunings of each is its score. A run that broke counts as
    the worst of the two arms' others."""
    of_test = [record for record in history.tunings.values() if record.split == "test"]
    ran = [(_ran(a, names[0], seed), _ran(b, names[1], seed)) for seed, (a, b) in pairs.items()]
    for task in dict.fromkeys(record.task for record in of_test):
        tuned = {record.trial: record for record in of_test if record.task == task}
        trials = {trial for both in ran for trial in both if trial is not None}
        if history.folder is None or not trials or not trials <= tuned.keys():
            continue
        scores = {trial: _tunings(history.folder, tuned[trial]) for trial in trials}
        mean = {trial: _mean(own) for trial, own in scores.items()}
        worst = min(sorted(trials), key=lambda trial: mean[trial].overall)
        both = [(a or worst, b or worst) for a, b in ran]
        whole = [(a, b) for a, b in ran if a is not None and b is not None]
        means = [(mean[a], mean[b]) for a, b in both]
        # The untrained model is asked by a probe, if at all: of the same examples, so that it is a floor here too.
        row = _row(history.design, task, "fine-tuned", tasks.tasks[task], means, untrained)
        rates: dict[str, float | bool] = {}
        for side, name in zip("ab", names, strict=True):
            if own := next((tuned[trial] for trial in trials if tuned[trial].arm == name), None):
                rates |= {f"rate_{side}": own.rate, f"rate_{side}_at_edge": _is_at_edge(history, own)}
        metric = _metric(task, tasks.tasks[task], [(tuned[a].scores, tuned[b].scores) for a, b in both])
        varies_by = _varies_by([(scores[a], scores[b]) for a, b in whole])
        yield row.model_copy(update={"varies_by": varies_by, "metric": metric, **rates})


def _ran(worth: Worth, arm: str, seed: int) -> str | None:
    """The trial of an arm's own run with a seed; None where it broke, and another model stands for it."""
    own = (worth.of.arm, worth.of.seed, worth.untrained) == (arm, seed, False)
    return worth.of.trial if own else None


def _score(worth: Worth) -> list[Score]:
    """What a model's record says of the tasks."""
    if worth.untrained:
        return [] if worth.of.floors is None else [worth.of.floors.untrained[TASKS]]
    return [worth.of.measures[-1].yardsticks[TASKS]]


def _metric(
    task: str, description: TaskDescription, pairs: Sequence[tuple[Sequence[Score], Sequence[Score]]]
) -> MetricRow | None:
    """Of pairs of models, each by one score or, where it was fine-tuned several times, by their mean."""
    names = [f"{task}/{language}" for language in description.metric_chance]
    if not names or not all(name in score.metrics for both in pairs for own in both for score in own for name in names):
        return None  # accuracy, or measured by an earlier version
    values = [tuple(fmean(score.metrics[name] for score in own for name in names) for own in both) for both in pairs]
    found = of_seeds([difference(a, b) for a, b in values])
    return MetricRow(
        name=description.metric,
        chance=fmean(description.metric_chance.values()),
        n=len(values),
        mean_a=fmean(a for a, _ in values),
        mean_b=fmean(b for _, b in values),
        difference=fmean(a - b for a, b in values),
        interval=found.interval(ALPHA) if found.n > 1 else None,
    )


def _is_at_edge(history: History, record: TuningRecord) -> bool:
    """Whether a fine-tuning's learning rate is the first or last of those that its arm had to choose from."""
    tried = dev_scores(history, record.arm, record.task)
    return bool(tried) and choose_rate(tried).at_edge


def _tunings(folder: Location, record: TuningRecord) -> list[ItemScores]:
    found = read_tuning(folder, record)
    return [found[TASKS, scorer] for _, scorer in sorted(found)]


def _mean(scores: Sequence[ItemScores]) -> ItemScores:
    return scores[0]._replace(value_I=np.mean([own.value_I for own in scores], axis=0))


def _varies_by(scores: Sequence[tuple[Sequence[ItemScores], ...]]) -> VariesBy | None:
    """None of fewer than two models or fine-tunings of each."""
    if len(scores) < 2 or min(len(own) for pair in scores for own in pair) < 2:
        return None
    influence_SKI = [[x.influences() - y.influences() for x, y in zip(a, b, strict=True)] for a, b in scores]
    overall_SK = np.array([[x.overall - y.overall for x, y in zip(a, b, strict=True)] for a, b in scores])
    count = len(scores[0][0][0].item_I)
    # Items' parts of the difference, whose mean it is.
    found = variance_components(overall_SK[:, :, None] + count * np.array(influence_SKI)).shares
    return VariesBy(**found._asdict())


def _row(
    design: Design, task: str, tier: Tier, description: TaskDescription, known: Both, untrained: Sequence[ItemScores]
) -> TaskRow:
    own = [(_of_task(a, task, description.chance), _of_task(b, task, description.chance)) for a, b in known]
    before = [_of_task(items, task, description.chance) for items in untrained if _is_of(items, task).any()]
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
    """Of the models that the two arms began with, and of their embeddings alone, where they were measured."""
    arms = dict.fromkeys(worth.of.arm for both in pairs.values() for worth in both)
    found = []
    for yardstick, arm in product((TASKS, EMBEDDING_BAG), arms):
        if (worth := untrained_worth(history, yardstick, arm)) is not None:
            found.append(items_before(history, yardstick, worth))
    return [own for own in found if own is not None]


def _is_of(items: ItemScores, task: str) -> NDArray[np.bool_]:
    """Which of the items are a task's, (I,)."""
    return np.array([name.partition("/")[0] == task for name in items.language_I.tolist()])


def _of_task(items: ItemScores, task: str, chance: Mapping[str, float]) -> ItemScores:
    """One task's items by language, as shares that are right."""
    part = _part(items, task)
    language_I = np.array([name.partition("/")[2] for name in part.language_I.tolist()])
    chance_I = np.array([chance[language] for language in language_I.tolist()])
    return part._replace(language_I=language_I, value_I=part.value_I * (1 - chance_I) + chance_I * part.weight_I)


def _part(items: ItemScores, task: str) -> ItemScores:
    return items.some(_is_of(items, task))


def _is_above(models: Sequence[ItemScores], bars: Sequence[tuple[float, ItemScores | None]]) -> bool:
    """Whether an arm's models are surely above all of these: one-sided, over seeds and examples."""
    if len(models) < 2:
        return False
    scores = [model.overall for model in models]
    return all(evidence_above(models, scores, *bar).interval(2 * ALPHA)[0] > 0 for bar in bars)
