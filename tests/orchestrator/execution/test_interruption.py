"""An interruption of trials for which there is no room: nobody waits until there is."""

from __future__ import annotations

import threading
import time

import pytest

from orchestrator.execution.executor import Executor
from orchestrator.ledger.history import History
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.segments import read_ledger
from tests.helpers.some_trials import SomeTrials
from trainables.storage import Location
from trainables.trial import WorkerConfig


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["direct", "ray_train"])
def test_trials_that_wait_for_room_are_ended_at_once(ray_cluster, tmp_path, launcher):
    """Under Ray Train the trial's process is there, and waits for its workers'."""
    folder = Location(tmp_path)
    recorder = Recorder(folder / "ledger")
    workers = WorkerConfig(launcher=launcher, workers=1, cpus_per_worker=64, gpus_per_worker=0)
    executor = Executor(recorder, folder, workers, concurrent_trials=3, attempts=2, keeps_processes=False)
    phase = SomeTrials(recorder.history, 2)
    running = threading.Thread(target=executor.run, args=[iter([phase])], daemon=True)
    running.start()
    while len(executor.running) < 2:
        time.sleep(0.1)
    time.sleep(5)  # the processes that wait for workers have started
    executor.interrupt()
    running.join(60)
    assert not running.is_alive(), "it waits for room"
    recorder.close()
    history = History.of(read_ledger(folder / "ledger"))
    assert len(history.trials) == 2
    for trial in history.trials.values():
        assert (trial.outcome, trial.stalls, trial.attempts) == (None, 0, 1)
        assert trial.attempt_records[-1].outcome == "interrupted"
    assert sorted(phase.coming) == [0, 1], "they are to be gone on with"
