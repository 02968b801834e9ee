"""Runs the trials of all phases as one Ray Tune run and writes what they report into the ledger.

Tune places trials and carries their reports. It decides nothing and remembers nothing: which trial comes next, which
one stops and what was spent are the phase's and the ledger's, so a study that was cut off goes on from the ledger
with a fresh Tune run.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.error import TuneError
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.ledger.history import TrialHistory
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.segments import Record
from orchestrator.scheduling.search import Phase, PlannedTrial
from trainables.storage import FullDiskError, Location
from trainables.trial import (
    RAY_OUT_OF_MEMORY,
    DiskFull,
    OutOfMemory,
    StopSignal,
    TrialFailure,
    WorkerConfig,
    WrongInput,
    out_of_memory,
    trainable,
)

_VERDICTS = {"pruned": "not among the best at rung {rung}", "paused": "waits at rung {rung}"}
"""Reasons, by outcome."""


class Executor:
    """Runs phases on a Ray cluster.

    Args:
        recorder: the study's.
        folder: the study's.
        workers: what each trial runs on.
        concurrent_trials: trials at a time.
        attempts: starts in a row without a newer checkpoint after which a trial has failed.
    """

    def __init__(
        self,
        recorder: Recorder,
        folder: Location,
        workers: WorkerConfig,
        concurrent_trials: int,
        attempts: int,
    ) -> None:
        import ray

        self.recorder, self.folder, self.workers = recorder, folder, workers
        self.concurrent_trials, self.attempts = concurrent_trials, attempts
        self.interrupted = False
        self.full_disk = ""
        """What a trial said that found no space for a checkpoint."""
        self.phase: Phase | None = None
        """Whose trials run; None: all phases have ended."""
        self._coming: Iterator[Phase] = iter(())
        self.running: dict[str, PlannedTrial] = {}
        self._starting: dict[
            str, int
        ] = {}  # the steps that attempts are to start from, until they have begun
        self._out_of_memory: set[str] = set()  # trials whose last attempt ended so
        self._stop_name = f"h2h-stop-{uuid.uuid4().hex}"
        self._stop = ray.remote(num_cpus=0)(StopSignal).options(name=self._stop_name).remote()

    def interrupt(self) -> None:
        """Ask the running trials to save and stop, and start no more. Safe in a signal handler.

        Those that have not begun are ended at Tune's next step: they have nothing to save, and might wait for a place.
        """
        self.interrupted = True
        self._stop.request.remote()

    def tell_stopping(self) -> None:
        """Write, once, that what runs is saved and stopped; a signal handler must not."""
        if self.recorder.history.stop is None:
            with suppress(FullDiskError):  # which may be why
                self.recorder.record("stop", status="begin")

    def run(self, phases: Iterator[Phase]) -> None:
        """Run phase after phase; returns when all have ended, or trials were saved after :meth:`interrupt`.

        The processes that a phase's trials ran in go on with the next one's: to start them takes seconds.

        Args:
            phases: asked for the next one when nothing of a phase is left to start and nothing runs.

        Raises:
            FullDiskError: there is no space left for the ledger.
        """
        self._coming, self.phase = phases, next(phases, None)
        self.pass_ended()
        if self.phase is not None:
            self._fit()

    def pass_ended(self) -> None:
        """Go on to the next phase that has trials to start, while none runs."""
        while self.phase is not None and self.phase.exhausted():
            for trial in self.phase.left_over():
                self.recorder.record(
                    "end",
                    phase=trial.phase,
                    arm=trial.arm,
                    trial=trial.trial,
                    attempt=trial.attempts,
                    outcome="pruned",
                    reason="the search ended before it was promoted",
                )
            self.phase = next(self._coming, None)

    def _fit(self) -> None:
        with tempfile.TemporaryDirectory(prefix="h2h-tune-") as scratch:
            tuner = tune.Tuner(
                tune.with_resources(trainable, self._trial_resources()),
                tune_config=tune.TuneConfig(
                    num_samples=-1,
                    search_alg=_PhaseSearcher(self),
                    scheduler=_PhaseScheduler(self),
                    # Else Tune asks for a place for one trial at a time, also on a cluster that could grow.
                    max_concurrent_trials=self.concurrent_trials,
                    reuse_actors=True,
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                ),
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=scratch,
                    verbose=0,
                    callbacks=[_Silence()],
                    failure_config=tune.FailureConfig(max_failures=0),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0),
                ),
            )
            try:
                tuner.fit()
            except TuneError as error:  # Tune's text for whatever is raised while it runs
                if isinstance(error.__context__, FullDiskError):  # the ledger's
                    raise error.__context__ from error
                raise

    def _trial_resources(self) -> dict[str, float]:
        if self.workers.launcher == "ray_train":
            # The Tune function only waits for its workers; a whole CPU for it would be one less for them.
            return {"memory": 1e6}
        return {kind.lower(): amount for kind, amount in self.workers.resources.items()}

    def configuration(self, planned: PlannedTrial) -> dict[str, Any]:
        """What Tune hands to the trainable."""
        known = self.recorder.history.trials[planned.trial].measures
        return {
            "trial": planned.config.model_dump(mode="json"),
            "workers": self.workers.model_dump(mode="json"),
            "folder": str(self.folder),
            "attempt": planned.attempt,
            "stop": self._stop_name,
            "known_step": known[-1]["step"] if known else 0,
        }

    def begin(self, planned: PlannedTrial, start_step: int) -> None:
        """Write that an attempt begins: what it has spent is known before its first report."""
        self._starting[planned.trial] = start_step
        self.recorder.record(
            "trial",
            **_keys(planned),
            number=planned.number,
            seed=planned.seed,
            configuration=dict(planned.configuration),
            amount=planned.config.budget.amount,
            share=planned.share,
            start_step=start_step,
            workers=self.workers.workers,
        )

    def begun(
        self, name: str, step: int, workers: int, spent: dict[str, float], overhead: dict[str, float]
    ) -> None:
        """Write down where an attempt's workers really start, and with what spending.

        If Ray Train started them anew, or the newest checkpoint was damaged, that is another attempt: what the ledger
        has beyond the step is rolled back.
        """
        planned = self.running[name]
        if workers < self.workers.workers:
            self.recorder.event(f"{name} runs on {workers} of {self.workers.workers} workers")
        if self._starting.pop(name, None) != step:
            reason = f"its workers started again from step {step}"
            self.recorder.record("end", **_keys(planned), outcome="interrupted", reason=reason)
            self.running[name] = planned = replace(planned, attempt=planned.attempt + 1)
            self.begin(planned, step)
            del self._starting[name]
        self.recorder.record(
            "begun", **_keys(planned), step=step, workers=workers, spent=spent, overhead=overhead
        )

    def waits(self, name: str) -> bool:
        """Whether a trial's attempt has been asked for, and not begun yet."""
        return name in self.running and self.recorder.history.trials[name].attempt_records[-1].begun is None

    def failed(self, name: str, failure: TrialFailure) -> None:
        """Write that an attempt failed, and start the trial again unless it would end the same."""
        if isinstance(failure, DiskFull):  # it would be so for every trial: none has failed for it
            self.full_disk = str(failure)
            self.end(name, "interrupted", str(failure))
            self.interrupt()
            return
        hopeless = isinstance(failure, WrongInput)
        if isinstance(failure, OutOfMemory):
            hopeless = name in self._out_of_memory
            self._out_of_memory.add(name)
        else:
            self._out_of_memory.discard(name)
        self.end(name, "failed", str(failure), again=not hopeless)

    def end(
        self,
        name: str,
        outcome: str,
        reason: str = "",
        *,
        again: bool = True,
        measure: Record | None = None,
    ) -> None:
        """Write how an attempt ended and let the phase know; a failed one may be started ``again``.

        One that left a newer checkpoint than any attempt before it began from came further, and does not count: a
        machine that is taken away every few hours fails no long trial.
        Of one that saved itself only what the last ``measure`` says of spending is written: the next attempt goes on.
        """
        planned = self.running[name]
        history = self.recorder.history.trials[name]
        if outcome == "failed" and again:
            came_further = _steps_kept(self, planned) > history.furthest_start
            if came_further or history.stalls + 1 < self.attempts:
                outcome = "retried"
                self.recorder.event(f"{name} failed and is started again: {reason}")
        spent = {} if measure is None else {key: measure[key] for key in ("spent", "overhead")}
        self.recorder.record("end", **_keys(planned), outcome=outcome, reason=reason, **spent)
        # Only now: what cannot be written is told to Tune as the trial's error, and is to be written then.
        del self.running[name]
        assert self.phase is not None
        self.phase.ended(history, outcome)


