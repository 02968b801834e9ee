"""A study cannot be lost: SIGKILL of anything at any moment, then ``h2h resume``, comes to the undisturbed result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.ledger.records import EndRecord, MeasureRecord, StopRecord
from orchestrator.ledger.segments import read_ledger
from orchestrator.verification.verify import verify
from tests.helpers.chaos import chaotic, outcome, undisturbed
from tests.helpers.study import h2h
from trainables.storage import Location

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in Linux's /proc"),
    pytest.mark.timeout(2400),
]

NUM_KILLS = int(os.environ.get("H2H_CHAOS_KILLS", "30"))
TURNS = ("direct", "ray_train", "evidence", "direct", "ray_train")
"""Which study meets the next kill."""
LONGEST_SECONDS = {"direct": 14.0, "ray_train": 24.0}
"""From a start to a kill, by launcher: a start takes about half of it."""
LIFE_SECONDS = 6.0
"""Of a training worker, at least: most of it goes into its start."""
END_SECONDS = 600.0
"""For a study to end that is not killed any more."""


TOO_LOW = {"dimensions": {"learning_rate": {"type": "float", "low": 1e-6, "high": 1e-5, "log": True}}}
"""Rates at which nothing is learned: the other arm is surely the better one, before all seeds are run."""
EVIDENCE = {
    "training": {"batch_sequences": 8, "learning_rate": 3e-3, "schedule": "wsd", "cooldown": 0.25},
    "arms": {"headless": {"objective": "headless_clm", "space": TOO_LOW}, "vanilla": {"objective": "clm"}},
    "search": {"budget_per_arm": 3, "halving": {"reduction": 2, "rungs": 2}},
    "confirm": {"seeds": 9, "stopping": {"minimum": 6}, "evaluations": 2, "anytime": [0.5]},
}
"""Trials that are stopped early, branches of confirmation runs, and seeds until the question is answered."""


def kills_of(study: str) -> int:
    """Its part of all kills."""
    return sum(TURNS[kill % len(TURNS)] == study for kill in range(NUM_KILLS))


def descendants(process: int) -> dict[int, str]:
    """All that a process started, directly or not, with their command lines."""
    found = {}
    with suppress(psutil.NoSuchProcess):
        for one in psutil.Process(process).children(recursive=True):
            with suppress(psutil.Error):  # it has ended meanwhile
                found[one.pid] = " ".join(one.cmdline())
    return found


def kill(processes: list[int]) -> bool:
    """Whether there was any."""
    killed = False
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
            killed = True
        except ProcessLookupError:
            continue
    return killed


TITLES = {"trial actor": "ray::ImplicitFunc", "training worker": "ray::RayTrainWorker"}


def strike(driver: subprocess.Popen[bytes], victim: str) -> bool:
    """Kill what is named, if it is there; what the driver has left behind ends with it."""
    family = descendants(driver.pid)
    if victim in TITLES:
        return kill(those_of(family, victim))
    kill([driver.pid, *(family if victim == "all" else [])])
    driver.wait()
    if victim == "driver":  # Ray's own processes notice, and end
        deadline = time.time() + 20
        while time.time() < deadline and any(Path(f"/proc/{one}").exists() for one in family):
            time.sleep(0.1)
    kill(list(family))
    return True


def those_of(family: dict[int, str], victim: str) -> list[int]:
    """The processes that are meant."""
    return [one for one, name in family.items() if name.startswith(TITLES[victim])]


def bide(driver: subprocess.Popen[bytes], folder: Path, victim: str, rng: random.Random) -> None:
    """Let the driver run for a while: until a training worker, which lives for some seconds, is there to be killed."""
    if victim != "training worker":
        return
    deadline = time.time() + 60

    def wait_for(happens: Callable[[], bool]) -> None:
        while driver.poll() is None and time.time() < deadline and not happens():
            time.sleep(0.05)

    wait_for(lambda: bool(those_of(descendants(driver.pid), victim)))
    if rng.random() < 0.5:
        time.sleep(rng.uniform(0.0, LIFE_SECONDS))
        return
    # Or until it writes a checkpoint: of the reports before it some may not have come yet.
    before = set(folder.glob("trials/*/start-*/step-*/state.json"))
    wait_for(lambda: bool(set(folder.glob("trials/*/start-*/step-*/state.json")) - before))


def survive(folder: Path, file: Path, rng: random.Random, victims: deque[str], kills: int) -> int:
    """Run a study to its end through at most so many kills, of the victims in turn; gives their number."""
    command = [sys.executable, "-m", "orchestrator.cli", "run", str(file)]
    longest = LONGEST_SECONDS[json.loads(file.read_text())["resources"]["launcher"]]
    log, done = folder.parent / f"{folder.name}.log", 0
    while True:
        with log.open("ab") as lines:
            driver = subprocess.Popen(command, stdout=lines, stderr=lines)
        try:
            while done < kills and driver.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(rng.uniform(0.0, longest))
                bide(driver, folder, victims[0], rng)
                if driver.poll() is None and strike(driver, victims[0]):
                    done += 1
                    victims.rotate(-1)
            with suppress(subprocess.TimeoutExpired):
                driver.wait(END_SECONDS)
            assert driver.returncode in (0, -signal.SIGKILL), log.read_text()
        finally:
            kill([driver.pid, *descendants(driver.pid)])
        if driver.returncode == 0:
            return done
        # Cut off before the study was frozen in its folder, there is nothing to resume: it is run.
        if (folder / "study.yaml").exists():
            command = [sys.executable, "-m", "orchestrator.cli", "resume", str(folder)]


def assert_nothing_is_lost(
    storage: Path, expected: dict[str, Any], victims: list[str], kills: int, seed: int, **changes: Any
) -> None:
    """Through so many kills, of the victims in turn; as many studies as it takes."""
    file, rng, turns = storage / "study.yaml", random.Random(seed), deque(victims)
    for number in count():
        if not kills:
            return
        folder = storage / f"broken-{number}"
        file.write_text(json.dumps(chaotic(folder.name, storage, **changes)))
        kills -= survive(folder, file, rng, turns, kills)
        assert outcome(folder) == expected


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Without Ray Train; one worker under it gives the same to the bit."""
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1, signal.SIGHUP], ids=lambda number: number.name)
def test_an_interruption_and_a_kill_lose_nothing(tmp_path, number):
    """Ctrl-C amid the search, a batch system's notice, or a terminal that is closed, which says how to go on and loses
    no step, and SIGKILL of all amid the confirmation. The trials are long enough to be met."""
    file, folder, longer = tmp_path / "study.yaml", tmp_path / "broken", {"budget": {"tokens": 8 * 32 * 400}}
    expected = undisturbed(tmp_path, **longer)
    file.write_text(json.dumps(chaotic("broken", tmp_path, **longer)))
    command = [sys.executable, "-m", "orchestrator.cli", "run", str(file)]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_measures(folder, "search", driver)
    driver.send_signal(number)
    out, err = driver.communicate(timeout=120)
    assert driver.returncode == 130, err
    assert f"h2h resume {folder}" in out
    assert "stopping: what runs is saved first" in err
    assert "Traceback" not in err
    assert "Last result" not in out, "Tune speaks"
    command = [sys.executable, "-m", "orchestrator.cli", "resume", str(folder)]
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log)
    wait_for_measures(folder, "confirm", driver)
    strike(driver, "all")
    done = h2h("resume", str(folder))
    assert done.returncode == 0, done.stderr

    assert outcome(folder) == expected
    assert verify(Location(folder)).mismatches == []
    records = read_ledger(Location(folder / "ledger"))
    assert [r.status for r in records if isinstance(r, StopRecord)] == ["begin", "end"]
    reports = [r for r in records if isinstance(r, MeasureRecord) and r.phase == "search"]
    steps = Counter((r.trial, r.step) for r in reports)
    assert steps.most_common(1)[0][1] == 1, "work was done twice"
    ends = [r.outcome for r in records if isinstance(r, EndRecord) and r.phase == "search"]
    assert "interrupted" in ends, "the interruption met no trial"


