"""What the executor writes of attempts, without Ray: how often a trial is started again."""

from __future__ import annotations

import json
import tempfile
import traceback
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
)
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import FIFOScheduler

from orchestrator.config.files import load_study
from orchestrator.execution import newest_checkpoints, tune_run
from orchestrator.execution.executor import Executor
from orchestrator.execution.tune_run import START_SECONDS, _failure, _PhaseScheduler
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord, Record
from orchestrator.scheduling.trials import Planner
from tests.helpers.ledgers import study
from tests.helpers.trials import make_measure
from tests.helpers.tune import AtOnce, tune_controller
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location
from trainables.training.checkpoint_record import CheckpointFolders
from trainables.trial import DiskFull, Lost, OutOfMemory, TrialFailure, WorkerConfig, WrongInput, _explained, failure_of

SPEC = load_study("demo")
NAME = "confirm-vanilla-000"
WORKER = WorkerConfig(launcher="direct", workers=1, cpus_per_worker=1, gpus_per_worker=0)


class Remote:
    """An actor of Ray's in this process; what it is asked for is counted."""

    def __init__(self):
        self.requests = 0

    @property
    def request(self):
        def remote():
            self.requests += 1

        return SimpleNamespace(remote=remote)


class InMemory:
    """A recorder whose ledger is a list, by which another one goes on."""

    def check(self):
        """Nothing is lost."""

    def __init__(self, records: list[Record]) -> None:
        self.records, self.events = records, []
        self.history = History.of(records or [study()])
        self.full = False

    def record(self, record: Record, *, flush: bool = True) -> None:
        if self.full:
            self.full = False
            raise FullDiskError("the disk is full")
        record = record.model_copy(update={"time": float(len(self.records))})
        self.records.append(record)
        self.history.apply(record)

    def event(self, message: str) -> None:
        self.events.append(message)

    @property
    def ends(self) -> list[str]:
        return [record.outcome for record in self.records if isinstance(record, EndRecord)]


class OneTrial:
    """A phase that gives one trial again and again, and is told of its ends."""

    def __init__(self, history: History) -> None:
        self.planner, self.told = Planner(SPEC, history, "corpus"), []

    def next(self):
        return self.planner.plan("confirm", "vanilla", 0, 1, {})

    def decisions(self):
        return ()

    def exhausted(self):
        return False

    def ended_early(self):
        return ""

    def ended(self, trial, outcome):
        self.told.append((trial.trial, outcome))


@pytest.fixture(autouse=True)
def no_ray(monkeypatch):
    """The executor's one actor is in this process."""
    monkeypatch.setattr("orchestrator.execution.executor.start_stop_signal", lambda _: Remote())


@pytest.fixture(autouse=True)
def local_storage(monkeypatch):
    monkeypatch.setattr(newest_checkpoints, "ThreadPoolExecutor", AtOnce)


def session(folder, attempts, records):
    """An executor over what an earlier one wrote, with nothing of Ray's."""
    recorder = InMemory(records or [study()])
    executor = Executor(recorder, Location(folder), WORKER, 1, attempts, keeps_processes=False)
    executor._phase = OneTrial(recorder.history)
    return executor


def save(folder, step):
    place = folder / "trials" / NAME / "start-0001" / f"step-{step:08d}"
    place.mkdir(parents=True)
    (place / "state.json").touch()


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 4), st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.booleans(), st.booleans()), max_size=14)
)
def test_a_trial_has_failed_after_so_many_failures_in_a_row_that_brought_it_no_further(attempts, story):
    """By attempt: what it adds to the newest checkpoint, whether the driver dies with it, or just after it."""
    step, stalls = 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        executor = session(folder, attempts, [])
        for gain, driver_dies, driver_dies_later in story:
            assert executor.next().trial == NAME
            if gain:
                step += gain
                save(folder, step)
                stalls = 0
            if driver_dies:
                executor = session(folder, attempts, executor.recorder.records)
                continue
            executor.failed(NAME, TrialFailure("killed"))
            executor.settle()
            stalls += gain == 0
            trial = executor.history_of(NAME)
            assert trial.outcome == ("failed" if stalls == attempts else None)
            if trial.outcome:
                return
            if driver_dies_later:
                executor = session(folder, attempts, executor.recorder.records)
        ends = executor.recorder.ends
        assert set(ends) <= {"retried"}
        assert len(ends) == sum(not dies for _, dies, _ in story)


