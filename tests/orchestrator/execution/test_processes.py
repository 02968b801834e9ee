"""The processes that trials run in: how many are started for trials shorter than the start of one."""

from __future__ import annotations

import json
import os
import time

import pytest
from ray.air.execution._internal.actor_manager import RayActorManager

from orchestrator.execution import tune_run
from orchestrator.execution.executor import Executor
from orchestrator.ledger.history import History
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.segments import read_ledger
from tests.helpers.ledgers import MASKED, study
from tests.helpers.some_trials import SomeTrials
from trainables.storage import Location
from trainables.trial import WorkerConfig

PLACES, TRIALS = 4, 60


@pytest.fixture
def asked_for(monkeypatch):
    """The processes that Tune asked for."""
    asked = []
    add_actor = RayActorManager.add_actor

    def counted(self, *arguments, **named):
        asked.append(arguments)
        return add_actor(self, *arguments, **named)

    monkeypatch.setattr(RayActorManager, "add_actor", counted)
    return asked


def short(*, breaks: bool = False):
    """A trainable that does next to nothing, in the place of a trial's; its process ``breaks`` at the first attempt."""

    def train(config):
        from ray import tune

        if breaks and config["attempt"] == 1:
            os._exit(1)

        def measured(step):
            counted = dict.fromkeys(("tokens", "steps", "flops", "hardware_flops"), step)
            return {
                "step": step,
                "spent": counted | {"device_seconds": 0.1 * step, "wall_seconds": 0.1 * step},
                "overhead": {"startup": 0.0, "data_wait": 0.0, "evaluation": 0.0, "checkpoint": 0.0},
            }

        tune.report({"report": json.dumps({"status": "begun", "measure": measured(0) | {"workers": 1}})})
        time.sleep(0.1)
        measure = measured(1) | {"progress": 1.0, "loss": 1.0, "learning_rate": 1e-3, "digest": "0" * 16}
        measure |= {"mix": {"veldan": 1}, "rung": None, "yardsticks": {}}
        tune.report({"report": json.dumps({"status": "completed", "measure": measure})})

    return train


def run(folder: Location, cpus: float, *, keeps_processes: bool, trials: int = TRIALS) -> None:
    """All of them, to their end."""
    recorder = Recorder(folder / "ledger")
    recorder.record(study({"headless": MASKED["headless"]}))
    workers = WorkerConfig(launcher="direct", workers=1, cpus_per_worker=cpus, gpus_per_worker=0)
    executor = Executor(recorder, folder, workers, PLACES, attempts=2, keeps_processes=keeps_processes)
    executor.run(iter([SomeTrials(recorder.history, trials)]))
    recorder.close()
    history = History.of(read_ledger(folder / "ledger"))
    assert [trial.outcome for trial in history.trials.values()] == ["completed"] * trials


@pytest.mark.parametrize("keeps_processes", [True, False])
def test_a_process_that_starts_is_waited_for(ray_cluster, tmp_path, monkeypatch, asked_for, keeps_processes):
    monkeypatch.setattr(tune_run, "trainable", short())
    run(Location(tmp_path), 0.25, keeps_processes=keeps_processes)
    assert len(asked_for) == PLACES, "one for each place"


def test_a_trial_that_no_process_can_start_for_takes_one_that_gets_free(ray_cluster, tmp_path, monkeypatch):
    """There are fewer places than it is told of, and none is given up."""
    monkeypatch.setattr(tune_run, "trainable", short())
    run(Location(tmp_path), 1, keeps_processes=True)


@pytest.mark.timeout(200)
def test_a_trial_that_breaks_while_nothing_else_runs_is_started_again_at_once(ray_cluster, tmp_path, monkeypatch):
    """With nothing under way Tune would ask for ten minutes whether there is something new."""
    monkeypatch.setattr(tune_run, "trainable", short(breaks=True))
    run(Location(tmp_path), 0.25, keeps_processes=True, trials=1)
