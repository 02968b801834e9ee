"""Optuna's own dashboard opens a study's search, by the command that the documentation names."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from orchestrator.reporting.optuna_journal import OPTUNA_FILE, write_optuna_journal
from tests.helpers.phases import PRIMARY, Driver, study
from trainables.storage import Location

pytestmark = pytest.mark.skipif(find_spec("optuna_dashboard") is None, reason="optuna-dashboard is not installed")
DRIVER = Driver(study("search.budget_per_arm=6", "search.algorithm=random", "search.halving.rungs=3"), seed=4)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the dashboard answers, of a search that has ended."""
    driver, folder = DRIVER.run(), tmp_path_factory.mktemp("study")
    write_optuna_journal(Location(folder), driver.spec, driver.history)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = "import sys; from optuna_dashboard._cli import main; sys.argv[0] = 'optuna-dashboard'; main()"
    words = [sys.executable, "-c", command, str(folder / OPTUNA_FILE), "--port", str(port)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = next(word for line in server.stderr for word in line.split() if word.startswith("http://"))
        while not _listens(port) and server.poll() is None:  # it says so a moment before it does
            time.sleep(0.05)
        yield address.rstrip("/")
        server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def answer(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}{path}", timeout=60) as page:
        return json.load(page)


def test_optunas_dashboard_shows_the_search_of_each_arm(address: str) -> None:
    studies = {found["study_name"]: found for found in answer(address, "/api/studies")["study_summaries"]}
    assert studies.keys() == {f"{DRIVER.spec.name}/{arm}" for arm in DRIVER.spec.arms}
    states = {"completed": "Complete", "pruned": "Pruned", "failed": "Fail", "diverged": "Fail"}
    seen = set()
    for arm in DRIVER.spec.arms:
        own = studies[f"{DRIVER.spec.name}/{arm}"]
        assert own["directions"] == ["maximize"]
        trials = DRIVER.history.trials_of("search", arm)
        shown = answer(address, f"/api/studies/{own['study_id']}")["trials"]
        assert len(shown) == len(trials)
        for trial, found in zip(trials, shown, strict=True):
            seen.add(trial.outcome)
            assert found["state"] == states[trial.outcome]
            parameters = {one["name"]: one["param_external_value"] for one in found["params"]}
            assert parameters == {name: str(value) for name, value in trial.configuration.items()}
            rungs = {m.rung: m.yardsticks[PRIMARY].overall for m in trial.evaluations if m.rung is not None}
            assert found["intermediate_values"] == [{"step": 3**rung, "value": rungs[rung]} for rung in sorted(rungs)]
            attributes = {one["key"]: one["value"] for one in found["user_attrs"]}
            assert (attributes["arm"], attributes["trial"], attributes["outcome"]) == (arm, trial.trial, trial.outcome)
            if trial.outcome == "completed":
                assert found["values"] == [trial.score(PRIMARY)]
    assert {"completed", "pruned"} <= seen


def test_its_page_is_served(address: str) -> None:
    with urllib.request.urlopen(f"{address}/dashboard", timeout=60) as page:
        assert b"<html" in page.read()
