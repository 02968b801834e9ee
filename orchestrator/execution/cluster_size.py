"""What the connected cluster has, or may come to have."""

from __future__ import annotations

import json
import sys

from orchestrator.config.resources import ResourcesSpec
from orchestrator.planning.machine import Machine
from trainables.errors import InputError


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


def _grows() -> bool:
    """Whether an autoscaler adds nodes: else Ray's monitor calls every node's type after its id."""
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.experimental.internal_kv import _internal_kv_get

    status = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
    report = json.loads(status).get("autoscaler_report") if status else None
    types = (report or {}).get("active_nodes") or {}
    return any(not name.startswith(("node_", "local.cluster.node")) for name in types)
