"""The trainable: a trial inside Ray Tune, directly or as a Ray Train run of several workers.

Both run the same Ray-free loop and report the same measures; the direct way has no worker processes to start. What
trains is imported where a trial runs: the study's own process needs but the names here.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from trainables.config import Config
from trainables.errors import InputError
from trainables.object_store import Patience
from trainables.storage import FullDiskError, Location
from trainables.training.config import TrialConfig

if TYPE_CHECKING:
    from trainables.training.energy import EnergyCounter
    from trainables.training.world import World

_STOP_POLL_SECONDS = 0.5
_REUSE_SECONDS = 600  # a stopped trial may take so long to write its checkpoint: then its process can be used again
LEAVES = "its machine is taken away"
RAY_OUT_OF_MEMORY = "low on memory"  # what Ray's memory monitor writes of a worker that it killed
RAY_LOST = (
    "ActorDiedError",
    "ActorUnavailableError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectLostError",
    "OwnerDiedError",
    "RayActorError",
    "WorkerCrashedError",
    "WorkerHealthCheckFailedError",
)
"""Ray's errors where a process or machine went away (``ray.exceptions``; the last one is Ray Train's)."""


class TrialFailure(Exception):  # noqa: N818
    """Why a trial cannot go on, in one line: the ledger's reason."""


class OutOfMemory(TrialFailure):
    """Another attempt may find more memory free; after the same again none will."""


class WrongInput(TrialFailure):
    """An :class:`InputError` met while running: every attempt would end with it."""


class Lost(TrialFailure):
    """What the trial ran on went away: its process, its machine, the storage."""


class DiskFull(TrialFailure):
    """There is no space for a checkpoint: when there is the trial goes on from the one before."""


class WorkerConfig(Config):
    """On what one trial runs."""

    launcher: Literal["direct", "ray_train"]
    """``direct``: in the Tune function's own process. ``ray_train``: a TorchTrainer's workers."""
    workers: int  # that train one model together; with ``minimum_workers``, at most
    minimum_workers: int | None = None
    """An attempt starts on as many workers as there is room for, down to so many; None: on ``workers`` only."""
    cpus_per_worker: float
    gpus_per_worker: float
    usd_per_hour: float | None = None  # price of a worker; None where there is none
    checkpoint_seconds: float = 300.0  # between two checkpoints, at most

    @property
    def resources(self) -> dict[str, float]:
        """Of one worker, in Ray's words."""
        gpus = {"GPU": self.gpus_per_worker} if self.gpus_per_worker else {}
        return {"CPU": self.cpus_per_worker} | gpus


class StopSignal:
    """An actor (made with ``num_cpus=0``) through which a study asks its running trials to save and stop."""

    _requested = False

    def request(self) -> None:
        """Ask the running trials to save and stop."""
        self._requested = True

    def requested(self) -> bool:
        """Whether somebody asked."""
        return self._requested


def trainable(config: dict[str, Any]) -> None:
    """A Tune function. It reports ``{"report": JSON}``, of a :class:`trainables.training.state.Report`. ``config`` has
    ``trial`` and ``workers``, the records of :class:`TrialConfig` and :class:`WorkerConfig`; ``folder``, the URI of the
    study's folder; ``stop``, the name of a :class:`StopSignal` actor; ``known_step``, the step of the last report that
    the ledger has; ``session``, the study's, and ``attempt``, the trial's, by their numbers.

    The first report has the status ``begun`` and measures the step that the workers start from, their number, what the
    trial has spent up to that step, and this attempt's overhead so far. Raises TrialFailure for a reason that is known.
    """
    import torch
    from ray import tune

    from trainables.training.world import World

    # Here, as the processes of a cluster know nothing of the study's environment; Tune asks once the trial is stopped.
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", str(_REUSE_SECONDS))
    workers = WorkerConfig.model_validate(config["workers"])
    if workers.launcher == "ray_train":
        _fit_with_ray_train(config, workers)
        return
    for report in _reports(config, World(device=torch.device("cuda" if workers.gpus_per_worker > 0 else "cpu"))):
        tune.report(report)
    if _machine_leaves():
        raise Lost(LEAVES)  # Tune would keep the process for other trials


