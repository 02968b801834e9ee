"""What trials ask whether to stop lives where the study's own process does: no lost machine takes it away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.nodes import Nodes

SCRIPT = """
import sys
import ray
from ray._private.state import actors
from orchestrator.execution.executor import start_stop_signal

ray.init(sys.argv[1], logging_level="ERROR")
signals = [start_stop_signal(f"stop-{number}") for number in range(12)]
ray.get([signal.requested.remote() for signal in signals])
print(ray.get_runtime_context().get_node_id(), {actor["Address"]["NodeID"] for actor in actors().values()})
"""


@pytest.mark.slow
def test_it_is_on_the_studys_own_machine(tmp_path: Path) -> None:
    """Ray would place each on any of the two."""
    with Nodes(tmp_path) as nodes:
        nodes.add()
        nodes.add()
        command = [sys.executable, "-c", SCRIPT, nodes.address]
        done = subprocess.run(command, capture_output=True, text=True, env=nodes.environment, timeout=300)
    assert done.returncode == 0, done.stderr
    own, _, places = done.stdout.splitlines()[-1].partition(" ")
    assert places == repr({own})
