"""Reports that a kill loses on their way: with the attempts after it the ledger comes to what it would have been.

Under Ray Train a worker is ahead of the ledger by the reports in its queues. Here the real searcher, scheduler and
trainable run with a sink in Ray's place that loses the last reports before a kill, of a worker or of the driver too.
"""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace

import pytest
import torch

import trainables.trial
from orchestrator.config.files import make_study
from orchestrator.execution import newest_checkpoints, tune_run
from orchestrator.execution.executor import Executor
from orchestrator.execution.tune_run import _PhaseScheduler, _PhaseSearcher
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.segments import read_ledger
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.search import SearchPhase
from tests.helpers.corpus import LENGTH, write_corpus
from tests.helpers.ledgers import phase
from tests.helpers.ledgers import study as study_record
from tests.helpers.study import small_study
from tests.helpers.tune import AtOnce, tune_controller
from trainables.corpora.stream.token_stream import local_batches
from trainables.storage import Location
from trainables.training.world import World
from trainables.trial import WorkerConfig

torch.set_num_threads(1)

STEPS = 18
PHASES = {"search": SearchPhase, "confirm": ConfirmPhase}
WORKER = WorkerConfig(launcher="ray_train", workers=1, cpus_per_worker=1.0, gpus_per_worker=0.0)


class DriverKilledError(Exception):
    """It was killed too."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, {"en": 300, "sw": 20})
    return str(folder)


@pytest.fixture(autouse=True)
def without_ray(monkeypatch):
    """The trainable's own code, but for what asks Ray."""
    monkeypatch.setattr("orchestrator.execution.executor.start_stop_signal", lambda _: None)
    monkeypatch.setattr(trainables.trial, "_asking", lambda *_: nullcontext(lambda: False))
    monkeypatch.setattr("trainables.corpora.stream.token_stream.ray_data_batches", local_batches)


def study(storage):
    return make_study(
        small_study(
            "flight",
            storage,
            budget={"tokens": 8 * LENGTH * STEPS},
            search={"budget_per_arm": 3, "halving": {"reduction": 2, "rungs": 3}},
            confirm={"seeds": 1, "evaluations": 3},
            yardsticks={"primary": "recovery_accuracy", "evaluation": {"sequences_per_language": 4}},
        )
    )


class Sink:
    """Runs a study's phases as Ray would, one trial at a time.

    Args:
        folder: the study's.
        spec: the study.
        corpus: folder of its corpus.
        seed: chance kills the attempts; None: none is killed, and every report arrives before the next is made.
    """

    def __init__(self, folder, spec, corpus, seed=None):
        self.folder, self.spec, self.corpus = Location(folder), spec, corpus
        self.chance = None if seed is None else random.Random(seed)
        self.lost = []

    def run(self):
        while True:
            recorder = Recorder(self.folder / "ledger")
            recorder.record(study_record(of=design_of(self.spec)))
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(tune_run, "run_with_tune", self.fit)
                    patch.setattr(newest_checkpoints, "ThreadPoolExecutor", AtOnce)
                    executor = Executor(recorder, self.folder, WORKER, 1, attempts=1000, keeps_processes=False)
                    executor.run(self.phases(recorder))
                return History.of(read_ledger(self.folder / "ledger"))
            except DriverKilledError:
                continue
            finally:
                recorder.close()

    def phases(self, recorder):
        for name, kind in PHASES.items():
            if recorder.history.phases.get(name) != "end":
                recorder.record(phase(name, "begin"))
                yield kind(self.spec, recorder.history, self.corpus)
                recorder.record(phase(name, "end"))

    def fit(self, executor):
        searcher, scheduler = _PhaseSearcher(executor), _PhaseScheduler(executor)
        while isinstance(config := searcher.suggest("any"), dict):
            trial = SimpleNamespace(config=config, error_file="")
            scheduler._trials[config["trial"]["trial"]] = trial
            scheduler._controller = tune_controller()._tune_controller
            if not self.attempt(scheduler, trial):
                if self.chance.random() < 0.3:
                    raise DriverKilledError
                scheduler.on_trial_error(None, trial)
                executor.settle()

    def attempt(self, scheduler, trial):
        """Whether the trial stopped or came to its end."""
        reports = trainables.trial._reports(trial.config, World())
        if self.chance is None or self.chance.random() < 0.2:
            arriving, killed = reports, False
        else:
            made = list(islice(reports, self.chance.randint(1, 30)))
            reports.close()  # with what is being written: the checkpoint is newer than the reports that arrive
            in_flight = self.chance.randint(0, min(12, len(made)))
            arriving, killed = made[: len(made) - in_flight], True
            lost = made[len(made) - in_flight :]
        for report in arriving:
            if scheduler.on_trial_result(None, trial, report) == "STOP":
                reports.close()
                return True
        if killed:
            self.lost += [json.loads(report["report"]) for report in lost]
        return trial.config["trial"]["trial"] not in scheduler._executor.running


def told(history):
    """What must not depend on kills: all but clocks and attempts."""
    kept = ("step", "progress", "loss", "learning_rate", "digest", "mix", "rung", "yardsticks")
    return {
        name: (
            trial.outcome,
            trial.configuration,
            [
                {key: getattr(measure, key) for key in kept} | {"flops": measure.spent["flops"]}
                for measure in trial.measures
            ],
        )
        for name, trial in history.trials.items()
    }


def test_what_was_lost_on_its_way_comes_again(tmp_path, corpus):
    spec = study(tmp_path)
    undisturbed = Sink(tmp_path / "undisturbed", spec, corpus).run()
    outcomes = {trial.outcome for trial in undisturbed.trials_of("search")}
    assert outcomes == {"completed", "pruned"}
    sink = Sink(tmp_path / "broken", spec, corpus, seed=6)
    broken = sink.run()
    assert told(broken) == told(undisturbed)
    milestones = [report["measure"]["rung"] for report in sink.lost if report["status"] == "running"]
    assert {0, None} <= set(milestones), "rungs were among the lost"
    assert any(report["status"] == "completed" for report in sink.lost)
    for trial in broken.trials.values():
        for spending in trial.spendings(broken.updated):
            amounts = [*spending.useful.values(), *spending.lost.values()]
            assert min(amounts, default=0.0) >= 0.0
