"""Trained models, asked downstream tasks over the cluster: a Ray task a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orchestrator.analysis.selection import chosen_runs
from orchestrator.config.confirmation import TASKS
from orchestrator.config.files import open_frozen
from orchestrator.config.folder import LEDGER
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import read_history
from orchestrator.ledger.items import evaluation_file
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import EvaluationRecord, TasksRecord
from orchestrator.scheduling.trained import trained
from trainables.evaluation.yardstick import Score
from trainables.hashing import checksum
from trainables.objectives.objective import Scorer
from trainables.storage import Location
from trainables.training.environment import environment
from trainables.training.state import Environment


class Asked(NamedTuple):
    """What one model got right."""

    trial: str
    scores: dict[Scorer, Score]
    items: bytes
    """The file of scores by item."""
    environment: Environment


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
    import ray

    history = recorder.history
    known = history.evaluations.get(record.digest, {})
    runs = [run for arm in history.design.arms for run in chosen_runs(history, arm).values()]
    waiting = [run.trial for run in runs if run.outcome == "completed" and run.trial not in known]
    resources = spec.resources
    gpus = resources.gpus_per_worker or 0
    task = ray.remote(num_cpus=resources.cpus_per_worker, num_gpus=gpus, max_retries=resources.attempts)(ask)
    pending = [task.remote(folder.uri, trial, tasks.uri, record.items) for trial in waiting]
    for done in range(len(waiting)):
        say(f"asking models: {done} of {len(waiting)} done")
        (ended,), pending = ray.wait(pending, num_returns=1)
        try:
            found: Asked = ray.get(ended)
        except ray.exceptions.RayTaskError as error:
            raise error.cause or error from None
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


def ask(folder: str, trial: str, tasks: str, items: int) -> Asked:
    """What the model of a trial of the study in a folder gets right of the prepared tasks, of so many items each."""
    import torch

    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.item_scores import to_parquet
    from trainables.evaluation.passes import take

    study = Location(folder)
    history, spec = read_history(study / LEDGER), open_frozen(study)
    config, corpus, learner = trained(history, spec, history.trial(trial), study)
    evaluation = config.evaluation.model_copy(update={"task_items": items})
    held_out = HeldOut(corpus, evaluation, "test", tasks=Location(tasks))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    taken = take(learner.to(device), held_out, (TASKS,))
    scores = {scorer: own.scores[TASKS] for scorer, own in taken.items()}
    content = to_parquet({str(scorer): own.items for scorer, own in taken.items()})
    return Asked(trial, scores, content, environment())
