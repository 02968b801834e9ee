"""What asks a command to stop, before any trial runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.execution.stopping import asking_to_stop, stopped_in_order
from tests.helpers.study import small_study


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1], ids=lambda number: number.name)
def test_a_study_that_is_stopped_while_it_is_checked_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "own").mkdir()
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(small_study("stopped", tmp_path)))
    driver = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli", "run", str(file), "--plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "own"), "PYTHONUNBUFFERED": "1"},
    )
    assert driver.stdout is not None
    assert any("checking the models" in line for line in driver.stdout)
    while not list((tmp_path / "own").glob("h2h-models-*")):
        assert driver.poll() is None, "it was not met"
    driver.send_signal(number)
    out, errors = driver.communicate(timeout=300)
    assert (driver.returncode, "Traceback" in errors) == (130, False)
    assert "Interrupted" in out
    assert not list((tmp_path / "own").glob("h2h-*"))


@pytest.fixture
def outliving() -> Iterator[None]:
    """As under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("outliving")
def test_what_is_to_outlive_its_terminal_does() -> None:
    with stopped_in_order():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.SIGHUP not in asking_to_stop()