def wait_for_measures(folder: Path, phase: str, driver: subprocess.Popen[Any]) -> None:
    """Until a trial of the phase is under way."""
    deadline = time.time() + 180
    while time.time() < deadline:
        assert driver.poll() is None, driver.communicate()
        records = read_ledger(Location(folder / "ledger"))
        if any(isinstance(r, MeasureRecord) and r.phase == phase for r in records):
            return
        time.sleep(0.05)
    raise AssertionError(f"no report from {phase}")


@pytest.mark.skipif(not kills_of("direct"), reason="no kill is left for it")
def test_kills_lose_nothing(tmp_path, expected):
    victims = ["trial actor", "driver", "all"]
    assert_nothing_is_lost(tmp_path, expected, victims, kills_of("direct"), seed=7)


@pytest.mark.skipif(not kills_of("ray_train"), reason="no kill is left for it")
def test_kills_under_ray_train_lose_nothing(tmp_path, expected, ray_cluster):
    """Of Ray Train's workers as well: the trial goes on from its checkpoint in new ones.

    Another cluster runs on the machine meanwhile, which Ray must not take for the study's.
    """
    victims = ["training worker", "trial actor", "training worker", "driver", "training worker", "all"]
    kills = kills_of("ray_train")
    assert_nothing_is_lost(tmp_path, expected, victims, kills, seed=3, launcher="ray_train")


@pytest.mark.skipif(not kills_of("evidence"), reason="no kill is left for it")
def test_kills_amid_halving_branches_and_looks_lose_nothing(tmp_path):
    expected = undisturbed(tmp_path, **EVIDENCE)
    assert any(name.startswith("anytime-") for name in expected)
    assert {found["outcome"] for name, found in expected.items() if name.startswith("search-")} == {
        "completed",
        "pruned",
    }
    seeds = {found["seed"] for name, found in expected.items() if name.startswith("confirm-")}
    assert len(seeds) == 6, "stopped before the seventh"
    victims = ["driver", "all", "trial actor"]
    assert_nothing_is_lost(tmp_path, expected, victims, kills_of("evidence"), seed=11, **EVIDENCE)