@pytest.mark.parametrize(
    ("failures", "ends"),
    [
        ([WrongInput("a damaged checkpoint")], ["failed"]),  # every attempt would end with it
        ([OutOfMemory("low on memory"), OutOfMemory("low on memory")], ["retried", "failed"]),
        ([OutOfMemory("low on memory"), TrialFailure("killed"), OutOfMemory("low on memory")], ["retried"] * 3),
        ([TrialFailure("an error"), *[Lost("its node died")] * 8], [*["retried"] * 8, "lost"]),
        ([Lost("its node died"), *[TrialFailure("an error")] * 8], [*["retried"] * 8, "failed"]),
    ],
)
def test_what_would_end_the_same_is_not_started_again(tmp_path, failures, ends):
    executor = session(tmp_path, 9, [])
    for failure in failures:
        executor.next()
        executor.failed(NAME, failure)
        executor.settle()
    assert executor.recorder.ends == ends
    assert executor.history_of(NAME).reason == str(failures[-1])


def test_a_trial_without_space_has_not_failed(tmp_path):
    """It is interrupted, as a study is that stops: it goes on when the study is resumed, and no other trial starts."""
    executor = session(tmp_path, 1, [])
    executor.next()
    executor.failed(NAME, DiskFull("the disk is full: model.safetensors"))
    assert executor.recorder.ends == ["interrupted"]
    assert executor.history_of(NAME).outcome is None
    assert executor.full_disk == "the disk is full: model.safetensors"
    assert executor._stop.requests == 1
    assert executor.next() is None


def tune_trial(status=TuneTrial.RUNNING, error=""):
    """Tune's side of the trial."""
    return SimpleNamespace(trial_id="one", config={"trial": {"trial": NAME}}, status=status, error_file=error)


def test_a_storage_that_is_lost_while_a_trial_starts_again_says_how_to_go_on(tmp_path, monkeypatch):
    executor = session(tmp_path / "s", 9, [])
    executor.next()

    def silent(_):
        raise OSError("no answer in 300 s")

    monkeypatch.setattr(CheckpointFolders, "steps", silent)
    executor.failed(NAME, TrialFailure("the storage does not answer"))
    with pytest.raises(InputError, match=rf"has not answered for(?s:.*)no answer(?s:.*)h2h resume {tmp_path}/s"):
        executor.settle()


def test_what_the_storage_is_slow_to_answer_holds_up_no_other_trial(tmp_path, monkeypatch):
    """Neither the end of a failed attempt nor the beginning of the next one: Tune's loop goes on meanwhile."""
    asked = []

    class Slow(AtOnce):
        def submit(self, work):
            asked.append((Future(), work))
            return asked[-1][0]

    def answer():
        future, work = asked.pop()
        future.set_result(work())

    monkeypatch.setattr(newest_checkpoints, "ThreadPoolExecutor", Slow)
    executor = session(tmp_path, 3, [])
    executor.next()
    executor.failed(NAME, TrialFailure("killed"))
    for _ in range(3):
        executor.settle()
    assert (executor.recorder.ends, executor._phase.told, len(asked)) == ([], [], 1)
    assert not executor.finished, "the trial is to be started again"
    answer()
    executor.settle()
    assert executor.recorder.ends == ["retried"]
    for _ in range(3):
        assert executor.next() is None
    assert len(asked) == 1
    assert not executor.finished, "it has been asked for"
    save(tmp_path, 7)
    answer()
    assert executor.next().attempt == 2
    assert executor.history_of(NAME).furthest_start == 7


def test_trials_that_tune_leaves_undone_are_no_result(tmp_path, monkeypatch):
    """Whyever it ended: the study is stopped, and can be resumed."""
    executor = session(tmp_path, 3, [])
    monkeypatch.setattr("orchestrator.execution.tune_run.run_with_tune", lambda _: executor.next())
    executor.run(iter([executor._phase]))
    assert executor.interrupted


