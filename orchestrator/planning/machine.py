"""What a machine or a cluster has."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Literal, NamedTuple

from orchestrator.config.resources import ResourcesSpec
from trainables.errors import InputError


class Machine(NamedTuple):
    """What trials can be placed on."""

    cpus: int
    gpus: int

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        return cls(len(affinity) if affinity else os.cpu_count() or 1, _num_gpus())

    def gpus_per_worker(self, resources: ResourcesSpec) -> int:
        """What the study wants, or one where there is any."""
        wanted = resources.gpus_per_worker
        return wanted if wanted is not None else min(1, self.gpus)

    def launcher(self, resources: ResourcesSpec) -> Literal["direct", "ray_train"]:
        """How trials start on it."""
        if resources.launcher != "auto":
            return resources.launcher
        return "direct" if resources.workers == 1 and not self.gpus_per_worker(resources) else "ray_train"

    def slots(self, resources: ResourcesSpec, gpus_per_worker: int) -> int:
        """Trials that it has room for at a time."""
        slots = self.cpus // (resources.workers * resources.cpus_per_worker)
        if gpus_per_worker:
            slots = min(slots, self.gpus // (resources.workers * gpus_per_worker))
        return slots


def require_whole_ray(what: str, where: str) -> None:
    """Raises InputError if Ray's dashboard and job server, which ``what`` needs, are not installed here."""
    if find_spec("aiohttp_cors") is None:
        remedy = "pip install 'headtohead[cluster]'"
        raise InputError(f"{what} needs all of Ray", where=where, why="a part is not installed", remedy=remedy)


def _num_gpus() -> int:
    """NVIDIA's, by the driver's own library: torch would take seconds to say the same."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")])
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:  # not installed where there can be none
        return 0
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
