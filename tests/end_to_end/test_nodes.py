"""A cluster's machines are lost, hang and are taken away, its head dies: the study comes to the undisturbed result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger.history import read_history
from orchestrator.ledger.records import BegunRecord, EndRecord, EventRecord, WaitingRecord
from orchestrator.ledger.segments import read_ledger
from orchestrator.verification.verify import verify
from tests.helpers.chaos import chaotic, outcome, undisturbed
from tests.helpers.nodes import Node, Nodes, wait_until
from tests.helpers.study import h2h
from trainables.storage import Location

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

NUM_FAULTS = int(os.environ.get("H2H_NODE_FAULTS", "6"))
"""Of each kind of launcher."""
NUM_HEAD_LOSSES = int(os.environ.get("H2H_HEAD_LOSSES", "2"))
TOKENS = 8 * 32 * 300
"""Of a trial: some seconds, so that most faults meet one."""
CHANGES: dict[str, Any] = {"budget": {"tokens": TOKENS}}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What nobody disturbed, on this machine alone."""
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), **CHANGES)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as cluster:
        cluster.add()
        cluster.add()
        yield cluster


def written(folder: Path, storage: Path, launcher: str) -> Path:
    """The study's file."""
    resources = {"launcher": launcher, "attempts": 1000, "concurrent_trials": 2, "checkpoint_minutes": 0.02}
    file = storage / f"{folder.name}.yaml"
    file.write_text(json.dumps(chaotic(folder.name, storage, **CHANGES, resources=resources)))
    return file


def start(nodes: Nodes, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "orchestrator.cli", *arguments, "--address", nodes.address]
    with log.open("ab") as lines:
        return subprocess.Popen(command, stdout=lines, stderr=lines, env=nodes.environment)


def lose(nodes: Nodes, node: Node, rng: random.Random) -> None:
    """And another comes in its place."""
    nodes.lose(node)
    nodes.add()


def hang(nodes: Nodes, node: Node, rng: random.Random) -> None:
    """For less, or for longer, than it takes until it counts as dead; then it goes on as if nothing had been."""
    node.send(signal.SIGSTOP)
    time.sleep(rng.uniform(1.0, 20.0))
    node.send(signal.SIGCONT)
    time.sleep(2.0)
    if node.address not in nodes.alive():
        lose(nodes, node, rng)


def take_away(nodes: Nodes, node: Node, rng: random.Random) -> None:
    """After it was told so."""
    nodes.take_away(node, 30.0)
    time.sleep(rng.uniform(3.0, 10.0))
    lose(nodes, node, rng)


FAULTS: tuple[Callable[[Nodes, Node, random.Random], None], ...] = (lose, hang, take_away)


@pytest.mark.parametrize("launcher", ["direct", "ray_train"])
def test_machines_come_and_go(nodes, tmp_path, expected, launcher):
    rng, log, faults = random.Random(5), tmp_path / "log", 0
    for number in range(100):
        folder = tmp_path / f"broken-{number}"
        driver = start(nodes, log, "run", str(written(folder, tmp_path, launcher)))
        while driver.poll() is None and faults < NUM_FAULTS:
            time.sleep(rng.uniform(1.0, 8.0))
            if any((folder / "trials").glob("*/start-*")):
                FAULTS[faults % len(FAULTS)](nodes, rng.choice(nodes.nodes), rng)
                faults += 1
        assert driver.wait(900) == 0, log.read_text()
        assert outcome(folder) == expected
        assert verify(Location(folder)).mismatches == []
        if faults >= NUM_FAULTS:
            break
    assert "Traceback" not in log.read_text()
    assert "raylet" not in log.read_text(), "Ray speaks"


@pytest.mark.parametrize("launcher", ["direct", "ray_train"])
def test_what_waits_for_machines_says_so_and_is_billed_to_nobody(tmp_path, expected, launcher):
    """All trials that may begin ask at once for their places; they have them as machines come."""
    folder, log = tmp_path / "early", tmp_path / "log"
    file = str(written(folder, tmp_path, launcher))
    assert h2h("prepare", file).returncode == 0
    with Nodes(tmp_path) as nodes:
        driver = start(nodes, log, "run", file)
        ledger = Location(folder / "ledger")
        wait_until(lambda: bool(waiting(ledger)), 300)
        time.sleep(10.0)
        nodes.add()
        nodes.add()
        assert driver.wait(900) == 0, log.read_text()
    assert outcome(folder) == expected
    first, *_, last = waiting(ledger)
    assert (first.workers, first.each, last.workers) == (2, {"CPU": 1.0}, 0)
    assert "does not grow by itself" in first.reason
    assert "2 workers wait for machines with 1 CPU free" in log.read_text()
    trials = read_history(ledger).trials.values()
    assert max(trial.spending(0.0).overhead["placement"] for trial in trials) > 10.0
    for trial in trials:
        spending = trial.spending(0.0)
        assert spending.device_seconds <= spending.wall_seconds - spending.overhead["placement"] + 1e-6


