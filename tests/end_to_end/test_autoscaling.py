"""A study on a cluster that grows from no worker node and shrinks to none again, with its storage on S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local import LocalCluster
from cluster.watchdog import marked
from orchestrator.ledger.records import (
    BegunRecord,
    EndRecord,
    EventRecord,
    Record,
    ResourcesRecord,
    TrialRecord,
    WaitingRecord,
)
from orchestrator.ledger.segments import read_ledger
from tests.helpers.chaos import chaotic, outcome, undisturbed
from tests.helpers.object_store import BUCKET, environment, s3_server, variables
from trainables.storage import Location

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

WORKERS = 3
CONFIRM = {"seeds": 3, "describe_only": True, "evaluations": 2}
CHANGES = {"budget": {"tokens": 8 * 32 * 800}, "search": {"budget_per_arm": 0}, "confirm": CONFIRM}
LEFT = """
import time, ray
# Detached by Ray: one of each serves all jobs of a cluster, without devices.
OF_RAY_DATA = {"_AutoscalingCoordinatorActor", "_StatsActor", "_StatsSummaryActor", "_UsageCollectionActor"}
ray.init(log_to_driver=False, logging_level="ERROR")
from ray.util import placement_group_table, state
groups = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
actors = [actor for actor in state.list_actors(ray.get_runtime_context().gcs_address) if actor.state != "DEAD"]
print(len(groups), len({actor.class_name for actor in actors} - OF_RAY_DATA), *sorted(a.class_name for a in actors))
deadline = time.monotonic() + 300
while (nodes := sum(node["Alive"] for node in ray.nodes()) - 1) and time.monotonic() < deadline:
    time.sleep(1.0)
print(nodes)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[int]:
    """The port of an S3 server, which this process asks."""
    pytest.importorskip("moto")
    with s3_server() as port, environment(port):
        yield port


@pytest.mark.parametrize("launcher", ["direct", "ray_train"])
def test_a_submitted_study_grows_its_cluster_and_lets_it_go(store, tmp_path, monkeypatch, launcher):
    """All the while somebody watches from outside."""
    token = tmp_path / "auth_token"
    token.write_text("a-token-of-the-tests")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    expected = undisturbed(tmp_path, **CHANGES)
    storage = f"s3://{BUCKET}/studies"
    folder = Location(storage) / "grown"
    file = tmp_path / "grown.yaml"
    file.write_text(json.dumps(chaotic("grown", storage, launcher, **CHANGES, resources={"launcher": launcher})))
    with LocalCluster(max_workers=WORKERS, idle_seconds=10.0, environment=variables(store)) as local:
        with (tmp_path / "log").open("wb") as log:
            words = ["submit", str(file), "--address", local.dashboard_url]
            job = subprocess.Popen([sys.executable, "-m", "orchestrator.cli", *words], stdout=log, stderr=log)
        while not (folder / "study.yaml").exists():
            assert job.poll() is None, (tmp_path / "log").read_text()
            time.sleep(1.0)
        watching = [sys.executable, "-m", "orchestrator.cli", "watch", str(folder)]
        watched = subprocess.run(watching, capture_output=True, text=True, timeout=1800)
        assert job.wait(300) == 0, (tmp_path / "log").read_text()
        left = subprocess.run(
            [sys.executable, "-c", LEFT],
            env=os.environ | local.client_environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
    groups, actors, *_, nodes = left.stdout.split()
    assert (groups, actors, nodes) == ("0", "0", "0"), f"something is left: {left.stdout} {left.stderr}"
    assert marked(local.mark) == []
    assert "verdict" in watched.stdout, watched.stdout + watched.stderr
    assert "Traceback" not in watched.stderr
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text
    assert "reset_config" not in text, "a process was not used again"
    assert outcome(folder) == expected
    records = read_ledger(folder / "ledger")
    again = [r.message for r in records if isinstance(r, EventRecord) and "is started again" in r.message]
    assert again == [], "a node that joined took a job's files from another"
    assert most_at_once(records) == WORKERS, "not all nodes were used at once"
    totals = [r.cluster["CPU"] for r in records if isinstance(r, ResourcesRecord) and "CPU" in r.cluster]
    assert (WORKERS, WORKERS) in totals
    assert_asked_for_all_at_once(records)


def most_at_once(records: list[Record]) -> int:
    """Trials that worked at the same time."""
    working, most = set[str](), 0
    for record in records:
        if isinstance(record, BegunRecord):
            working.add(record.trial)
        elif isinstance(record, EndRecord):
            working.discard(record.trial)
        most = max(most, len(working))
    return most


def assert_asked_for_all_at_once(records: list[Record]) -> None:
    """Before the first began all had been asked for that there can be room for; what waited said so with its reason,
    until it had room. The text was prepared before, so one node may have been there."""
    first = next(i for i, record in enumerate(records) if isinstance(record, BegunRecord))
    asked = {record.trial for record in records[:first] if isinstance(record, TrialRecord)}
    assert len(asked) == WORKERS, f"{sorted(asked)} had been asked for"
    waits = [r for r in records if isinstance(r, WaitingRecord)]  # none, where nodes come within seconds
    assert all(r.workers <= WORKERS and r.each == {"CPU": 1.0} for r in waits)
    assert all("its autoscaler is asked" in r.reason for r in waits if r.workers)
    assert not waits or waits[-1].workers == 0
