"""A study cannot be lost: SIGKILL of anything at any moment, then ``h2h resume``, comes to the undisturbed result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from test_study import h2h, small_study, without_seconds

from orchestrator.history import History
from orchestrator.ledger import read_ledger
from orchestrator.optuna_file import OPTUNA_FILE
from orchestrator.phases import best_trials
from orchestrator.study import Study
from trainables.storage import Location

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in Linux's /proc"),
    pytest.mark.timeout(1500),
]

NUM_KILLS = int(os.environ.get("H2H_CHAOS_KILLS", "30"))
LONGEST_SECONDS = 14.0
"""From a start to a kill: a start takes about half of it."""


def chaotic(name: str, storage: Path, **changes: Any) -> dict[str, Any]:
    """A study of some seconds, whose trials are started again as often as they are killed."""
    defaults = {
        "budget": {"tokens": 8 * 32 * 60},
        "search": {"budget_per_arm": 3, "halving": {"rungs": 2}},
        "resources": {"attempts": 1000},
    }
    return small_study(name, storage, **(defaults | changes))


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
        return kill([one for one, name in family.items() if name.startswith(TITLES[victim])])
    kill([driver.pid, *(family if victim == "all" else [])])
    driver.wait()
    if victim == "driver":  # Ray's own processes notice, and end
        deadline = time.time() + 20
        while time.time() < deadline and any(Path(f"/proc/{one}").exists() for one in family):
            time.sleep(0.1)
    kill(list(family))
    return True


def outcome(folder: Path) -> dict[str, Any]:
    """All that must not depend on what was killed; clocks do."""
    history = History.of(read_ledger(Location(folder / "ledger")))
    study = Study.open(folder)
    assert history.comparison is not None
    found: dict[str, Any] = {
        "comparison": without_seconds({key: history.comparison[key] for key in ("pairs", "not_compared")}),
    }
    for name, trial in history.trials.items():
        kept = ("step", "progress", "loss", "learning_rate", "digest", "mix", "rung", "yardsticks")
        found[name] = {
            "outcome": trial.outcome,
            "configuration": trial.configuration,
            "seed": trial.seed,
            "spent": {unit: trial.spent[unit] for unit in ("tokens", "steps", "flops")},
            "measures": [{key: measure[key] for key in kept} for measure in trial.measures],
        }
    for arm in study.spec.arms:
        found[f"best of {arm}"] = [t.trial for t in best_trials(history, arm, "recovery_accuracy", 3)]
        if study.spec.search.budget_per_arm:
            found[f"optuna of {arm}"] = [
                (t.state, t.params, t.values, t.intermediate_values)
                for t in optuna_trials(folder, study, arm)
            ]
        found[f"spent by {arm}"] = [
            history.spent(phase, arm, unit)
            for phase in ("search", "confirm")
            for unit in ("tokens", "steps", "flops")
        ]
    return found


def optuna_trials(folder: Path, study: Study, arm: str) -> list[optuna.trial.FrozenTrial]:
    """As Optuna itself reads them from the study's folder."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / OPTUNA_FILE))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name=f"{study.spec.name}/{arm}", storage=storage).trials


def survive(folder: Path, file: Path, rng: random.Random, victims: list[str], kills: int) -> int:
    """Run a study to its end through at most so many kills; gives their number."""
    command = [sys.executable, "-m", "orchestrator", "run", str(file)]
    done = 0
    while done < kills:
        with (folder.parent / f"{folder.name}.log").open("ab") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while done < kills and driver.poll() is None:
                try:
                    driver.wait(rng.uniform(0.0, LONGEST_SECONDS))
                except subprocess.TimeoutExpired:
                    done += strike(driver, rng.choice(victims))
            if driver.poll() is None:
                driver.wait(300)
        finally:
            kill([driver.pid, *descendants(driver.pid)])
        if driver.returncode == 0:
            return done
        assert driver.returncode == -signal.SIGKILL, (folder.parent / f"{folder.name}.log").read_text()
        # Cut off before the study was frozen in its folder, there is nothing to resume: it is run.
        if (folder / "study.yaml").exists():
            command = [sys.executable, "-m", "orchestrator", "resume", str(folder)]
    done_at_last = h2h(*command[3:])
    assert done_at_last.returncode == 0, done_at_last.stdout + done_at_last.stderr
    return done


def test_thirty_kills_lose_nothing(tmp_path):
    """Of the driver, the trials' processes, and everything at once; as many studies as it takes."""
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(chaotic("undisturbed", tmp_path)))
    done = h2h("run", str(file))
    assert done.returncode == 0, done.stderr
    expected = outcome(tmp_path / "undisturbed")
    rng, left = random.Random(7), NUM_KILLS
    number = 0
    while left:
        file.write_text(json.dumps(chaotic(f"broken-{number}", tmp_path)))
        left -= survive(
            tmp_path / f"broken-{number}", file, rng, ["driver", "trial actor", "trial actor", "all"], left
        )
        assert outcome(tmp_path / f"broken-{number}") == expected
        number += 1


def test_kills_under_ray_train_lose_nothing(tmp_path):
    """Of Ray Train's workers as well: the trial goes on from its checkpoint in new ones.

    The undisturbed run is without Ray Train: one worker under it gives the same to the bit.
    """
    changes = {
        "arms": {"vanilla": {"objective": "clm"}},
        "search": {"budget_per_arm": 0},  # a start of Ray Train's workers takes some ten seconds
        "confirm": {"seeds": 2, "evaluations": 4},
    }
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(chaotic("undisturbed", tmp_path, **changes)))
    done = h2h("run", str(file))
    assert done.returncode == 0, done.stderr
    resources = {"launcher": "ray_train", "attempts": 1000}
    file.write_text(json.dumps(chaotic("broken", tmp_path, **changes, resources=resources)))
    victims = ["training worker", "training worker", "trial actor", "driver"]
    survive(tmp_path / "broken", file, random.Random(3), victims, max(1, NUM_KILLS // 6))
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "undisturbed")