def waiting(ledger: Location) -> list[WaitingRecord]:
    return [record for record in read_ledger(ledger) if isinstance(record, WaitingRecord)]


@pytest.mark.parametrize("launcher", ["direct", "ray_train"])
def test_a_machine_that_is_taken_away_costs_nothing(nodes, tmp_path, expected, launcher):
    """What runs there is saved when it is told, and goes on elsewhere: no step is made twice."""
    folder, log = tmp_path / "moved", tmp_path / "log"
    driver = start(nodes, log, "run", str(written(folder, tmp_path, launcher)))
    wait_until(lambda: any((folder / "trials").glob("*/start-*/step-*/state.json")), 120)
    for node in list(nodes.nodes):
        nodes.take_away(node, 600.0)
        nodes.add()
    assert driver.wait(900) == 0, log.read_text()
    assert outcome(folder) == expected
    records = read_ledger(Location(folder / "ledger"))
    ends = [record for record in records if isinstance(record, EndRecord) and "is taken away" in record.reason]
    assert {record.outcome for record in ends} == {"interrupted"}
    assert all(record.outcome != "retried" for record in records if isinstance(record, EndRecord))
    said = [record.message for record in records if isinstance(record, EventRecord)]
    assert any("saved at step" in message for message in said)


@pytest.mark.parametrize("fault", [lose, hang, take_away])
def test_a_machine_of_two_whose_workers_train_one_model(tmp_path, fault):
    """It is lost, hangs or is told to go, and a third takes its place: the answer is that of two nobody disturbed."""
    pair: dict[str, Any] = CHANGES | {
        "search": {"budget_per_arm": 0},
        "confirm": {"seeds": 1, "describe_only": True, "evaluations": 2},
        "resources": {"workers": 2, "launcher": "ray_train", "attempts": 1000, "checkpoint_minutes": 0.02},
    }
    expected = undisturbed(tmp_path, **pair)
    folder, log, rng = tmp_path / "pair", tmp_path / "log", random.Random(5)
    file = tmp_path / "pair.yaml"
    pair["resources"]["concurrent_trials"] = 1
    file.write_text(json.dumps(chaotic(folder.name, tmp_path, **pair)))
    with Nodes(tmp_path) as nodes:
        for _ in range(3):
            nodes.add()
        driver = start(nodes, log, "run", str(file))
        wait_until(lambda: any((folder / "trials").glob("*/start-*/step-*/state.json")), 300)
        fault(nodes, next(node for node in nodes.nodes if node.runs("ray::RayTrainWorker")), rng)
        assert driver.wait(900) == 0, log.read_text()
    assert outcome(folder) == expected
    begun = [record for record in read_ledger(Location(folder / "ledger")) if isinstance(record, BegunRecord)]
    assert {record.workers for record in begun} == {2}
    assert len(begun) > 2 or fault is hang, "the fault met no trial"
    assert "Traceback" not in log.read_text()


def test_a_head_that_is_lost_is_told_in_one_message(tmp_path, expected):
    """And the study goes on on another cluster, as often as it happens. Every other time its raylet is lost first: Ray
    then ends the driver without a word."""
    rng, losses = random.Random(5), 0
    for number in range(100):
        folder, log = tmp_path / f"orphan-{number}", tmp_path / f"log-{number}"
        command, lost = ["run", str(written(folder, tmp_path, "direct"))], True
        while lost:
            with Nodes(tmp_path) as nodes:
                nodes.add()
                starts = len(list((folder / "trials").glob("*/start-*")))
                driver = start(nodes, log, *command)
                if losses < NUM_HEAD_LOSSES:
                    wait_until(partial(began, folder, starts, driver), 300)
                    time.sleep(rng.uniform(0.0, 5.0))
                lost = losses < NUM_HEAD_LOSSES and driver.poll() is None
                if lost:
                    (nodes.head.kill, nodes.head.kill_raylet)[losses % 2]()
                    losses += 1
                assert driver.wait(900) == lost, log.read_text()
                assert log.read_text().count(f"h2h resume {folder}") >= lost
            command = ["resume", str(folder)]
        assert "Traceback" not in log.read_text()
        assert outcome(folder) == expected
        if losses >= NUM_HEAD_LOSSES:
            break


def began(folder: Path, starts: int, driver: subprocess.Popen[bytes]) -> bool:
    """Whether a trial has a newer start than so many, or none will come."""
    return driver.poll() is not None or len(list((folder / "trials").glob("*/start-*"))) > starts
