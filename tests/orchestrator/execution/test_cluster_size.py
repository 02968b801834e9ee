"""How many trials a cluster has room for, above all one that has not grown yet."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private.state import state
from ray.experimental import internal_kv

from orchestrator.config.resources import ResourcesSpec
from orchestrator.execution import beginning
from orchestrator.execution.beginning import make_executor
from orchestrator.execution.ray_session import cluster_machine
from orchestrator.planning.machine import Machine
from trainables.errors import InputError
from trainables.storage import Location


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Ray says of one: its resources now, the most that it may have, and the types of its nodes."""
    said: dict[str, Any] = {"now": {"CPU": 2.0}, "most": None, "nodes": {}}
    monkeypatch.setattr(ray, "cluster_resources", lambda: said["now"])
    monkeypatch.setattr(state, "get_max_resources_from_cluster_config", lambda: said["most"])

    def status(key: object) -> bytes | None:
        nodes = said["nodes"]
        return None if nodes is None else json.dumps({"autoscaler_report": {"active_nodes": nodes}}).encode()

    monkeypatch.setattr(internal_kv, "_internal_kv_get", status)
    return said


def resources(**given: int) -> ResourcesSpec:
    return ResourcesSpec.model_validate(given)


@pytest.mark.parametrize(
    "nodes", [None, {}, {"node_0123abc": 2}, {"local.cluster.node": 1}], ids=["no monitor", "none", "static", "local"]
)
def test_a_cluster_that_stays_as_it_is(cluster: dict[str, Any], nodes: dict[str, int] | None) -> None:
    cluster |= {"now": {"CPU": 48.0, "GPU": 4.0, "memory": 1e9}, "nodes": nodes}
    assert cluster_machine(resources()) == Machine(48, 4)


def test_a_cluster_that_scales_from_zero_is_as_large_as_it_may_become(cluster: dict[str, Any]) -> None:
    """Else one trial would run at a time for the whole study, and on CPUs although GPUs would come."""
    cluster |= {"now": {"CPU": 0.0}, "most": {"CPU": 64, "GPU": 8}, "nodes": {"ray.head.default": 1}}
    machine = cluster_machine(resources())
    assert machine == Machine(64, 8)
    gpus = machine.gpus_per_worker(resources())
    assert (gpus, machine.slots(resources(), gpus)) == (1, 8)


def test_a_head_with_more_than_its_workers_counts_too(cluster: dict[str, Any]) -> None:
    cluster |= {"now": {"CPU": 100.0}, "most": {"CPU": 64}, "nodes": {"ray.head.default": 1}}
    assert cluster_machine(resources()) == Machine(100, 0)


@pytest.mark.parametrize("most", [1e30, float(2**80)])
def test_a_cluster_without_a_limit(cluster: dict[str, Any], most: float) -> None:
    cluster |= {"most": {"CPU": most}, "nodes": {"worker": 1}}
    assert cluster_machine(resources()).cpus > 10**9


@pytest.mark.parametrize(
    ("given", "left_open"),
    [
        ({}, ["concurrent_trials", "gpus_per_worker"]),
        ({"concurrent_trials": 4}, ["gpus_per_worker"]),
        ({"gpus_per_worker": 0}, ["concurrent_trials"]),
        ({"concurrent_trials": 4, "gpus_per_worker": 1}, []),
    ],
)
def test_a_cluster_that_grows_nobody_knows_how_far(
    cluster: dict[str, Any], given: dict[str, int], left_open: list[str]
) -> None:
    """What a trial gets and how many there may be must be said: the rest of the cluster would stay idle."""
    cluster |= {"now": {"CPU": 2.0}, "most": None, "nodes": {"ray.head.default": 1, "gpu_worker": 3}}
    if not left_open:
        assert cluster_machine(resources(**given)) == Machine(2, 0)
        return
    with pytest.raises(InputError, match="may grow") as caught:
        cluster_machine(resources(**given))
    assert caught.value.where == ", ".join(f"resources.{key}" for key in left_open)
    assert "2 CPUs and 0 GPUs now" in caught.value.why
    for key in ("concurrent_trials", "gpus_per_worker"):
        assert (f"--set resources.{key}=NUMBER" in caught.value.remedy) == (key in left_open)


@pytest.mark.parametrize(
    ("gpus", "given", "own", "said"),
    [(0, {}, False, True), (0, {}, True, False), (0, {"gpus_per_worker": 0}, False, False), (8, {}, False, False)],
    ids=["none yet", "this machine", "as asked for", "there are"],
)
def test_a_study_that_trains_on_the_cpus_of_a_cluster_says_so(
    monkeypatch: pytest.MonkeyPatch, gpus: int, given: dict[str, int], own: bool, said: bool
) -> None:
    """Ray may know of no GPU only because the autoscaler has not reported yet."""
    monkeypatch.setattr(beginning, "Executor", lambda *_, **__: None)
    events: list[str] = []
    recorder: Any = SimpleNamespace(event=events.append)
    spec: Any = SimpleNamespace(resources=resources(**given))
    machine = Machine(16, gpus)
    make_executor(recorder, spec, Location("/studies/a"), machine, keeps_processes=own)
    assert len(events) == said
    for event in events:
        assert "trials run on CPUs" in event
        assert "resources.gpus_per_worker=1" in event
