"""A configuration of one's own in a study that runs: asked for by one process, tried by another."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import yaml

from orchestrator.ledger.history import read_history
from orchestrator.ledger.layout import REQUESTS
from orchestrator.study import Study
from tests.helpers.study import h2h, small_study
from trainables.storage import Location


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_a_study_that_runs_tries_what_is_asked_for(tmp_path):
    study = small_study("asked", tmp_path, search={"budget_per_arm": 6, "halving": {"rungs": 2}, "parallel": 1})
    study["confirm"]["seeds"] = 1
    file, folder = tmp_path / "study.yaml", tmp_path / "asked"
    file.write_text(yaml.safe_dump(study))
    ledger = Location(folder / "ledger")
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen([sys.executable, "-m", "orchestrator.cli", "run", str(file)], stdout=log, stderr=log)
    while driver.poll() is None and not (folder.exists() and read_history(ledger).trials_of("search", "vanilla")):
        time.sleep(0.2)
    told = h2h("enqueue", str(folder), "vanilla", "learning_rate=0.00123")
    assert told.returncode == 0, told.stderr
    assert driver.wait() == 0, (tmp_path / "log").read_text()
    searched = read_history(ledger).trials_of("search", "vanilla")
    (own,) = (trial for trial in searched if trial.by_hand)
    assert own.configuration == {"learning_rate": 0.00123}
    assert own.number < len(searched) - 1, "at once, and not after all others"
    assert list((folder / REQUESTS).iterdir()) == []
    assert json.loads(h2h("verify", str(folder), "--json").stdout)["sound"]

    Study.open(folder).enqueue("vanilla", {"learning_rate": 0.0042})
    done = h2h("extend", str(folder), "--set", "search.budget_per_arm=7")
    assert done.returncode == 0, done.stderr
    rates = [trial.configuration["learning_rate"] for trial in read_history(ledger).trials_of("search", "vanilla")]
    assert rates[len(searched)] == 0.0042, "it comes before what the sampler suggests"
    verified = h2h("verify", str(folder))
    assert verified.returncode == 0, verified.stdout + verified.stderr
