"""What a killed trial leaves taken on the cluster is freed, and nothing else; what waits for room is known. Without
Ray's dashboard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import pytest

SCRIPT = """
import json
import sys
import time

from tests.helpers.ray import start_ray

start_ray(sys.argv[1])

import ray
from ray.util.placement_group import placement_group, placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from orchestrator.execution.placement_groups import PlacementGroups


@ray.remote(num_cpus=0)
class Trial:
    def make_group(self):
        group = placement_group([{"CPU": 0.4}])
        ray.get(group.ready())
        return group


@ray.remote(num_cpus=0.4)
class Worker:
    def works(self):
        return True


def place_worker(group):
    worker = Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    ray.get(worker.works.remote())
    return worker


trials = [Trial.remote() for _ in range(4)]
names = ("orphaned", "left", "working", "starting")
made = dict(zip(names, ray.get([trial.make_group.remote() for trial in trials])))
made["a user's own"] = placement_group([{"CPU": 0.25}])
ray.get(made["a user's own"].ready())
workers = [place_worker(made["working"]), place_worker(made["left"])]

groups = PlacementGroups({"CPU": 0.4})
late = trials[0].make_group.remote()  # there is no room for it
deadline = time.monotonic() + 30
while not groups.waiting_workers() and time.monotonic() < deadline:
    time.sleep(0.1)
waiting = [groups.waiting_workers()]
for trial in trials[:2]:
    ray.kill(trial)
time.sleep(1.0)
removed = [groups.remove_left() for _ in range(3)]
workers.append(place_worker(made["starting"]))
removed.append(groups.remove_left())
deadline = time.monotonic() + 30
while groups.waiting_workers() and time.monotonic() < deadline:
    time.sleep(0.1)
waiting.append(groups.waiting_workers())
print(json.dumps([waiting, removed, {name: placement_group_table(group)["state"] for name, group in made.items()}]))
"""


@pytest.mark.slow
def test_only_groups_that_nobody_works_in_are_removed(ray_cluster):
    """And those whose maker has ended, although somebody lives there. Not one whose workers come late, one that works,
    or a user's own in the same job.

    Another cluster runs on the machine, which Ray must not ask.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory(prefix="h2h-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, folder], env=environment, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    waiting, removed, states = json.loads(done.stdout.splitlines()[-1])
    assert waiting == [1, 0], "what waited was of the trial that was killed, or has the room of the orphan"
    assert removed == [0, 0, 0, 2]
    assert {name for name, state in states.items() if state == "REMOVED"} == {"orphaned", "left"}
    assert {name for name, state in states.items() if state == "CREATED"} == {"working", "starting", "a user's own"}
