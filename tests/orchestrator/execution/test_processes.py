"""The processes that trials run in: how many are started for trials shorter than the start of one."""

from __future__ import annotations

import json
import math
import os
import threading
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


def short(*, breaks: bool = False, lingers: float = 0, lasts: float = 1e9):
    """A trainable that does next to nothing, in the place of a trial's. Its process ``breaks`` at the first attempt,
    takes so many seconds to stop, or ``lasts`` no longer than so many."""

    def train(config):
        from ray import tune

        if breaks and config["attempt"] == 1:
            os._exit(1)
        if lasts < 1e9:
            threading.Timer(lasts, os._exit, [1]).start()

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
        if lingers:
            os.environ["TUNE_FUNCTION_THREAD_TIMEOUT_S"] = "1"
            try:
                tune.report({"report": json.dumps({"status": "running", "measure": measure})})
            finally:
                time.sleep(lingers)  # as one that writes its checkpoint
        tune.report({"report": json.dumps({"status": "completed", "measure": measure})})

    return train


def run(
    folder: Location,
    cpus: float,
    *,
    keeps_processes: bool,
    trials: int = TRIALS,
    places: int = PLACES,
    phase: type[SomeTrials] = SomeTrials,
    outcome: str = "completed",
) -> History:
    """All of them, to their end."""
    recorder = Recorder(folder / "ledger")
    recorder.record(study({"headless": MASKED["headless"]}))
    workers = WorkerConfig(launcher="direct", workers=1, cpus_per_worker=cpus, gpus_per_worker=0)
    executor = Executor(recorder, folder, workers, places, attempts=2, keeps_processes=keeps_processes)
    executor.run(iter([phase(recorder.history, trials)]))
    recorder.close()
    history = History.of(read_ledger(folder / "ledger"))
    assert [trial.outcome for trial in history.trials.values()] == [outcome] * trials
    return history


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


class Pruned(SomeTrials):
    """Each at its first report."""

    def prunes(self, trial, measure):
        return True


@pytest.mark.timeout(200)
def test_a_process_that_does_not_stop_in_time_holds_up_no_other_trial(ray_cluster, tmp_path, monkeypatch):
    """Tune tells of it to nobody; and with nothing under way it would wait ten minutes for another trial."""
    monkeypatch.setattr(tune_run, "trainable", short(lingers=20))
    history = run(Location(tmp_path), 0.25, keeps_processes=True, trials=2, places=1, phase=Pruned, outcome="pruned")
    assert [len(trial.attempt_records) for trial in history.trials.values()] == [1, 2]


class OneMoreLater(SomeTrials):
    """The last one comes when the processes of all others have been idle for some seconds."""

    ended_at = math.inf  # of the others

    def next(self):
        waits = len(self.coming) == 1 and time.monotonic() < self.ended_at + 10
        return None if waits else super().next()

    def ended(self, trial, outcome):
        self.ended_at = time.monotonic()
        super().ended(trial, outcome)


@pytest.mark.timeout(200)
def test_idle_processes_of_a_lost_machine_do_not_cost_a_trial_its_attempts(ray_cluster, tmp_path, monkeypatch):
    """It is given one of them; the others are gone with it, and nothing tells Tune so."""
    monkeypatch.setattr(tune_run, "trainable", short(lasts=6))
    history = run(Location(tmp_path), 0.25, keeps_processes=True, trials=PLACES + 1, phase=OneMoreLater)
    attempts = [len(trial.attempt_records) for trial in history.trials.values()]
    assert attempts == [1] * PLACES + [2]