def test_what_had_failed_when_the_study_was_interrupted_is_written_before_it_ends(tmp_path, monkeypatch):
    executor = session(tmp_path, 3, [])
    executor.next()
    executor.failed(NAME, TrialFailure("killed"))
    executor.interrupt()
    assert not executor.finished
    executor.settle()
    assert executor.finished
    assert executor.recorder.ends == ["retried"]


def test_an_end_that_could_not_be_written_is_written_when_tune_tells_of_the_error(tmp_path, monkeypatch):
    """Tune catches what is raised when a trial is complete, and calls it the trial's error."""
    executor = session(tmp_path, 3, [])
    executor.next()
    executor.recorder.full = True
    scheduler, trial = _PhaseScheduler(executor), tune_trial()
    monkeypatch.setattr(FIFOScheduler, "on_trial_add", lambda *_: None)
    scheduler.on_trial_add(tune_controller(), trial)
    report = {"report": json.dumps({"status": "interrupted", "measure": make_measure().model_dump()})}
    with pytest.raises(FullDiskError):
        scheduler.on_trial_result(None, trial, report)
    assert not executor._phase.told
    scheduler.on_trial_error(None, trial)
    executor.settle()
    assert executor._phase.told == [(NAME, "retried")]
    assert executor.recorder.ends == ["retried"]
    assert not executor.running


@pytest.mark.parametrize("raised", [True, False])
def test_a_trial_that_ends_in_error_without_a_word_is_started_again(tmp_path, monkeypatch, raised):
    """Where a process cannot be used again in time, Tune tells the searcher nothing: its status alone says so."""
    error = tmp_path / "error.txt"
    error.write_text("Traceback ...\nray.exceptions.RayActorError: the process did not come back\n")
    monkeypatch.setattr(FIFOScheduler, "on_trial_add", lambda *_: None)
    executor = session(tmp_path, 3, [])
    executor.next()
    scheduler, trial = _PhaseScheduler(executor), tune_trial()
    next_one = Mock(status=TuneTrial.PENDING)
    controller = tune_controller(Mock(status=TuneTrial.RUNNING), next_one)
    scheduler.on_trial_add(controller, trial)
    scheduler.look_after()
    assert NAME in executor.running, "it runs"
    trial.status, trial.error_file = TuneTrial.ERROR, str(error) if raised else ""
    for _ in range(2):
        scheduler.look_after()
    assert scheduler.choose_trial_to_run(controller) is next_one
    executor.settle()
    assert not executor.running, "the study would wait for it for ever"
    controller._tune_controller._search_alg.on_trial_complete.assert_called_once_with("one", error=True)
    assert executor.recorder.ends == ["retried"]
    assert executor._phase.told == [(NAME, "retried")]
    reason = "the process did not come back" if raised else "its process ended"
    assert reason in executor.history_of(NAME).reason
    assert executor.next().attempt == 2
    scheduler.on_trial_add(controller, tune_trial())
    scheduler.look_after()
    assert NAME in executor.running, "the error was of the attempt before"


@pytest.mark.parametrize("late", ["report", "error", "end"])
def test_what_comes_late_of_an_attempt_is_not_the_next_ones(tmp_path, monkeypatch, late):
    """One on a machine that is taken away has saved itself; the next began elsewhere before its process ended."""
    monkeypatch.setattr(FIFOScheduler, "on_trial_add", lambda *_: None)
    executor = session(tmp_path, 3, [])
    scheduler, first, second = _PhaseScheduler(executor), tune_trial(), tune_trial()
    executor.next()
    scheduler.on_trial_add(tune_controller(), first)
    report = {"report": json.dumps({"status": "interrupted", "measure": make_measure().model_dump()})}
    scheduler.on_trial_result(None, first, report)
    assert executor.recorder.ends == ["interrupted"]
    assert executor.next().attempt == 2
    scheduler.on_trial_add(tune_controller(), second)
    if late == "report":
        assert scheduler.on_trial_result(None, first, report) == "STOP"
    elif late == "error":
        scheduler.on_trial_error(None, first)
    else:
        scheduler.on_trial_complete(None, first, {})
    executor.settle()
    assert NAME in executor.running
    assert executor.recorder.ends == ["interrupted"]


