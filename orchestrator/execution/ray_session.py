"""The connection to a Ray cluster, or a cluster of this machine's own; and what it has, or may come to have."""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from orchestrator.config.resources import ResourcesSpec
from orchestrator.execution.privacy import LOOPBACK_ONLY, ensure_private_token, free_port, private_ray_folder
from orchestrator.execution.stopping import stopped_in_order
from orchestrator.planning.machine import Machine
from trainables.errors import InputError

ANSWER_SECONDS = 5.0  # a cluster that is there takes a connection within them

_SLOW_START = "timed out during startup"  # in what Ray raises where its own processes have not started in time

SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": str(10**9),  # the ledger is the state: Tune need not save its own
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": "1",  # else Tune starts a trial whose machine was taken away, as we do
}
"""Ray reads these when it is imported or started."""

SYSTEM_SETTINGS = {
    # Processes that gather data are idle between trials; starting them anew costs each trial a second or two.
    "idle_worker_killing_time_threshold_ms": 60_000,
    # A list of all that was ever asked of a process, for Ray's own pages: a kilobyte a trial in the driver.
    "task_events_report_interval_ms": 0,
}
"""Of a cluster of this machine's own."""


def ray_address(given: str | None) -> str | None:
    """The Ray cluster to connect to: ``given``, else of ``RAY_ADDRESS``; None, and Ray's own word ``local``: this
    machine's own. Raises InputError if it is no HOST:PORT, or nothing answers there, where Ray itself would wait for
    minutes."""
    address = given or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        return None
    if address == "auto":
        return address
    if "://" in address:
        job_server = address.startswith(("http://", "https://"))
        raise InputError(
            f"{address} is {'a job server' if job_server else 'no cluster that a study can run on'}",
            where="--address" if given else "RAY_ADDRESS",
            why="a study is led by a process on a machine of the cluster",
            remedy=(f"h2h submit STUDY --address {address}; " if job_server else "")
            + "on a machine of the cluster: --address auto, or HOST:PORT as `ray start` printed it",
        )
    try:
        reach(address, ANSWER_SECONDS)
    except (OSError, ValueError, OverflowError) as error:  # no name, no number, no port
        raise _no_cluster(address, str(error)) from error
    return address


