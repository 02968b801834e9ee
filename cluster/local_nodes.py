"""The worker nodes of a local cluster, which Ray's autoscaler adds and removes by this class.

They are Ray's own nodes of one machine, but each has a temporary folder of its own, which goes with it, as a machine's
disk does. In a shared one, every node that joins a job extracts the job's files anew, and takes them away under a
worker that starts elsewhere.
"""

import shutil
import tempfile
from functools import partial
from typing import Any

from ray._private import parameter
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class LocalNodes(FakeMultiNodeProvider):  # type: ignore[misc]
    """Its configuration names, beside what Ray's own needs, the ``folder`` in which nodes have theirs."""

    def _create_node_with_resources_and_labels(self, *arguments: Any) -> None:
        folder = tempfile.mkdtemp(prefix="node-", dir=self.provider_config["folder"])
        with self.lock:  # Ray's own asks for no folder; nothing else in this process makes such parameters
            shared = parameter.RayParams
            parameter.RayParams = partial(shared, temp_dir=folder)
            try:
                super()._create_node_with_resources_and_labels(*arguments)
            finally:
                parameter.RayParams = shared

    def _terminate_node(self, node: dict[str, Any]) -> None:
        super()._terminate_node(node)
        shutil.rmtree(node["node"].get_temp_dir_path(), ignore_errors=True)
