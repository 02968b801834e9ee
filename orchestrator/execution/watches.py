"""What is watched while trials run: signals, Ray itself, the cluster's use, and placement groups."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import ray
from ray.exceptions import RayError

from orchestrator.execution.executor import Executor
from orchestrator.execution.placement_groups import PlacementGroups
from orchestrator.execution.ray_session import cluster_grows, reach
from orchestrator.execution.stopping import stop_signals_go_to
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import ResourcesRecord, WaitingRecord
from orchestrator.ledger.requests import Inbox
from trainables.corpora.preparation.ray_job import TASK_RESOURCES
from trainables.errors import InputError

_REPEAT_SECONDS = 5.0
HEAD_SECONDS = 45.0
"""For so long a head may be away: one with a database of its own comes back. After a minute Ray ends the process."""
_HEAD_POLL_SECONDS = 2.0


@contextmanager
def watching(executor: Executor, inbox: Inbox) -> Iterator[None]:
    """While inside, all of it, and what people ask the search to try."""
    groups = PlacementGroups(executor.workers.resources)
    actions = [_resources(executor.recorder), _waiting(executor, groups), inbox.look]
    if executor.workers.launcher == "ray_train":
        actions.append(_placement_groups(executor.recorder, groups))
    with _signals(executor), _ray_watched(executor), _repeated(*actions):
        yield


@contextmanager
def _signals(executor: Executor) -> Iterator[None]:
    """Ctrl-C and what else asks to stop saves the running trials and stops; a second one, or one while none runs, stops
    at once."""
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1 or not executor.busy:
            raise KeyboardInterrupt
        if sys.stderr is sys.__stderr__:  # else a dashboard draws there, which shows what the ledger says
            with suppress(OSError):  # the terminal was closed
                os.write(2, b"\nstopping: what runs is saved first; once more to stop at once\n")
        executor.interrupt()

    with stop_signals_go_to(handle):
        yield


@contextmanager
def _ray_watched(executor: Executor) -> Iterator[None]:
    """Meanwhile the loss of a part of Ray that this process cannot do without ends it, with what is to be done: Ray
    would end it too, in words of its own, or in none."""
    address = str(ray.get_runtime_context().gcs_address)
    finished, told = threading.Event(), threading.Lock()

    def end(lost: str, why: str) -> None:
        if finished.is_set() or not told.acquire(blocking=False):
            return
        error = InputError(
            lost,
            where=address,
            why=why,
            remedy=f"all but the last moments is saved; on a cluster that answers:  h2h resume {executor.folder}",
        )
        with suppress(OSError):  # the terminal was closed
            os.write(2, f"\nh2h: {error}\n".encode())
        executor.recorder.close()
        os._exit(1)  # whatever waits for Ray would wait on

    def watch_head() -> None:
        last = time.monotonic()
        while not finished.wait(_HEAD_POLL_SECONDS):
            if _answers(address):
                last = time.monotonic()
            elif time.monotonic() - last > HEAD_SECONDS:
                end("the head of the Ray cluster is lost", f"it has not answered for {HEAD_SECONDS:.0f} s")

    def watch_node(node: socket.socket) -> None:
        """The next access to its object store would end this process without a word."""
        with suppress(OSError):
            node.recv(1)  # there is never any: it waits for the end
        if ray.is_initialized():  # else a notebook's cell has shut Ray down
            end("the Ray node that this study runs on is lost", "its own process, the raylet, has ended")

    with _object_store() as node:
        threading.Thread(target=watch_head, name="head", daemon=True).start()
        threading.Thread(target=watch_node, args=(node,), name="node", daemon=True).start()
        try:
            yield
        finally:
            finished.set()


def _answers(address: str) -> bool:
    try:
        reach(address, _HEAD_POLL_SECONDS)
    except OSError:
        return False
    return True


@contextmanager
def _object_store() -> Iterator[socket.socket]:
    """A connection to that of the node that this process runs on: it lives as long as the node does."""
    here = ray.get_runtime_context().get_node_id()
    (path,) = (node["ObjectStoreSocketName"] for node in ray.nodes() if node["NodeID"] == here)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        try:
            yield connection
        finally:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes who waits for it


@contextmanager
def _repeated(*actions: Callable[[], None]) -> Iterator[None]:
    """Meanwhile they are called now, and then every few seconds; what the cluster does not answer is asked again."""
    finished = threading.Event()

    def repeat() -> None:
        while not finished.is_set():
            for action in actions:
                with suppress(RayError):  # of a head that is lost says another watch
                    action()
            finished.wait(_REPEAT_SECONDS)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _resources(recorder: Recorder) -> Callable[[], None]:
    """Writes what of the cluster is in use, if that has changed."""
    last: dict[str, tuple[float, float]] | None = None

    def write() -> None:
        nonlocal last
        total, free = ray.cluster_resources(), ray.available_resources()
        kinds = [kind for kind in ("CPU", "GPU") if kind in total]
        now = {kind: (max(0.0, total[kind] - free.get(kind, 0.0)), total[kind]) for kind in kinds}
        if now != last:
            # Where nothing can be written the study's own next record ends the study.
            with suppress(InputError):
                recorder.record(ResourcesRecord(cluster=now))
        last = now

    return write


def _waiting(executor: Executor, groups: PlacementGroups) -> Callable[[], None]:
    """Writes which workers wait for room, and why, if that has changed: room that is there is taken within a look."""
    before, told = 0, WaitingRecord(workers=0, each={}, reason="")

    def write() -> None:
        nonlocal before, told
        machines, each = _machines(), executor.workers.resources
        if executor.recorder.history.phase == "prepare":
            each = TASK_RESOURCES
            now = 0 if _fits(each, machines) else 1
        else:
            now = groups.waiting_workers()
        workers, before = min(before, now), now
        reason = why_no_room(each, machines, grows=cluster_grows()) if workers else ""
        if (workers, reason) != (told.workers, told.reason):
            told = WaitingRecord(workers=workers, each=each, reason=reason)
            with suppress(InputError):
                executor.recorder.record(told)

    return write


def _machines() -> list[dict[str, float]]:
    """What each of the cluster's has, by Ray's kinds of resources."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _fits(each: Mapping[str, float], machines: Sequence[Mapping[str, float]]) -> bool:
    """Whether there is a machine that a worker would fit on, were it free."""
    return any(all(machine.get(kind, 0.0) >= amount for kind, amount in each.items()) for machine in machines)


def why_no_room(each: Mapping[str, float], machines: Sequence[Mapping[str, float]], *, grows: bool) -> str:
    """Why a worker that takes ``each`` cannot be placed now, for a person."""
    if _fits(each, machines):
        return f"those of the cluster are in use{', its autoscaler is asked for more' if grows else ''}"
    if grows:
        return "the cluster has none yet, its autoscaler is asked"
    keys = " or ".join(f"resources.{kind.lower()}s_per_worker" for kind in sorted(each))
    return f"the cluster has none, and does not grow by itself; a smaller {keys} asks for less"


def _placement_groups(recorder: Recorder, groups: PlacementGroups) -> Callable[[], None]:
    """Frees the devices that trials' killed processes have left taken."""

    def free() -> None:
        if number := groups.remove_left():
            with suppress(InputError):
                recorder.event(f"placement groups of killed trials are removed, to free their devices: {number}")

    return free
