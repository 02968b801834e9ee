"""Ray Tune's side of the executor: thin adapters, by which Tune asks for trials and hands on what they report.

What Ray 2.60 does that matters here: a trial that Tune ends leaves its process to the next one (``reuse_actors``); of
processes that no trial waits for, Tune keeps one alone; and where a process cannot be used again within a time limit,
the next trial is in error without a word to the scheduler.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json
from ray import tune
from ray.tune.callback import Callback
from ray.tune.error import TuneError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.ledger.records import BegunRecord, MeasureRecord
from trainables.errors import InputError
from trainables.trial import (
    RAY_LOST,
    RAY_OUT_OF_MEMORY,
    DiskFull,
    Lost,
    OutOfMemory,
    TrialFailure,
    WorkerConfig,
    WrongInput,
    out_of_memory,
    trainable,
    why_lost,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.execution.executor import Executor
    from orchestrator.scheduling.trials import PlannedTrial


START_SECONDS = 300.0
"""So long the start of a process may take: a job's packages are unpacked for the first one on a machine."""


def run_with_tune(executor: Executor) -> None:
    """Run all that the executor has to start. Raises InputError where nothing more can be written into the ledger,
    OSError where its storage does not answer."""
    scheduler = _PhaseScheduler(executor)
    with tempfile.TemporaryDirectory(prefix="h2h-tune-") as scratch, _inside(scratch), _silenced():
        tuner = tune.Tuner(
            tune.with_resources(trainable, _resources(executor.workers)),
            tune_config=tune.TuneConfig(
                num_samples=-1,
                search_alg=_PhaseSearcher(executor),
                scheduler=scheduler,
                # Else Tune asks for a place for one trial at a time, also on a cluster that could grow.
                max_concurrent_trials=executor.concurrent_trials,
                reuse_actors=executor.workers.launcher == "direct" or executor.keeps_processes,
                trial_name_creator=_name_of,
                trial_dirname_creator=_name_of,
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                verbose=0,
                progress_reporter=tune.CLIReporter(),  # that of notebooks shows an empty output
                callbacks=[_Silence(), _EachStep(scheduler)],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0),
            ),
        )
        try:
            tuner.fit()
        except TuneError as error:  # Tune's text for whatever is raised while it runs
            if isinstance(error.__context__, InputError | OSError):  # the ledger's, or of what it lies on
                raise error.__context__ from error
            raise


@contextmanager
def _silenced() -> Iterator[None]:
    """Tune logs the error of each trial that is lost, in full; the ledger says it in a line."""
    logger = logging.getLogger("ray.tune")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Go to a folder of this process's own, and back. Tune asks for the current folder, and a job's may be gone: Ray
    extracts it again, over the old one, when a first node on this machine gets the job's environment. A notebook's,
    which goes on beside the study, stays where it is."""
    try:
        before = Path.cwd()
        stays = threading.current_thread() is not threading.main_thread()
    except FileNotFoundError:
        before, stays = Path.home(), False
    if stays:
        yield
        return
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before if before.is_dir() else Path.home())


def _resources(workers: WorkerConfig) -> dict[str, float]:
    if workers.launcher == "ray_train":
        # The Tune function only waits for its workers; a whole CPU for it would be one less for them.
        return {"memory": 1e6}
    return {kind.lower(): amount for kind, amount in workers.resources.items()}


class _Silence(TrialProgressCallback):  # type: ignore[misc]
    """In the place of Tune's own, which says how each trial ended at any verbosity, and keeps all trials to know."""

    def __getstate__(self) -> dict[str, object]:
        return {}  # Tune pickles what it might restore from; nothing is restored from it

    def log_result(self, *_: Any, **__: Any) -> None:
        """The ledger says it."""

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        """The ledger says it."""


