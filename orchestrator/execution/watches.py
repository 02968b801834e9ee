"""What is watched while trials run: signals, the cluster's use, and devices that killed trials have left taken."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.state import list_actors, list_placement_groups
from ray.util.state.exception import RayStateApiException

from orchestrator.execution.executor import Executor
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import ResourcesRecord
from trainables.storage import FullDiskError

_REPEAT_SECONDS = 5.0


@contextmanager
def watching(executor: Executor) -> Iterator[None]:
    """While inside, all of it."""
    actions = [_resources(executor.recorder)]
    if executor.workers.launcher == "ray_train":
        actions.append(_placement_groups(executor.recorder, executor.workers.resources))
    with _signals(executor), _repeated(*actions):
        yield


@contextmanager
def _signals(executor: Executor) -> Iterator[None]:
    """Ctrl-C and SIGTERM save the running trials and stop; a second one, or one while none runs, stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1 or not executor.running:
            raise KeyboardInterrupt
        if sys.stderr is sys.__stderr__:  # else a dashboard draws there, which shows what the ledger says
            os.write(2, b"\nstopping: what runs is saved first; once more to stop at once\n")
        executor.interrupt()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _repeated(*actions: Callable[[], None]) -> Iterator[None]:
    """Meanwhile they are called now, and then every few seconds."""
    finished = threading.Event()

    def repeat() -> None:
        while not finished.is_set():
            for action in actions:
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
            # On a full disk the study's own next record ends the study.
            with suppress(FullDiskError):
                recorder.record(ResourcesRecord(cluster=now), flush=False)
        last = now

    return write


def _placement_groups(recorder: Recorder, worker_resources: Mapping[str, float]) -> Callable[[], None]:
    """Frees the devices that trials' killed processes have left taken."""
    groups = PlacementGroups(worker_resources)

    def free() -> None:
        if number := groups.remove_empty():
            with suppress(FullDiskError):
                recorder.event(f"placement groups of killed trials are removed, to free their devices: {number}")

    return free


_LOOKS = 4
"""In a row that find a group empty. Between its making and its workers' is a moment: with a look every few seconds,
never as many."""
_MOST = 10_000
"""Groups and actors that Ray lists at once, dead ones included; of more it lists none, and nothing is removed."""
_SECONDS = 10  # for it to answer


class PlacementGroups:
    """Placement groups of Ray Train that nobody works in any more, found by looking again and again.

    A trial's process that is killed while its workers start leaves its group to Ray, whose cleaner was not told of it
    yet and so never frees it (https://github.com/ray-project/ray/issues/62753): its devices would stay taken until the
    study ends. Meant are those of this process's job whose every bundle has the workers' ``CPU`` and ``GPU``; the job's
    others are its user's, or Ray Tune's.
    """

    def __init__(self, worker_resources: Mapping[str, float]) -> None:
        self._worker_resources = dict(worker_resources)
        context = ray.get_runtime_context()
        self._job = context.get_job_id()
        self._address = context.gcs_address  # else Ray looks for a cluster, and of several takes none
        self._empty: Counter[str] = Counter()

    def remove_empty(self) -> int:
        """Look once, remove the groups that have been empty for some looks, and tell how many."""
        made = [("creator_job_id", "=", self._job), ("state", "=", "CREATED")]
        living = [("job_id", "=", self._job), ("state", "!=", "DEAD")]
        try:
            groups = self._listed(list_placement_groups, made)
            actors = self._listed(list_actors, living)
        except (RayStateApiException, OSError):  # it cannot answer now, or this cluster has no dashboard
            return 0
        taken = {actor.placement_group_id for actor in actors}
        empty = {
            group.placement_group_id
            for group in groups
            if group.placement_group_id not in taken
            and all(bundle["unit_resources"] == self._worker_resources for bundle in group.bundles)
        }
        self._empty = Counter({name: self._empty[name] + 1 for name in empty})
        orphaned = [name for name, looks in self._empty.items() if looks >= _LOOKS]
        for name in orphaned:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))
            del self._empty[name]
        return len(orphaned)

    def _listed(self, list_all: Callable[..., list[Any]], filters: list[tuple[str, str, str]]) -> list[Any]:
        return list_all(self._address, filters=filters, detail=True, limit=_MOST, timeout=_SECONDS)