def _reports(config: dict[str, Any], world: World) -> Iterator[dict[str, Any]]:
    from trainables.corpora.stream.packed import PackedCorpus
    from trainables.corpora.stream.token_stream import TokenStream, ray_data_batches
    from trainables.training.checkpoint import Checkpoints
    from trainables.training.checkpoint_record import AttemptOrder
    from trainables.training.environment import environment
    from trainables.training.loop import Trial

    Patience.seconds = Patience.FOR_STUDIES
    trial_config = TrialConfig.model_validate(config["trial"])
    order = AttemptOrder(config["session"], config["attempt"])
    checkpoints = Checkpoints(Location(config["folder"]) / "trials" / trial_config.trial, order)
    with _explained(), _asking(config["stop"], world) as should_stop:
        corpus = PackedCorpus(Location(trial_config.corpus))
        stream = TokenStream(corpus, trial_config.seed, trial_config.alpha, trial_config.maximum_repetition)
        workers = WorkerConfig.model_validate(config["workers"])
        energy, price = _energy(trial_config, workers, world), workers.usd_per_hour
        folder = Location(config["folder"]) if trial_config.split == "test" else None
        trial = Trial(
            trial_config,
            stream,
            checkpoints,
            world,
            ray_data_batches,
            should_stop,
            energy,
            price,
            study_folder=folder,
            checkpoint_seconds=workers.checkpoint_seconds,
        )
        floors = trial.measure_floors()
        start = {
            "built": trial.built().model_dump(),
            "environment": environment().model_dump(),
            "floors": floors and floors.model_dump(),
            "step": trial.start_step,
            "workers": world.size,
            "spent": trial.billing.spent.record(),
            "overhead": dict(trial.meter.seconds),
        }
        yield {"report": json.dumps({"status": "begun", "measure": start})}
        for report in trial.run(config["known_step"]):
            # As text: Tune would flatten nested values.
            yield {"report": json.dumps(report.record(), allow_nan=False)}


def _energy(trial: TrialConfig, workers: WorkerConfig, world: World) -> EnergyCounter | None:
    """The counter of this worker's device; None where the machine has none and the budget needs none."""
    from trainables.training.energy import energy_counter

    try:
        return energy_counter(world.device, workers.cpus_per_worker)
    except InputError:
        if trial.budget.unit == "joules":
            raise
        return None


@contextmanager
def _explained() -> Iterator[None]:
    """Failures with a known cause become :class:`TrialFailure` s."""
    from trainables.training.checkpoint_record import SupersededError

    try:
        yield
    except FullDiskError as error:
        raise DiskFull(f"{error.what} ({error.where})") from error
    except InputError as error:
        raise WrongInput("; ".join(line.strip() for line in str(error).splitlines())) from error
    except SupersededError as error:
        raise Lost(str(error)) from error
    except PermissionError as error:
        raise WrongInput(f"the storage refuses: {_first_line(str(error))}") from error
    except OSError as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            raise  # the program's
        raise Lost(f"the storage failed: {_first_line(str(error))}") from error
    except (MemoryError, RuntimeError) as error:
        import torch

        # torch's CPU allocator has no exception of its own.
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise out_of_memory(str(error)) from error
        raise


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def out_of_memory(message: str) -> OutOfMemory:
    """The failure, with the first line of the ``message`` and the remedy."""
    remedy = "a smaller training.micro_batch_sequences, or training.activation_checkpointing"
    return OutOfMemory(f"out of memory ({_first_line(message)}); remedy: {remedy}")