@pytest.mark.parametrize("resets", [False, True])
def test_a_process_that_does_not_come_is_waited_for_no_longer_than_its_time(tmp_path, monkeypatch, resets):
    """Its machine may be lost, while another that is free holds the only place that is left."""
    now = [1000.0]
    monkeypatch.setattr(tune_run.time, "monotonic", lambda: now[0])
    trial = Mock(status=TuneTrial.PENDING, placement_group_factory="one CPU")
    controller = tune_controller(trial, _resources_to_pending_trials={"one CPU": {trial}}, _reuse_actors=False)
    monkeypatch.setattr(FIFOScheduler, "on_trial_add", lambda *_: None)
    inner, scheduler = controller._tune_controller, _PhaseScheduler(session(tmp_path, 3, []))
    scheduler.on_trial_add(controller, tune_trial())
    inner._pending_trials.add(trial)
    inner._trial_to_actor[trial] = "its process"
    assert scheduler.choose_trial_to_run(controller) is trial, "it has no place, and takes what gets free"
    inner._actor_manager._live_actors_to_ray_actors_resources["its process"] = "its place"
    if resets:
        inner._resetting_trials.add(trial)
    for later in (0.0, START_SECONDS - 1):
        now[0] = 1000.0 + later
        assert scheduler.choose_trial_to_run(controller) is None
        assert not inner._resources_to_pending_trials["one CPU"], "Tune does not give it another either"
    now[0] += 2
    assert scheduler.choose_trial_to_run(controller) is (None if resets else trial)


def test_a_process_in_the_middle_of_a_ray_train_run_is_not_used_again(tmp_path, monkeypatch):
    """Its function waits for its workers: another trial would wait for both, and one that was ended would go on."""
    monkeypatch.setattr(FIFOScheduler, "on_trial_add", lambda *_: None)
    executor = session(tmp_path, 3, [])
    executor.workers, executor.keeps_processes = WORKER.model_copy(update={"launcher": "ray_train"}), True
    monkeypatch.setattr(executor, "prunes", lambda measure: True)
    cache = SimpleNamespace(increase_max=lambda *_, **__: None)
    controller = tune_controller(_reuse_actors=None, _actor_cache=cache)
    inner = controller._tune_controller
    executor.next()
    scheduler, trial = _PhaseScheduler(executor), tune_trial()
    trial.placement_group_factory = None
    scheduler.on_trial_add(controller, trial)
    scheduler.look_after()
    assert inner._reuse_actors, "a trial that comes to its end leaves its process to the next one"
    report = {"report": json.dumps({"status": "running", "measure": make_measure().model_dump()})}
    assert scheduler.on_trial_result(controller, trial, report) == "STOP"
    assert not inner._reuse_actors, "it is pruned in the middle of its run"
    scheduler.look_after()
    assert inner._reuse_actors
    executor.interrupted = True
    scheduler.look_after()
    assert not inner._reuse_actors, "what has not begun waits for its workers too"


