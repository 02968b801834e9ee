"""Trained models, asked downstream tasks and fine-tuned to them over the cluster, a Ray task for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from orchestrator import formatting
from orchestrator.analysis.selection import best_of_search, chosen_runs
from orchestrator.analysis.tuning import choose_rate, dev_scores
from orchestrator.config.confirmation import TASKS
from orchestrator.config.files import open_frozen
from orchestrator.config.folder import LEDGER
from orchestrator.config.resources import ResourcesSpec
from orchestrator.config.study import StudySpec
from orchestrator.execution.ray_session import cluster_grows
from orchestrator.ledger.history import History, read_history
from orchestrator.ledger.items import evaluation_file, tuning_file
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import EvaluationRecord, TasksRecord, TuningRecord
from orchestrator.ledger.trials import TrialHistory
from orchestrator.planning.machine import Machine
from orchestrator.scheduling.trained import Trained, trained
from trainables.errors import InputError
from trainables.evaluation.yardstick import Items, Score, mean_over
from trainables.hashing import checksum
from trainables.object_store import Patience
from trainables.objectives.objective import Scorer
from trainables.storage import Location
from trainables.tasks.config import FineTuningConfig, Split
from trainables.training.environment import environment
from trainables.training.state import Environment

Answer = TypeVar("Answer")


class Asked(NamedTuple):
    """What one model got right."""

    trial: str
    scores: dict[Scorer, Score]
    items: bytes
    """The file of scores by item."""
    environment: Environment


class Tuning(NamedTuple):
    """A model to be fine-tuned to a task, as often as there are seeds, and asked a split of it."""

    arm: str
    trial: str
    task: str
    split: Split
    rate: float
    seeds: int


class Tuned(NamedTuple):
    """What the fine-tunings of a model to a task gave."""

    of: Tuning
    scores: tuple[Score, ...]
    diverged: int
    flops: int
    device_seconds: float
    items: bytes


def evaluate_runs(
    recorder: Recorder,
    spec: StudySpec,
    folder: Location,
    tasks: Location,
    record: TasksRecord,
    say: Callable[[str], None],
) -> None:
    """Ask the completed runs that stand for the arms, but those whose answers the ledger has, and record what they got
    right as it comes. ``tasks`` is where the prepared examples lie. Raises InputError: a checkpoint or the corpus is
    gone."""
    history = recorder.history
    known = history.evaluations.get(record.digest, {})
    waiting = [run.trial for run in completed(history) if run.trial not in known]
    if waiting:
        require_room(spec.resources)
    calls = [(folder.uri, trial, tasks.uri, record.items) for trial in waiting]
    for found in as_they_end(ask, calls, spec.resources, lambda done: say(f"asking models: {done} of {len(calls)}")):
        evaluation_file(folder, record.digest, found.trial).write_bytes(found.items)
        recorder.record(
            EvaluationRecord(
                trial=found.trial,
                tasks=record.digest,
                scores=found.scores,
                items=checksum(found.items),
                environment=found.environment,
            )
        )


def tune_runs(
    recorder: Recorder, spec: StudySpec, folder: Location, tasks: Location, say: Callable[[str], None]
) -> None:
    """Fine-tune the completed runs that stand for the arms to the study's tasks, each with the learning rate that its
    arm's search model chooses on the task's dev split. What the ledger has is not done again. Raises InputError: a
    checkpoint or the corpus is gone."""
    suite, history = spec.yardsticks.tasks, recorder.history
    assert suite is not None
    assert suite.fine_tuning is not None, "who asks has looked"
    assert history.tasks is not None, "they were recorded when the study began"
    settings = suite.fine_tuning

    def run(wanted: Sequence[Tuning], what: str) -> None:
        waiting = [own for own in wanted if (own.trial, own.task, own.rate) not in history.tunings]
        calls = [(folder.uri, own, tasks.uri) for own in waiting]
        for found in as_they_end(tune, calls, spec.resources, lambda done: say(f"{what}: {done} of {len(calls)}")):
            own = found.of
            tuning_file(folder, own.trial, own.task, own.rate).write_bytes(found.items)
            recorder.record(
                TuningRecord(
                    **{key: getattr(own, key) for key in ("arm", "trial", "task", "split", "rate")},
                    scores=found.scores,
                    diverged=found.diverged,
                    flops=found.flops,
                    device_seconds=found.device_seconds,
                    items=checksum(found.items),
                )
            )

    tuned = suite.tuned(history.tasks.tasks)
    run(rate_tunings(history, tuned, settings), "choosing learning rates for fine-tuning")
    rates = chosen_rates(history, tuned, settings)
    wanted = [
        Tuning(run.arm, run.trial, task, "test", rates[run.arm, task], settings.seeds)
        for run in completed(history)
        for task in tuned
    ]
    run(wanted, "fine-tuning")


def completed(history: History) -> list[TrialHistory]:
    """The completed runs that stand for the arms."""
    runs = [run for arm in history.design.arms for run in chosen_runs(history, arm).values()]
    return [run for run in runs if run.outcome == "completed"]


def rate_tunings(history: History, tasks: Sequence[str], settings: FineTuningConfig) -> list[Tuning]:
    """What the learning rates are chosen by: the best search model of each arm, once with each rate; nothing where
    there is one rate."""
    if len(settings.learning_rates) == 1:
        return []
    models = [best_of_search(history, arm) for arm in history.design.arms]
    return [
        Tuning(model.arm, model.trial, task, "dev", rate, 1)
        for model in models
        if model is not None
        for task in tasks
        for rate in settings.learning_rates
    ]


def chosen_rates(history: History, tasks: Sequence[str], settings: FineTuningConfig) -> dict[tuple[str, str], float]:
    """The learning rates, by arm and task. Raises InputError where there are several and no scores to choose by."""
    (only, *more), found = settings.learning_rates, dict[tuple[str, str], float]()
    for arm in history.design.arms:
        for task in tasks:
            found[arm, task] = choose_rate(dev_scores(history, arm, task)).rate if more else only
    return found


def as_they_end(
    function: Callable[..., Answer],
    calls: Sequence[tuple[Any, ...]],
    resources: ResourcesSpec,
    say: Callable[[int], None],
) -> Iterator[Answer]:
    """What calls give, run as Ray tasks, in the order in which they end; each has the devices of a trial's worker.
    Raises what one raises, and InputError: one's process was lost, again and again."""
    import ray

    total = ray.cluster_resources()
    gpus = Machine(int(total.get("CPU", 0)), int(total.get("GPU", 0))).gpus_per_worker(resources)
    options = {"num_cpus": resources.cpus_per_worker, "num_gpus": gpus}
    task = ray.remote(_patiently).options(**options, max_retries=resources.attempts)
    pending = [task.remote(Patience.seconds, function, call) for call in calls]
    try:
        for done in range(len(calls)):
            say(done)
            (ended,), pending = ray.wait(pending, num_returns=1)
            try:
                yield ray.get(ended)
            except ray.exceptions.RayTaskError as error:
                raise error.cause or error from None
            except ray.exceptions.RayError as error:  # no exception of the call's: who ran it is gone
                raise InputError(
                    "a process that asked a model was lost, each time that it was begun",
                    where="the Ray cluster",
                    why=str(error).partition("\n")[0][:300],
                    remedy="free memory there, or fewer workers side by side; then again: what was answered is kept",
                ) from error
    finally:
        if ray.is_initialized():  # which may go on beyond this study
            for call in pending:
                ray.cancel(call, force=True)