class _EachStep(Callback):  # type: ignore[misc]
    """What is done at each step of Tune's loop, before it asks for a new trial: that may take ten minutes where nothing
    runs."""

    def __init__(self, scheduler: _PhaseScheduler) -> None:
        self._scheduler = scheduler
        self._on_user_signal = signal.getsignal(signal.SIGUSR1)

    def __getstate__(self) -> dict[str, object]:
        return {}

    def setup(self, *_: Any, **__: Any) -> None:
        """Tune has just taken a signal for itself, for good, at which it would end its run with trials under way."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._on_user_signal)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._scheduler.look_after()


class _PhaseSearcher(Searcher):  # type: ignore[misc]
    """Hands the phases' trials to Tune."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def suggest(self, trial_id: str) -> Any:
        self._executor.settle()  # while nothing runs Tune asks here alone: what failed is to be started again
        if self._executor.finished:
            return Searcher.FINISHED
        planned = self._executor.next()
        return None if planned is None else _configuration(self._executor, planned)

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The scheduler takes care of it, report by report."""

    def __getstate__(self) -> dict[str, object]:
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger has it all."""


def _configuration(executor: Executor, planned: PlannedTrial) -> dict[str, object]:
    """What Tune hands to the trainable."""
    known = executor.history_of(planned.trial).measures
    return {
        "trial": planned.config.model_dump(mode="json"),
        "workers": executor.workers.model_dump(mode="json"),
        "folder": str(executor.folder),
        "session": executor.recorder.history.sessions,
        "attempt": planned.attempt,
        "stop": executor.stop_name,
        "known_step": known[-1].step if known else 0,
    }


