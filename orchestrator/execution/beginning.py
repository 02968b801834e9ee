"""What a session of a study begins with: its record, and what runs its trials."""

import os
import platform
from collections.abc import Callable

from orchestrator.config.files import frozen_content, read_frozen
from orchestrator.config.folder import STUDY_FILE
from orchestrator.config.study import StudySpec
from orchestrator.execution.executor import Executor
from orchestrator.ledger import records
from orchestrator.ledger.protocol import design_of, protocol, protocol_digest, study_digest
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.registry import others, register
from orchestrator.planning.machine import Machine
from orchestrator.planning.preflight import energy_problem_here, require_measurable
from trainables.errors import InputError
from trainables.storage import Location
from trainables.training.environment import versions
from trainables.trial import WorkerConfig


def begin_session(recorder: Recorder, spec: StudySpec, folder: Location, machine: Machine, *, on_cluster: bool) -> None:
    """Record that a session begins. Raises InputError if the budget's unit or the cap's is not measured there."""
    gpus = machine.gpus_per_worker(spec.resources)
    require_measurable(spec, gpus, _energy_problem_there if on_cluster else None)
    file = read_frozen(folder)
    fixed = protocol(frozen_content(file, str(folder / STUDY_FILE)))
    record = records.StudyRecord(
        name=spec.name,
        folder=str(folder),
        digest=study_digest(file),
        protocol=fixed,
        protocol_digest=protocol_digest(fixed),
        design=design_of(spec),
        versions=versions(),
        machine=records.MachineRecord(system=platform.platform(), cpus=os.cpu_count()),
        usd_per_hour=spec.resources.usd_per_hour(gpus),
    )
    first = recorder.history.first
    if first is None:
        earlier, _ = others(folder.parent, record)
        first = record = record.model_copy(update={"earlier": earlier})
    recorder.record(record, durable=True)
    register(folder.parent, first)  # only now: what was cut off between the two is registered by its next session


def _energy_problem_there(gpus_per_worker: int, cpus: int) -> InputError | None:
    """As :func:`energy_problem_here`, of a machine of the cluster that has room for a worker."""
    import ray

    task: Callable[..., object] = ray.remote(num_cpus=cpus, num_gpus=gpus_per_worker)(energy_problem_here).remote
    problem: InputError | None = ray.get(task(gpus_per_worker, cpus))
    return problem


def make_executor(
    recorder: Recorder, spec: StudySpec, folder: Location, machine: Machine, *, keeps_processes: bool
) -> Executor:
    """What runs the study's trials, as many at a time as there is room for."""
    resources, gpus = spec.resources, machine.gpus_per_worker(spec.resources)
    workers = WorkerConfig.model_validate(
        resources.model_dump(include={"workers", "minimum_workers", "cpus_per_worker"})
        | {
            "launcher": machine.launcher(resources),
            "gpus_per_worker": gpus,
            "usd_per_hour": resources.usd_per_hour(gpus),
            "checkpoint_seconds": 60 * resources.checkpoint_minutes,
        }
    )
    slots = machine.slots(resources, gpus)
    if not keeps_processes and not gpus and resources.gpus_per_worker is None:
        recorder.event("trials run on CPUs: the cluster has no GPU (--set resources.gpus_per_worker=1 waits for some)")
    concurrent = 1 if resources.exclusive else resources.concurrent_trials or max(1, slots)
    return Executor(recorder, folder, workers, concurrent, resources.attempts, keeps_processes=keeps_processes)