def reach(address: str, seconds: float) -> None:
    """Connect to HOST:PORT, and leave. Raises OSError where nothing answers, ValueError or OverflowError where that is
    no port."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()


def _no_cluster(address: str, why: str) -> InputError:
    return InputError(
        f"no Ray cluster answers at {address}",
        where="--address, or RAY_ADDRESS",
        why=why,
        remedy="HOST:PORT as `ray start` printed it; without an address the study runs on this machine",
    )


@contextmanager
def ray_session(address: str | None, machine: Machine, *, dashboard: bool) -> Iterator[None]:
    """Connect to the cluster, or (address None) start one of this machine's own, on the loopback only, with Ray's
    ``dashboard`` where its state is asked for; a process has one connection, which its studies share. Raises InputError
    if no cluster answers, or Ray does not start."""
    for name, value in (SETTINGS | (LOOPBACK_ONLY if address is None else {})).items():
        os.environ.setdefault(name, value)
    with stopped_in_order(), _connection.used(lambda stack: _connect(stack, address, machine, dashboard)):
        yield


class _Connection:
    """To Ray, made for the first study of this process that needs it, and ended with the last; one that was there
    before stays."""

    def __init__(self) -> None:
        self._lock, self._users, self._end = threading.Lock(), 0, ExitStack()

    @contextmanager
    def used(self, connect: Callable[[ExitStack], None]) -> Iterator[None]:
        """Inside it is there. ``connect`` says on the stack how what it does is ended."""
        import ray

        with self._lock:
            if ours := self._users > 0 or not ray.is_initialized():
                if not ray.is_initialized():
                    self._end.close()  # of one that a notebook's cell has shut down
                    with ExitStack() as stack:
                        connect(stack)
                        self._end = stack.pop_all()
                self._users += 1
        try:
            yield
        finally:
            if ours:
                with self._lock:
                    self._users -= 1
                    if not self._users:
                        self._end.close()


_connection = _Connection()


def _connect(stack: ExitStack, address: str | None, machine: Machine, dashboard: bool) -> None:
    import ray

    stack.enter_context(_without_rays_exit())
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address is not None:
            ray.init(address=address, **quiet)
        else:
            ensure_private_token()
            folder = stack.enter_context(private_ray_folder())
            with _known_address():
                ray.init(
                    address="local",
                    num_cpus=machine.cpus,
                    # Ray Train's cleaner of placement groups asks the dashboard's state API.
                    include_dashboard=dashboard,
                    _node_ip_address="127.0.0.1",
                    _temp_dir=folder,
                    _system_config=SYSTEM_SETTINGS,
                    **quiet,
                )
    except ConnectionError as error:
        raise _no_cluster(str(address), str(error).splitlines()[0]) from error
    except Exception as error:
        if _SLOW_START not in str(error):
            raise
        raise InputError(
            "Ray did not start in time",
            where="this machine",
            why="it is too busy: Ray waits half a minute for its own processes",
            remedy="the same command again when less runs here; a study that has begun: h2h resume FOLDER",
        ) from error
    stack.callback(ray.shutdown)
    # The logs of machines that were lost, which Ray prints although the driver asked for none; the ledger says it.
    stack.enter_context(_silenced())


@contextmanager
def _without_rays_exit() -> Iterator[None]:
    """Ray would have SIGTERM end this process as it pleases, without a word."""
    from ray._private import utils

    takes = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda _: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = takes


@contextmanager
def _silenced() -> Iterator[None]:
    from ray._private import worker

    prints = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = prints


@contextmanager
def _known_address() -> Iterator[None]:
    """Processes of a cluster that is started inside know its address: of several on this machine, Ray Train's cleaner
    of placement groups finds none, and the devices of a trial that was killed would never be free again."""
    port = str(free_port())
    variables = {"RAY_GCS_SERVER_PORT": port, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    saved = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(saved)


def cluster_machine(resources: ResourcesSpec) -> Machine:
    """What trials can be placed on: of a cluster that grows, all that its autoscaler may add. Raises InputError if it
    may grow, does not say how far, and the study leaves open what follows from that."""
    import ray

    total = ray.cluster_resources()
    now = Machine(int(total.get("CPU", 0)), int(total.get("GPU", 0)))
    limits = _limits()
    if limits is not None:
        return Machine(max(now.cpus, limits.cpus), max(now.gpus, limits.gpus))
    if not _grows():
        return now
    left_open = [key for key in ("concurrent_trials", "gpus_per_worker") if getattr(resources, key) is None]
    if left_open:
        raise InputError(
            "this cluster may grow, and Ray does not tell how far",
            where=", ".join(f"resources.{key}" for key in left_open),
            why=f"it has {now.cpus} CPUs and {now.gpus} GPUs now; if that were all, the rest would stay idle",
            remedy="say what a trial gets and how many there may be: "
            + " ".join(f"--set resources.{key}=NUMBER" for key in left_open),
        )
    return now


def _limits() -> Machine | None:
    """What the autoscaler may make of the cluster, where it says so; as Ray Train and Ray Data ask it."""
    from ray._private.state import state

    most = state.get_max_resources_from_cluster_config()
    if not most:
        return None
    return Machine(*(min(int(most.get(kind, 0)), sys.maxsize) for kind in ("CPU", "GPU")))


def cluster_grows() -> bool:
    """Whether machines are added when work waits for them, as far as Ray tells."""
    return _limits() is not None or _grows()


def _grows() -> bool:
    """Whether an autoscaler adds nodes: else Ray's monitor calls every node's type after its id."""
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.experimental.internal_kv import _internal_kv_get

    status = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
    report = json.loads(status).get("autoscaler_report") if status else None
    types = (report or {}).get("active_nodes") or {}
    return any(not name.startswith(("node_", "local.cluster.node")) for name in types)