def test_of_trials_that_have_ended_tune_keeps_nothing(tmp_path, monkeypatch):
    """It would keep all to the end of the study."""
    monkeypatch.setattr(FIFOScheduler, "on_trial_add", lambda *_: None)

    class Made(SimpleNamespace):
        __hash__ = object.__hash__

    names = ("ended", "failed", "stopping", "runs", "new")
    trials = {
        name: Made(trial_id=name, config={"trial": {"trial": NAME}}, is_finished=lambda own=name: own not in names[3:])
        for name in names
    }
    ended, failed, stopping, runs, new = trials.values()
    controller = tune_controller()
    inner = controller._tune_controller
    inner._trials += trials.values()
    inner._live_trials |= {failed, stopping, runs, new}
    inner._stopped_trials |= {ended, stopping}
    inner._failed_trials.add(failed)
    inner._trials_to_cache |= {ended, runs}
    inner._trial_metadata |= {"ended": "...", "runs": "..."}
    inner._trial_to_actor |= {stopping: "its process has not ended", runs: "another"}
    enqueued = inner._actor_manager._pending_actors_to_enqueued_actor_tasks
    enqueued |= {"starting": ["train"], "never started": ["train"]}
    inner._actor_manager._pending_actors_to_attrs["starting"] = "its class and resources"
    scheduler = _PhaseScheduler(session(tmp_path, 3, []))
    scheduler.on_trial_add(controller, new)
    assert inner._trials == [stopping, runs, new]
    assert inner._live_trials == {stopping, runs, new}
    assert (inner._stopped_trials, inner._failed_trials, inner._trials_to_cache) == ({stopping}, set(), {runs})
    assert inner._trial_metadata == {"runs": "..."}
    assert enqueued == {"starting": ["train"]}


def _as_tune_writes(error):
    """The text of a trial's error: of one of Ray's own it is the message alone."""
    if not isinstance(error, RayError):
        trace = "".join(traceback.format_exception(error))
        error = RayTaskError("ImplicitFunc.train", f"ray::ImplicitFunc.train() (pid=1, ip=::1)\n{trace}", error)
    return f"Failure # 1 (occurred at 2026-11-25_01-53-46)\n{error}\n"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ActorDiedError(), Lost),
        (NodeDiedError("its node is gone"), Lost),
        (ActorUnavailableError("no answer", None), Lost),
        (WorkerHealthCheckFailedError("the node was terminated", RuntimeError()), Lost),
        (RuntimeError("connection closed by peer"), TrialFailure),
        (WrongInput("a damaged shard"), WrongInput),
        (Lost("the storage failed"), Lost),
        (OutOfMemoryError("killed, as its node was running low on memory"), OutOfMemory),
    ],
)
def test_what_went_away_is_told_from_what_failed(tmp_path, error, kind):
    """Of Ray Train's workers, of which others fail for the one that is gone; and of a trial that Tune runs itself."""
    peers = {0: RuntimeError("a collective operation failed"), 1: error}
    assert type(failure_of(peers)) is kind
    written = tmp_path / "error.txt"
    written.write_text(_as_tune_writes(error), encoding="utf-8")
    assert type(_failure(SimpleNamespace(error_file=str(written)))) is kind
    assert type(_failure(SimpleNamespace(error_file=None))) is Lost


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("\tThe actor died because its node has died. Node Id: 1\n"
         "\t the actor's node was terminated unexpectedly: runtime_env_agent failed and raylet fate-shares with it.",
         "its machine was lost"),
        ("\t the actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats",
         "its machine was lost, as it did not answer"),
        ("The actor 9045 is unavailable: The actor is temporarily unavailable: RpcError: Socket closed rpc_code: 14.",
         "its process did not answer"),
        ("\tThe actor is dead because its worker process has died.",
         "its process was killed, or crashed"),
    ],
)  # fmt: skip
def test_a_lost_process_is_told_without_rays_own_parts(tmp_path, told, reason):
    written = tmp_path / "error.txt"
    written.write_text(f"Failure # 1 (occurred at ...)\nThe actor died unexpectedly before this task.\n{told}\n")
    assert str(_failure(SimpleNamespace(error_file=str(written)))) == reason
    assert str(failure_of({0: NodeDiedError(told)})) == f"worker 0: {reason}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("AWS Error NETWORK_CONNECTION during PutObject"), Lost),
        (ConnectionResetError("reset by peer"), Lost),
        (FileNotFoundError("words.txt"), FileNotFoundError),
        (FullDiskError("the disk is full"), DiskFull),
        (InputError("wrong"), WrongInput),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), OutOfMemory),
        (ValueError("a mistake"), ValueError),
    ],
)
def test_errors_of_a_trial_are_of_the_program_or_of_the_storage(error, kind):
    with pytest.raises(kind) as raised, _explained():
        raise error
    assert type(raised.value) is kind
