"""What a machine or a cluster has."""

from __future__ import annotations

import os
from typing import NamedTuple

from orchestrator.config.resources import ResourcesSpec


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

    def slots(self, resources: ResourcesSpec, gpus_per_worker: int) -> int:
        """Trials that it has room for at a time."""
        slots = self.cpus // (resources.workers * resources.cpus_per_worker)
        if gpus_per_worker:
            slots = min(slots, self.gpus // (resources.workers * gpus_per_worker))
        return slots


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