def require_room(resources: ResourcesSpec) -> None:
    """Raises InputError where what takes as much as a trial's worker would wait for ever."""
    import ray

    total, grows = ray.cluster_resources(), cluster_grows()
    for kind, wanted in (("CPU", resources.cpus_per_worker), ("GPU", resources.gpus_per_worker or 0)):
        there = int(total.get(kind, 0))
        if wanted > there and not grows:
            raise InputError(
                f"asking a model takes {formatting.plural(wanted, kind)}, as a trial's worker does; there are {there}",
                where=f"resources.{kind.lower()}s_per_worker = {wanted}",
                why="it would wait for ever",
                remedy="where there are so many: another machine, or a cluster (--address)",
            )


def _patiently(seconds: float, function: Callable[..., Answer], call: tuple[Any, ...]) -> Answer:
    """With the caller's patience with the storage."""
    Patience.seconds = seconds
    return function(*call)


def ask(folder: str, trial: str, tasks: str, items: int) -> Asked:
    """What the model of a trial of the study in a folder gets right of the prepared tasks, of so many items each."""
    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.item_scores import to_parquet
    from trainables.evaluation.passes import take

    config, corpus, learner = _trained(folder, trial)
    evaluation = config.evaluation.model_copy(update={"task_items": items, "learned_task_items": items})
    held_out = HeldOut(corpus, evaluation, "test", tasks=Location(tasks))
    taken = take(learner, held_out, (TASKS,))
    scores = {scorer: own.scores[TASKS] for scorer, own in taken.items()}
    content = to_parquet({str(scorer): own.items for scorer, own in taken.items()})
    return Asked(trial, scores, content, environment())