def failure_of(workers: Mapping[int, BaseException]) -> TrialFailure:
    """The failure that tells most of those of several workers, by rank: one's end makes others fail in collectives."""
    for kind in (WrongInput, DiskFull, OutOfMemory, Lost):
        for error in workers.values():
            if isinstance(error, kind):
                return error
    if killed := [str(error) for error in workers.values() if RAY_OUT_OF_MEMORY in str(error)]:
        return out_of_memory(killed[0])
    gone = {rank: error for rank, error in workers.items() if type(error).__name__ in RAY_LOST}
    rank, error = min((gone or workers).items())
    if gone:
        return Lost(f"worker {rank}: {why_lost(str(error))}")
    lines = str(error).strip().splitlines() or [""]
    return TrialFailure(f"worker {rank}: {type(error).__name__}: {lines[-1]}")


def why_lost(text: str) -> str:
    """A line of Ray's text of why a process or machine went away; in words of our own where it speaks of its own parts
    or calls."""
    if "node was terminated" in text:
        return "its machine was lost" + (", as it did not answer" if "heartbeats" in text else "")
    if "is unavailable" in text:
        return "its process did not answer"
    if "worker process has died" in text:
        return "its process was killed, or crashed"
    lines = text.strip().splitlines() or ["its process ended"]
    return lines[-1].strip()


@contextmanager
def _asking(stop: str, world: World) -> Iterator[Callable[[], bool]]:
    """Asks in the background whether the study stops, or this machine is to be taken away; gives all workers the same
    answer at the same step."""
    import ray
    from ray.exceptions import RayError

    signal = ray.get_actor(stop)
    asked, finished = threading.Event(), threading.Event()

    def poll() -> None:
        while not finished.wait(_STOP_POLL_SECONDS) and not asked.is_set():
            told = False
            with suppress(RayError):  # where the study's own process is gone Ray ends this one
                told = ray.get(signal.requested.remote())
            if told or _machine_leaves():
                asked.set()

    threading.Thread(target=poll, daemon=True).start()
    calls = count(1)

    def should_stop() -> bool:
        return world.any_asks(asked.is_set(), next(calls))

    try:
        yield should_stop
    finally:
        finished.set()


def _machine_leaves() -> bool:
    """Whether it was told that this machine is taken away soon: nothing begins there any more."""
    import ray
    from ray._private.state import state

    return ray.get_runtime_context().get_node_id() in state.get_draining_nodes()


def _train_worker(config: dict[str, Any]) -> None:
    """What every Ray Train worker runs."""
    import ray.train
    import ray.train.torch

    from trainables.training.world import World

    context = ray.train.get_context()
    world = World(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    for report in _reports(config, world):
        ray.train.report(report)


def _fit_with_ray_train(config: dict[str, Any], workers: WorkerConfig) -> None:
    from ray.train import FailureConfig, PreemptionError, RunConfig, ScalingConfig, WorkerGroupError
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    with tempfile.TemporaryDirectory(prefix="h2h-ray-train-") as scratch:
        trainer = TorchTrainer(
            _train_worker,
            train_loop_config=config,
            scaling_config=ScalingConfig(
                num_workers=(workers.minimum_workers, workers.workers) if workers.minimum_workers else workers.workers,
                # Workers that are whole are left to work: a new number of them starts from the last checkpoint.
                elastic_resize_monitor_interval_s=math.inf,
                use_gpu=workers.gpus_per_worker > 0,
                resources_per_worker=workers.resources,
            ),
            run_config=RunConfig(
                name=f"{config['trial']['trial']}-{config['attempt']}",
                # A trial goes on from its own checkpoints. Of Ray Train nothing is kept: in the study's folder it asked
                # the storage for its own sake, without our patience.
                storage_path=scratch,
                callbacks=[TuneReportCallback()],
                # Our own attempts repeat it, with as many workers as there is then room for.
                failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),
            ),
        )
        try:
            trainer.fit()
        except PreemptionError as error:  # it was told, and taken away before all workers had saved
            raise Lost(LEAVES) from error
        except WorkerGroupError as error:
            raise failure_of(error.worker_failures) from error
