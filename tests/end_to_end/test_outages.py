"""The object store that a study lies on fails for a while, in all the ways of a network: nothing comes of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger.records import EndRecord, MeasureRecord
from orchestrator.ledger.segments import read_ledger
from orchestrator.verification.verify import verify
from tests.helpers.chaos import chaotic, outcome, undisturbed
from tests.helpers.object_store import BUCKET, FAULTS, Way, environment, s3_server
from trainables.storage import Location

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

NUM_OUTAGES = int(os.environ.get("H2H_OUTAGES", str(len(FAULTS))))
"""Of each kind of launcher."""
SHORTEST, LONGEST = 10.0, 60.0
"""Seconds of an outage."""
RESOURCES = {"concurrent_trials": 2, "checkpoint_minutes": 0.02}
CHANGES: dict[str, Any] = {"budget": {"tokens": 8 * 32 * 300}, "resources": {**RESOURCES, "launcher": "direct"}}
"""Attempts are as many as by default: no outage may cost one."""
PATIENCE_SECONDS = 20.0
"""Of the study that is to end."""


@pytest.fixture
def way() -> Iterator[Way]:
    """To the store; this process asks it so too, once it has healed."""
    pytest.importorskip("moto")
    with s3_server() as port, Way(port) as found, environment(found.port):
        yield found


@pytest.mark.parametrize("launcher", ["direct", "ray_train"])
def test_outages_of_the_storage_cost_nothing(way, tmp_path, launcher):
    expected, changes = undisturbed(tmp_path, **CHANGES), CHANGES | {"resources": {**RESOURCES, "launcher": launcher}}
    rng, outages = random.Random(5), 0
    for number in range(100):
        folder, log = Location(f"s3://{BUCKET}/studies/broken-{number}"), tmp_path / f"log-{number}"
        file = tmp_path / f"{folder.name}.yaml"
        file.write_text(json.dumps(chaotic(folder.name, str(folder.parent), **changes)))
        driver = start(log, "run", str(file))
        before = outages
        while driver.poll() is None and outages < NUM_OUTAGES:
            time.sleep(rng.uniform(1.0, 15.0))
            if driver.poll() is None and has_begun(log):
                way.fail(FAULTS[outages % len(FAULTS)])
                time.sleep(rng.uniform(SHORTEST, LONGEST))
                way.heal()
                outages += 1
        assert driver.wait(900) == 0, log.read_text()
        assert_nothing_was_lost(folder, log, expected)
        assert outages == before or "the storage has not answered since" in log.read_text()
        if outages >= NUM_OUTAGES:
            break
    assert "and is waited for until" in "".join(one.read_text() for one in tmp_path.glob("log-*"))


IMPATIENT = f"""
import sys
from orchestrator.cli import main
from trainables.object_store import Patience
Patience.FOR_STUDIES = {PATIENCE_SECONDS}
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("fault", FAULTS[:-1])
def test_a_storage_that_is_lost_ends_the_study_in_one_message(way, tmp_path, fault):
    """And it goes on when the storage is there again, from where it was."""
    expected = undisturbed(tmp_path, **CHANGES)
    folder, log = Location(f"s3://{BUCKET}/studies/cut-off"), tmp_path / "log"
    file = tmp_path / "cut-off.yaml"
    file.write_text(json.dumps(chaotic(folder.name, str(folder.parent), **CHANGES)))
    with log.open("wb") as lines:
        command = [sys.executable, "-c", IMPATIENT, "run", str(file)]
        driver = subprocess.Popen(command, stdout=lines, stderr=lines)
    # Once both trials train: the processes of those that start, or open their stream, wait longer for the storage.
    while not training(folder) >= {"search-headless-000", "search-vanilla-000"}:
        assert driver.poll() is None, log.read_text()
        time.sleep(0.5)
    way.fail(fault)
    code = driver.wait(240)
    way.heal()
    text = log.read_text()
    assert code == 2, text
    assert "Traceback" not in text
    assert text.count("h2h: the storage has not answered for") == 1
    assert f"h2h resume {folder}" in text
    assert start(log, "resume", str(folder)).wait(900) == 0, log.read_text()
    assert outcome(folder) == expected
    assert verify(folder).mismatches == []


def start(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as lines:
        return subprocess.Popen([sys.executable, "-m", "orchestrator.cli", *arguments], stdout=lines, stderr=lines)


def training(folder: Location) -> set[str]:
    """The trials that have reported."""
    records = read_ledger(folder / "ledger") if (folder / "ledger").names() else []
    return {record.trial for record in records if isinstance(record, MeasureRecord)}


def has_begun(log: Path) -> bool:
    """Whether its session has: what cannot begin for its storage is refused."""
    return "starting Ray" in log.read_text()


def assert_nothing_was_lost(folder: Location, log: Path, expected: dict[str, Any]) -> None:
    """Nor done twice, nor was an attempt lost."""
    assert outcome(folder) == expected
    assert verify(folder).mismatches == []
    records = read_ledger(folder / "ledger")
    steps = Counter((r.trial, r.step, r.progress) for r in records if isinstance(r, MeasureRecord))
    assert steps.most_common(1)[0][1] == 1, "a step was done twice"
    ends = [r for r in records if isinstance(r, EndRecord) and r.outcome not in ("completed", "pruned")]
    assert ends == []
    assert "Traceback" not in log.read_text(), log.read_text()
