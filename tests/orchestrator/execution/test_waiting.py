"""Which workers wait for room on the cluster, and why, is written once."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.execution import watches
from orchestrator.execution.watches import why_no_room

GPU, HEAD, SMALL = {"CPU": 4.0, "GPU": 1.0}, {"CPU": 0.0, "memory": 1e9}, {"CPU": 8.0}


@pytest.mark.parametrize(
    ("machines", "grows", "reason"),
    [
        ([], True, "the cluster has none yet"),
        ([HEAD, SMALL], True, "the cluster has none yet, its autoscaler is asked"),
        ([HEAD, SMALL], False, "has none, and does not grow.* resources.cpus_per_worker or resources.gpus_per_worker"),
        ([HEAD, {"CPU": 2.0, "GPU": 8.0}, SMALL], False, "has none"),
        ([HEAD, GPU], True, "in use, its autoscaler is asked for more$"),
        ([HEAD, GPU], False, "in use$"),
    ],
    ids=["no machine", "no GPU yet", "no GPU ever", "no machine has both", "full, and grows", "full"],
)
def test_the_reason(machines, grows, reason):
    assert re.search(reason, why_no_room(GPU, machines, grows=grows))


def test_only_what_waits_for_longer_than_a_look_is_written_and_once(monkeypatch):
    """Every trial waits for a moment."""
    said: dict[str, Any] = {"waiting": 0, "machines": [HEAD]}
    monkeypatch.setattr(watches, "cluster_grows", lambda: True)
    monkeypatch.setattr(watches, "_machines", lambda: said["machines"])
    groups: Any = SimpleNamespace(waiting_workers=lambda: said["waiting"])
    written: list[tuple[int, str]] = []
    history = SimpleNamespace(phase="search")
    recorder = SimpleNamespace(record=lambda r: written.append((r.workers, r.reason)), history=history)
    executor: Any = SimpleNamespace(recorder=recorder, workers=SimpleNamespace(resources=GPU))
    look = watches._waiting(executor, groups)
    for waiting in (0, 3, 0, 1, 3, 3, 3):
        said["waiting"] = waiting
        look()
    none = "the cluster has none yet, its autoscaler is asked"
    assert written == [(1, none), (3, none)]
    said["machines"] = [HEAD, GPU]
    said["waiting"] = 2
    look()
    assert written[2:] == [(2, "those of the cluster are in use, its autoscaler is asked for more")]
    for waiting in (0, 0):
        said["waiting"] = waiting
        look()
    assert written[3:] == [(0, "")]


def test_a_preparation_without_a_machine_waits_for_one(monkeypatch):
    said: dict[str, Any] = {"machines": [HEAD]}
    monkeypatch.setattr(watches, "cluster_grows", lambda: True)
    monkeypatch.setattr(watches, "_machines", lambda: said["machines"])
    groups: Any = SimpleNamespace(waiting_workers=lambda: 0)
    written: list[tuple[int, dict[str, float]]] = []
    history = SimpleNamespace(phase="prepare")
    recorder = SimpleNamespace(record=lambda r: written.append((r.workers, r.each)), history=history)
    executor: Any = SimpleNamespace(recorder=recorder, workers=SimpleNamespace(resources=GPU))
    look = watches._waiting(executor, groups)
    look()
    look()
    said["machines"] = [HEAD, SMALL]
    look()
    assert written == [(1, {"CPU": 1.0}), (0, {"CPU": 1.0})]
