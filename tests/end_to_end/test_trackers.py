"""A study that reports to trackers, is killed and goes on: each step once, and a tracker that fails changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from orchestrator import Results
from tests.helpers.study import h2h, small_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed"),
]


def shown(folder: Path) -> dict[str, list[int]]:
    """By trial, the steps that TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for file in (folder / "tensorboard").rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(file.parent), size_guidance={"scalars": 0}).Reload()
        there = "progress/tokens" in events.Tags()["scalars"]
        found[file.parent.name] = [event.step for event in events.Scalars("progress/tokens")] if there else []
    return found


def kill_amid_confirmation(folder: Path, driver: subprocess.Popen[bytes]) -> None:
    """The study's process and all that it began, once a confirmation run has some reports."""
    ledger = folder / "ledger" / "000001.jsonl"
    while not ledger.exists() or ledger.read_text().count('"phase":"confirm"') < 8:
        assert driver.poll() is None, "it ended before it was killed"
        time.sleep(0.05)
    family = [*psutil.Process(driver.pid).children(recursive=True), psutil.Process(driver.pid)]
    for process in family:
        if process.is_running():
            process.kill()
    driver.wait()


def test_a_killed_study_has_each_step_once_in_its_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://there")  # if it is installed at all
    changes = {"budget": {"tokens": 8 * 32 * 200}, "search": {"budget_per_arm": 0}}
    study = small_study("tracked", tmp_path, report_to=["tensorboard", "mlflow"], **changes)
    file, folder = tmp_path / "study.yaml", tmp_path / "tracked"
    file.write_text(json.dumps(study))
    driver = subprocess.Popen([sys.executable, "-m", "orchestrator.cli", "run", str(file)], stdout=subprocess.DEVNULL)
    kill_amid_confirmation(folder, driver)
    done = h2h("resume", str(folder))
    assert done.returncode == 0, done.stderr
    results = Results(str(folder))
    (warning,) = {m for _, m in results.report.events if "tracker" in m and "mlflow" in m}
    assert f"h2h track {folder} --to mlflow" in warning
    counted = results.ledger[results.ledger.counts]
    expected = {trial: own["spent.tokens"].astype(int).tolist() for trial, own in counted.groupby("trial")}
    assert shown(folder) == expected | {"summary-tracked": []}
    assert h2h("track", str(folder), "--to", "tensorboard").stdout.splitlines()[1].startswith("0 runs written")
    assert h2h("verify", str(folder)).returncode == 0