class _PhaseScheduler(FIFOScheduler):  # type: ignore[misc]
    """Writes what trials report and tells Tune which of them stop."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor
        self._controller: Any = None  # Tune's own, once there is a trial
        self._trials: dict[str, Any] = {}  # Tune's, of those that run
        self._keeps_processes = False
        self._starting: dict[Any, float] = {}  # Tune's trials whose process starts, and since when

    def __getstate__(self) -> dict[str, object]:
        return {}

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Tune takes in what the searcher suggested."""
        super().on_trial_add(tune_controller, trial)
        self._controller = tune_controller._tune_controller
        _forget_ended(self._controller)
        executor = self._executor
        self._trials = {name: t for name, t in self._trials.items() if name in executor.running}
        self._trials[_name_of(trial)] = trial
        if executor.keeps_processes and not self._keeps_processes:
            # With fewer idle processes than there is room for, a trial that begins beside another would wait for a new
            # process.
            self._controller._actor_cache.increase_max(trial.placement_group_factory, by=executor.concurrent_trials)
            self._keeps_processes = True

    def look_after(self) -> None:
        """Take care of what Tune tells of to nobody, and of what is asked of trials that have not begun."""
        executor, controller = self._executor, self._controller
        executor.recorder.check()
        executor.settle()
        if executor.interrupted:
            executor.tell_stopping()
        if controller is None:
            return
        self._reuse(not executor.interrupted)
        for name in list(executor.running):
            trial = self._trials.get(name)
            if trial is None:
                continue
            if trial.status == TuneTrial.ERROR:  # its process could not be used again
                self._failed(trial)
                # Tune would count it among those that run for ever.
                controller._search_alg.on_trial_complete(trial.trial_id, error=True)
            elif executor.interrupted and executor.waits(name):
                executor.ended(name, "interrupted", "it had not begun")
                controller.stop_trial(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Tune asks at every step."""
        starting = self._leave_to_their_own()
        waiting = (trial for trial in tune_controller.get_trials() if trial.status == TuneTrial.PENDING)
        return next((trial for trial in waiting if trial not in starting), None)

    def _leave_to_their_own(self) -> set[Any]:
        """The trials whose process has its place and starts, which takes seconds. They wait for it: Tune would give
        them whichever gets free meanwhile, and end the one that starts, whose place stays taken until it could. Where
        trials are no longer than a start, that would go on for ever, with some places never used. One that takes too
        long may be on a machine that is lost: it is given up for another."""
        controller, now = self._controller, time.monotonic()
        if controller is None:
            return set()
        live = controller._actor_manager._live_actors_to_ray_actors_resources
        starting = [trial for trial in controller._pending_trials if controller._trial_to_actor.get(trial) in live]
        self._starting = {trial: self._starting.get(trial, now) for trial in starting}
        left = {trial for trial, since in self._starting.items() if now - since < START_SECONDS}
        left.update(trial for trial in starting if trial in controller._resetting_trials)  # Tune itself gives these up
        for trial in left:
            controller._resources_to_pending_trials[trial.placement_group_factory].discard(trial)
        return left

    def _is_running(self, trial: Any) -> bool:
        """Whether it is what runs the trial of its name: an earlier attempt may end, or be heard of, after the next one
        began."""
        name = _name_of(trial)
        return name in self._executor.running and self._trials.get(name) is trial

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Tune hands on a report."""
        executor, name = self._executor, _name_of(trial)
        if not self._is_running(trial):
            return str(TrialScheduler.STOP)
        report = from_json(result["report"])  # equal names are one string in memory, as thousands of reports stay
        planned = executor.running[name]
        keys = {key: getattr(planned, key) for key in ("phase", "arm", "trial", "attempt")}
        for message in report.get("messages", ()):
            executor.recorder.event(f"{name}: {message}")
        status = report["status"]
        if status == "begun":
            executor.begun(BegunRecord.model_validate(keys | report["measure"]))
            return str(TrialScheduler.CONTINUE)
        measure = MeasureRecord.model_validate(keys | report["measure"])
        if status == "running":
            if not executor.prunes(measure):
                return str(TrialScheduler.CONTINUE)
            executor.ended(name, "pruned", f"not among the best at rung {measure.rung}")
            self._reuse(False)
            return str(TrialScheduler.STOP)
        if status == "interrupted":
            executor.saved(measure)
        else:
            executor.reported(measure)
            reason = "the training loss is not finite, or too large to write down" if status == "diverged" else ""
            executor.ended(name, "diverged" if status == "diverged" else "completed", reason)
        return str(TrialScheduler.CONTINUE)

    def _reuse(self, wanted: bool) -> None:
        """Whether processes of trials that are ended now go on to others. Not those in the middle of a Ray Train run:
        its function waits for its workers for as long as they train, and would keep them."""
        if self._executor.keeps_processes and self._executor.workers.launcher == "ray_train":
            self._controller._reuse_actors = wanted

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if self._is_running(trial):
            self._executor.failed(_name_of(trial), TrialFailure("it ended without a last report"))

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        if self._is_running(trial):
            self._failed(trial)

    def _failed(self, trial: Any) -> None:
        """Write why it failed. One that was lost before it began may have been given an idle process of a machine that
        is gone: the others there would cost it its attempts, one by one, so all idle ones are let go."""
        name, failure = _name_of(trial), _failure(trial)
        if isinstance(failure, Lost) and self._executor.waits(name):
            self._controller._cleanup_cached_actors(force_all=True)
        self._executor.failed(name, failure)


def _forget_ended(controller: Any) -> None:
    """Tune keeps all trials to its end, 35 KB each, and goes through them at every step. The ledger has them. What was
    to be asked of a process that was never started, as a trial went on in another's, is kept too."""
    ended = {t for t in controller._trials if t.is_finished()} - controller._trial_to_actor.keys()
    ended -= controller._resetting_trials
    if ended:
        controller._trials[:] = [trial for trial in controller._trials if trial not in ended]
    for known in ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache"):
        getattr(controller, known).difference_update(ended)
    for trial in ended:
        controller._trial_metadata.pop(trial.trial_id, None)
    actors = controller._actor_manager
    enqueued = actors._pending_actors_to_enqueued_actor_tasks
    for never_started in enqueued.keys() - actors._pending_actors_to_attrs.keys():
        del enqueued[never_started]


def _failure(trial: Any) -> TrialFailure:
    """Why Tune's trial ended, from the text of its error. Of what the trial raised its last line says what; of what
    Ray or Tune found there is no traceback, and no name."""
    # Tune has it on this machine only by now, so trial.get_error() would not find it.
    text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
    lines = text.strip().splitlines() or ["its process ended"]
    name, _, reason = lines[-1].partition(": ")
    for kind in (WrongInput, DiskFull, OutOfMemory, Lost, TrialFailure):
        if name.rpartition(".")[2] == kind.__name__:
            return kind(reason)
    if RAY_OUT_OF_MEMORY in text:
        return out_of_memory(next(line for line in lines if RAY_OUT_OF_MEMORY in line))
    raised = "ray::" in text or "Traceback" in text
    gone = not raised or any(kind in text for kind in RAY_LOST)
    return Lost(why_lost(text)) if gone else TrialFailure(lines[-1])


def _name_of(trial: Any) -> str:
    return str(trial.config["trial"]["trial"])
