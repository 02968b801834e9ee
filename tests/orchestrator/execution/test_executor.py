"""What the executor writes of attempts, without Ray: how often a trial is started again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.execution.executor import Executor, _PhaseScheduler, _steps_kept
from orchestrator.ledger.history import History
from trainables.storage import FullDiskError, Location
from trainables.trial import TrialFailure

NAME = "confirm-one-000"
PHASE = SimpleNamespace(ended=lambda trial, outcome: None)


def session(folder, attempts, records):
    """An executor over what an earlier one wrote, with nothing of Ray's."""
    executor = Executor.__new__(Executor)
    history = History.of(records)

    def record(kind, *, flush=True, **fields):
        records.append({"kind": kind, "time": float(len(records)), **fields})
        history.apply(records[-1])

    executor.recorder = SimpleNamespace(history=history, record=record, event=lambda message: None)
    executor.phase = PHASE
    executor.folder, executor.attempts, executor.running = Location(folder), attempts, {}
    executor.workers, executor._starting, executor._out_of_memory = SimpleNamespace(workers=1), {}, set()
    return executor


def start(executor):
    known = executor.recorder.history.trials.get(NAME)
    planned = SimpleNamespace(
        phase="confirm", arm="one", trial=NAME, number=0, seed=1, configuration={}, share=None,
        attempt=known.attempts + 1 if known else 1, config=SimpleNamespace(budget=SimpleNamespace(amount=1.0)),
    )  # fmt: skip
    executor.running[NAME] = planned
    executor.begin(planned, _steps_kept(executor, planned))


def save(folder, step):
    place = folder / "trials" / NAME / f"step-{step:08d}"
    place.mkdir(parents=True)
    (place / "state.json").touch()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.booleans(), st.booleans()), max_size=14),
)
def test_a_trial_has_failed_after_so_many_failures_in_a_row_that_brought_it_no_further(attempts, story):
    """By attempt: what it adds to the newest checkpoint, whether the driver dies with it, or just after it."""
    step, stalls, records = 0, 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        executor = session(folder, attempts, records)
        for gain, driver_dies, driver_dies_later in story:
            start(executor)
            if gain:
                step += gain
                save(folder, step)
                stalls = 0
            if driver_dies:
                executor = session(folder, attempts, records)
                continue
            executor.failed(NAME, TrialFailure("killed"))
            stalls += gain == 0
            trial = executor.recorder.history.trials[NAME]
            assert trial.outcome == ("failed" if stalls == attempts else None)
            if trial.outcome:
                return
            if driver_dies_later:
                executor = session(folder, attempts, records)
        ends = [record["outcome"] for record in records if record["kind"] == "end"]
        assert set(ends) <= {"retried"}
        assert sum(end == "retried" for end in ends) == sum(not dies for _, dies, _ in story)


def test_an_end_that_could_not_be_written_is_written_when_tune_tells_of_the_error(tmp_path):
    """Tune catches what is raised when a trial is complete, and calls it the trial's error."""
    executor = session(tmp_path, 3, records := [])
    start(executor)
    told, write, full = [], executor.recorder.record, iter([True])
    executor.phase = SimpleNamespace(ended=lambda trial, outcome: told.append((trial.trial, outcome)))

    def record(kind, **fields):
        if next(full, False):
            raise FullDiskError("the disk is full")
        write(kind, **fields)

    executor.recorder.record = record
    scheduler = _PhaseScheduler(executor)
    trial = SimpleNamespace(config={"trial": {"trial": NAME}}, error_file="")
    with pytest.raises(FullDiskError):
        scheduler.on_trial_complete(None, trial, {})
    assert not told
    scheduler.on_trial_error(None, trial)
    assert told == [(NAME, "retried")]
    assert [record["outcome"] for record in records if record["kind"] == "end"] == ["retried"]
    assert not executor.running
