"""A study of encoders from the command line: interrupted, resumed, read and verified."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from orchestrator import Results
from orchestrator.ledger.records import MeasureRecord, StopRecord, TrialRecord
from orchestrator.ledger.segments import read_ledger
from tests.helpers.study import h2h, ray_was_slow, small_study
from trainables.storage import Location


def run_until_it_confirms(study: Path, ledger: Location) -> subprocess.Popen[str]:
    """The process that runs the study, and is amid its confirmation."""
    command = [sys.executable, "-m", "orchestrator.cli", "run", str(study)]
    for _ in range(3):
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while driver.poll() is None:
            if any(isinstance(r, MeasureRecord) and r.phase == "confirm" for r in read_ledger(ledger)):
                return driver
            time.sleep(0.05)
        _, errors = driver.communicate()
        assert ray_was_slow(errors), errors
    raise AssertionError(errors)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_encoder_study_that_is_interrupted_and_resumed(tmp_path):
    content = small_study(
        "encoders",
        tmp_path,
        arms={"headless": {"objective": "headless_mlm"}, "vanilla": {"objective": "mlm"}},
        budget={"steps": 60},
        search={"budget_per_arm": 1, "halving": {"rungs": 1}},
    )
    content["model"]["config"] |= {"model_type": "bert"}
    file, folder = tmp_path / "study.yaml", tmp_path / "encoders"
    file.write_text(json.dumps(content))

    ledger = Location(folder / "ledger")
    driver = run_until_it_confirms(file, ledger)
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=300)
    assert driver.returncode == 130, err
    assert f"h2h resume {folder}" in out
    assert "Traceback" not in err

    done = h2h("resume", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "recovery_accuracy" in done.stdout
    records = read_ledger(ledger)
    assert [r.status for r in records if isinstance(r, StopRecord)] == ["begin", "end"]
    assert max(Counter(r.trial for r in records if isinstance(r, TrialRecord)).values()) == 2
    steps = Counter((r.trial, r.step) for r in records if isinstance(r, MeasureRecord))
    assert max(steps.values()) == 1, "work was done twice"

    results = Results(str(folder))
    for arm in ("headless", "vanilla"):
        runs = results.history.trials_of("confirm", arm)
        assert [(run.seed, run.outcome, run.spent["steps"]) for run in runs] == [
            (1, "completed", 60),
            (2, "completed", 60),
        ]
    pair = results.answer.comparison.pairs[0]
    assert (pair.a, pair.b, pair.yardsticks["recovery_accuracy"].n) == ("headless", "vanilla", 2)
    assert h2h("verify", str(folder)).returncode == 0