class _Silence(TrialProgressCallback):  # type: ignore[misc]
    """In the place of Tune's own, which says how each trial ended at any verbosity."""

    def on_trial_complete(self, *_: Any, **__: Any) -> None:
        """The ledger says it."""


class _PhaseSearcher(Searcher):  # type: ignore[misc]
    """Hands the phases' trials to Tune."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def suggest(self, trial_id: str) -> Any:
        executor = self._executor
        if not executor.running and not executor.interrupted:
            executor.pass_ended()
        phase = executor.phase
        if executor.interrupted or phase is None or phase.exhausted():
            return None if executor.running else Searcher.FINISHED
        planned = phase.next()
        if planned is None:
            return None
        executor.running[planned.trial] = planned
        executor.begin(planned, _steps_kept(executor, planned))
        return executor.configuration(planned)

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The scheduler takes care of it, report by report."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles what it might restore from; nothing is restored from it

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger has it all."""


class _PhaseScheduler(FIFOScheduler):  # type: ignore[misc]
    """Writes what trials report and tells Tune which of them stop."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Tune asks at every step."""
        if self._executor.interrupted:
            self._executor.tell_stopping()
            for trial in list(tune_controller.get_live_trials()):
                if self._executor.waits(name := _trial_name(trial)):
                    self._executor.end(name, "interrupted", "it had not begun")
                    tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        executor, name = self._executor, _trial_name(trial)
        assert executor.phase is not None
        report = json.loads(result["report"])
        status, measure = report["status"], report["measure"]
        for message in report.get("messages", ()):
            executor.recorder.event(f"{name}: {message}")
        if status == "begun":
            executor.begun(name, **measure)
            return str(TrialScheduler.CONTINUE)
        planned = executor.running[name]
        if status != "interrupted" and not _known(executor.recorder.history.trials[name], measure):
            flush = bool(measure["yardsticks"])
            executor.recorder.record("measure", flush=flush, **_keys(planned), **measure)
        if status == "running":
            verdict = executor.phase.verdict(executor.recorder.history.trials[name], measure)
            if verdict is None:
                return str(TrialScheduler.CONTINUE)
            executor.end(name, verdict, _VERDICTS[verdict].format(rung=measure["rung"]))
            return str(TrialScheduler.STOP)
        reasons = {
            "diverged": "the training loss is not finite",
            "interrupted": f"saved at step {measure['step']}",
        }
        saved = measure if status == "interrupted" else None
        executor.end(name, status, reasons.get(status, ""), measure=saved)
        return str(TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        name = _trial_name(trial)
        if name in self._executor.running:
            self._executor.failed(name, TrialFailure("it ended without a last report"))

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        name = _trial_name(trial)
        if name in self._executor.running:
            self._executor.failed(name, _failure(trial))


def _failure(trial: Any) -> TrialFailure:
    """Why Tune's trial ended, from the text of its error: what it raised is its last line."""
    # Tune has it on this machine only by now, so trial.get_error() would not find it.
    text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
    lines = text.strip().splitlines() or ["its process ended"]
    name, _, reason = lines[-1].partition(": ")
    for kind in (WrongInput, DiskFull, OutOfMemory, TrialFailure):
        if name.rpartition(".")[2] == kind.__name__:
            return kind(reason)
    if RAY_OUT_OF_MEMORY in text:
        return out_of_memory(next(line for line in lines if RAY_OUT_OF_MEMORY in line))
    return TrialFailure(lines[-1])


def _known(trial: TrialHistory, measure: dict[str, Any]) -> bool:
    """Whether the ledger has the report already: a trial that goes on repeats what may have been lost.

    Reports come in their order, so those before the last one that came did too. A run whose budget buys no further step
    reports twice from its last one, with more yardsticks the second time.
    """
    if not trial.measures:
        return False
    last = trial.measures[-1]
    if measure["step"] == last["step"]:
        return bool(measure["yardsticks"].keys() <= last["yardsticks"].keys())
    return bool(measure["step"] < last["step"])


def _keys(planned: PlannedTrial) -> dict[str, Any]:
    return {name: getattr(planned, name) for name in ("phase", "arm", "trial", "attempt")}


def _trial_name(trial: Any) -> str:
    return str(trial.config["trial"]["trial"])


def _steps_kept(executor: Executor, planned: PlannedTrial) -> int:
    from trainables.training.checkpoint import Checkpoints

    steps = Checkpoints(executor.folder / "trials" / planned.trial).steps()
    return steps[-1] if steps else 0
