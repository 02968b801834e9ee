"""Tells a running cluster how far it may grow: ``python limits.py ADDRESS RESOURCES_OF_A_NODE MOST_NODES``.

Ray keeps this where Ray Train, Ray Data and ``h2h`` look for it; its own autoscaler does not write it.
"""

import json
import sys
from typing import Any

from ray import _raylet
from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig


def tell_limits(address: str, resources: dict[str, int], most_nodes: int) -> None:
    """Write down, at the control service ``HOST:PORT``, that up to so many nodes of these resources may be added."""
    group = NodeGroupConfig(name="worker", resources=resources, max_count=most_nodes)
    config = ClusterConfig(node_group_configs=[group])
    raylet: Any = _raylet  # compiled, and without types
    key, space = raylet.GCS_AUTOSCALER_CLUSTER_CONFIG_KEY, raylet.GCS_AUTOSCALER_STATE_NAMESPACE
    client = raylet.GcsClient(address=address)
    client.internal_kv_put(key.encode(), config.SerializeToString(), True, space.encode())


if __name__ == "__main__":
    tell_limits(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))
