"""Runs the trials of all phases as one Ray Tune run and writes what they report into the ledger.

Tune places trials and carries their reports. It decides nothing and remembers nothing: which trial comes next, which
one stops and what was spent are the phase's and the ledger's, so a study that was cut off goes on from the ledger
with a fresh Tune run.
"""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orchestrator.execution.newest_checkpoints import NewestCheckpoints
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import AttemptOutcome, BegunRecord, EndRecord, MeasureRecord, StopRecord, TrialRecord
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.trials import PhaseOfTrials, PlannedTrial, WritesDecisions
from trainables.errors import InputError
from trainables.storage import Location
from trainables.trial import LEAVES, DiskFull, Lost, OutOfMemory, StopSignal, TrialFailure, WorkerConfig, WrongInput


class Executor:
    """Runs phases on a Ray cluster. A trial has failed after so many ``attempts`` in a row without a newer checkpoint.
    Idle processes are kept for later trials, unless the cluster shrinks, as they would hold its nodes."""

    def __init__(
        self,
        recorder: Recorder,
        folder: Location,
        workers: WorkerConfig,
        concurrent_trials: int,
        attempts: int,
        *,
        keeps_processes: bool,
    ) -> None:
        self.recorder, self.folder, self.workers = recorder, folder, workers
        self.concurrent_trials, self.attempts = concurrent_trials, attempts
        self.keeps_processes = keeps_processes
        self.interrupted = False
        self.full_disk = ""  # what a trial said that found no space for a checkpoint
        self.running: dict[str, PlannedTrial] = {}
        self._asked: PlannedTrial | None = None  # the next one, until the storage has said from where it starts
        self._failing: dict[str, tuple[PlannedTrial, AttemptOutcome, str]] = {}  # ... has said how far it came
        self._checkpoints = NewestCheckpoints(folder)
        self._phase: WritesDecisions | None = None
        self._coming: Iterator[WritesDecisions] = iter(())
        self._starting: dict[str, int] = {}  # the steps that attempts are to start from, until they have begun
        self._out_of_memory: set[str] = set()  # trials whose last attempt ended so
        self.stop_name = f"h2h-stop-{uuid.uuid4().hex}"
        self._stop = start_stop_signal(self.stop_name)

    def interrupt(self) -> None:
        """Ask the running trials to save and stop, and start no more. Safe in a signal handler. Those that have not
        begun end at Tune's next step: they have nothing to save, and might wait for a place."""
        self.interrupted = True
        self._stop.request.remote()

    def tell_stopping(self) -> None:
        """Write, once, that what runs is saved and stopped; a signal handler must not."""
        if self.recorder.history.stop is None:
            with suppress(InputError):  # which may be why
                self.recorder.record(StopRecord(status="begin"))

    def run(self, phases: Iterator[PhaseOfTrials]) -> None:
        """Run phase after phase, in the same processes, as starting them takes seconds; returns when all have ended, or
        trials were saved after :meth:`interrupt`. The next phase is asked for when nothing of one is left to start and
        nothing runs. Raises FullDiskError if there is no space left for the ledger."""
        from orchestrator.execution.tune_run import run_with_tune

        self._coming = (WritesDecisions(phase, self.recorder.record) for phase in phases)
        self._phase = next(self._coming, None)
        self._pass_ended()
        if self._phase is not None:
            run_with_tune(self)
        if not self.finished:  # Tune ended by itself: what it left undone is no result
            self.interrupt()

    def _pass_ended(self) -> None:
        """Go on to the next phase that has trials to start, while none runs."""
        while self._phase is not None and self._phase.exhausted():
            self._phase = next(self._coming, None)

    @property
    def busy(self) -> bool:
        """Whether something runs, or the end of what ran is still to be written."""
        return bool(self.running or self._failing)

    @property
    def finished(self) -> bool:
        """Whether nothing runs, and nothing more is to be started."""
        if self.busy:
            return False
        if not self.interrupted and self._asked is None:
            self._pass_ended()
        return self.interrupted or (self._asked is None and (self._phase is None or self._phase.exhausted()))

    def next(self) -> PlannedTrial | None:
        """The next trial, of which it is written that it begins; None while there is none to start now."""
        if self.interrupted or self._phase is None:
            return None
        if self._asked is None and not self._phase.exhausted():
            self._asked = self._phase.next()
        planned = self._asked
        if planned is None:
            return None
        # A run of its own has none at first; the storage would take time to say so.
        is_new = planned.attempt == 1 and planned.share is None
        start_step = 0 if is_new else self._checkpoints.step(planned.trial)
        if start_step is None:
            return None
        self._asked = None
        self.running[planned.trial] = planned
        self._begin(planned, start_step)
        return planned

    def _begin(self, planned: PlannedTrial, start_step: int) -> None:
        """Write that an attempt begins: what it has spent is known before its first report."""
        self._starting[planned.trial] = start_step
        self.recorder.record(
            TrialRecord(
                phase=planned.phase,
                arm=planned.arm,
                trial=planned.trial,
                attempt=planned.attempt,
                number=planned.number,
                seed=planned.seed,
                configuration=planned.configuration,
                amount=planned.config.budget.amount,
                share=planned.share,
                start_step=start_step,
                workers=self.workers.workers,
            )
        )

    def history_of(self, name: str) -> TrialHistory:
        """What the ledger has of a trial."""
        return self.recorder.history.trials[name]

    def waits(self, name: str) -> bool:
        """Whether a trial's attempt has been asked for, and not begun yet."""
        return name in self.running and self.history_of(name).attempt_records[-1].begun is None

    def begun(self, record: BegunRecord) -> None:
        """Write down where an attempt's workers really start, and with what spending. Where that is not the newest
        checkpoint, as it was damaged, it is another attempt: what is beyond the step is rolled back."""
        name = record.trial
        if record.workers < self.workers.workers:
            self.recorder.event(f"{name} runs on {record.workers} of {self.workers.workers} workers")
        if self._starting.pop(name, None) != record.step:
            reason = f"its workers started again from step {record.step}"
            self._record_end(self.running[name], "interrupted", reason)
            planned = replace(self.running[name], attempt=record.attempt + 1)
            self.running[name] = planned
            self._begin(planned, record.step)
            del self._starting[name]
            record = record.model_copy(update={"attempt": planned.attempt})
        if self.history_of(name).floors is not None:  # the first are kept, and so is their file
            record = record.model_copy(update={"floors": None})
        self.recorder.record(record)

    def reported(self, measure: MeasureRecord) -> None:
        """Write a trial's report, unless the ledger has it."""
        if not _known(self.history_of(measure.trial), measure):
            self.recorder.record(measure)

    def prunes(self, measure: MeasureRecord) -> bool:
        """Write the report of a trial that goes on; whether it is not to."""
        self.reported(measure)
        assert self._phase is not None
        return self._phase.prunes(self.history_of(measure.trial), measure)

    def saved(self, measure: MeasureRecord) -> None:
        """Write that an attempt saved and stopped, as it was asked to; another goes on from there."""
        reason = f"saved at step {measure.step}" + ("" if self.interrupted else f", as {LEAVES}")
        if not self.interrupted:
            self.recorder.event(f"{measure.trial} is {reason}")
        self.ended(measure.trial, "interrupted", reason, saved=measure)

    def failed(self, name: str, failure: TrialFailure) -> None:
        """Write that an attempt failed, and start the trial again unless it would end the same."""
        if isinstance(failure, DiskFull):  # it would be so for every trial: none has failed for it
            self.full_disk = str(failure)
            self.ended(name, "interrupted", str(failure))
            self.interrupt()
            return
        hopeless = isinstance(failure, WrongInput)
        if isinstance(failure, OutOfMemory):
            hopeless = name in self._out_of_memory
            self._out_of_memory.add(name)
        else:
            self._out_of_memory.discard(name)
        self.ended(name, "lost" if isinstance(failure, Lost) else "failed", str(failure), again=not hopeless)

    def ended(
        self,
        name: str,
        outcome: AttemptOutcome,
        reason: str = "",
        *,
        again: bool = True,
        saved: MeasureRecord | None = None,
    ) -> None:
        """Write how an attempt ended and let the phase know; one that failed or was lost may be started ``again``. One
        that left a newer checkpoint than any attempt before it began from does not count: a machine that is taken away
        every few hours ends no long trial. Of one that ``saved`` itself only what it had spent is written."""
        if outcome in ("failed", "lost") and again:
            self._failing[name] = (self.running.pop(name), outcome, reason)
            return
        self._record_end(self.running[name], outcome, reason, saved)
        # Only now: what cannot be written is told to Tune as the trial's error, and is to be written then.
        del self.running[name]
        self._tell_phase(name, outcome)

    def settle(self) -> None:
        """Write how those attempts ended of which the storage has said by now how far they came; asked at each step of
        Tune's loop. Raises InputError: the storage is lost."""
        for name, (planned, outcome, reason) in list(self._failing.items()):
            step = self._checkpoints.step(name)
            if step is None:
                continue
            history = self.history_of(name)
            if step > history.furthest_start or history.stalls + 1 < self.attempts:
                outcome = "retried"
                self.recorder.event(f"{name} failed and is started again: {reason}")
            self._record_end(planned, outcome, reason)
            del self._failing[name]
            self._tell_phase(name, outcome)

    def _tell_phase(self, name: str, outcome: AttemptOutcome) -> None:
        assert self._phase is not None
        self._phase.ended(self.history_of(name), outcome)

    def _record_end(
        self, planned: PlannedTrial, outcome: AttemptOutcome, reason: str, saved: MeasureRecord | None = None
    ) -> None:
        self.recorder.record(
            EndRecord(
                phase=planned.phase,
                arm=planned.arm,
                trial=planned.trial,
                attempt=planned.attempt,
                outcome=outcome,
                reason=reason,
                spent=None if saved is None else saved.spent,
                overhead=None if saved is None else saved.overhead,
            )
        )


def _known(trial: TrialHistory, measure: MeasureRecord) -> bool:
    """Whether the ledger has the report: a trial that goes on repeats, in order, what may have been lost. A run whose
    budget buys no further step reports twice from its last one, with more yardsticks the second time."""
    if not trial.measures:
        return False
    last = trial.measures[-1]
    if measure.step == last.step:
        return measure.yardsticks.keys() <= last.yardsticks.keys()
    return measure.step < last.step


def start_stop_signal(name: str) -> Any:
    """What trials ask whether to stop, on this process's own machine. Ray places what needs no CPU on any: with that
    machine lost no trial could be asked to save itself, and none could begin."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0)(StopSignal).options(name=name, max_restarts=-1, scheduling_strategy=here).remote()
