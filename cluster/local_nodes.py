"""The worker nodes of a local cluster, which Ray's autoscaler adds and removes by this class.

They are Ray's own nodes of one machine, but each has a temporary folder of its own, which goes with it, as a machine's
disk does. In a shared one, every node that joins a job extracts the job's files anew, and so takes them from under a
worker that is starting on another node.
"""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from ray._private import parameter
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider

_PREFIX = "node-"


class LocalNodes(FakeMultiNodeProvider):  # type: ignore[misc]
    """Its configuration names, beside what Ray's own needs, the ``folder`` in which nodes have theirs."""

    def _create_node_with_resources_and_labels(self, *arguments: Any) -> None:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=self.provider_config["folder"])
        with self.lock:  # Ray's own asks for no folder; nothing else in this process makes such parameters
            shared = parameter.RayParams
            parameter.RayParams = partial(shared, temp_dir=folder)
            try:
                super()._create_node_with_resources_and_labels(*arguments)
            finally:
                parameter.RayParams = shared

    def _terminate_node(self, node: dict[str, Any]) -> None:
        super()._terminate_node(node)
        folder = Path(node["node"].get_temp_dir_path())
        if folder.name.startswith(_PREFIX):  # never the head's
            shutil.rmtree(folder, ignore_errors=True)