def _trained(folder: str, trial: str) -> Trained:
    """A trial's model, on the GPU that this task has, if any: Ray hides no other's."""
    import ray
    import torch

    study = Location(folder)
    history = read_history(study / LEDGER)
    found = trained(history, open_frozen(study), history.trial(trial), study)
    return found._replace(learner=found.learner.to(torch.device("cuda" if ray.get_gpu_ids() else "cpu")))


def tune(folder: str, wanted: Tuning, tasks: str) -> Tuned:
    """Fine-tune the model of a trial of the study in a folder, once with each seed."""
    from trainables.evaluation.item_scores import to_parquet
    from trainables.tasks.fine_tuning import fine_tune_task, tuning_seed
    from trainables.tasks.model import LanguageModel
    from trainables.tasks.prepared import Tasks
    from trainables.tasks.yardstick import beyond_chance

    suite = open_frozen(Location(folder)).yardsticks.tasks
    assert suite is not None
    assert suite.fine_tuning is not None
    config, corpus, learner = _trained(folder, wanted.trial)
    manifest, scorer = corpus.manifest, learner.objective.scorers[0]
    model = LanguageModel.of_learner(
        learner, scorer, corpus.tokenizer(), manifest.separator_token, manifest.sequence_length
    )
    prepared, name = Tasks(Location(tasks)), wanted.task
    most, chance = config.evaluation.most_task_items(final=True, learned=True), prepared.manifest.tasks[name].chance
    examples = {language: prepared.first(name, wanted.split, language, most) for language in prepared.languages(name)}
    scores, items, flops, seconds, diverged = list[Score](), dict[str, dict[str, dict[str, Items]]](), 0, 0.0, 0
    for number in range(wanted.seeds):
        found = fine_tune_task(
            model, prepared, name, examples, suite.fine_tuning, rate=wanted.rate, seed=tuning_seed(config.seed, number)
        )
        flops, seconds = flops + found.flops, seconds + found.device_seconds
        diverged += sum(outcome == "diverged" for outcome in set(found.outcomes.values()))
        own = {
            f"{name}/{language}": beyond_chance(name, chance[language], part, found.right[language])
            for language, part in examples.items()
        }
        ratios = {language: part.ratio for language, part in own.items()}
        metrics = {f"{name}/{language}": value for language, value in found.metrics.items()}
        scores.append(Score(overall=mean_over(ratios), languages=ratios, metrics=metrics))
        items[f"fine-tuning {number}"] = {TASKS: own}
    return Tuned(wanted, tuple(scores), diverged, flops, seconds, to_parquet(items))
