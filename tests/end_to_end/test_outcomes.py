"""How trials end, and what the study says of it: whole studies on a private cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from orchestrator import Study
from orchestrator.ledger.records import EndRecord
from orchestrator.ledger.segments import read_ledger
from tests.helpers.study import small_study
from tests.helpers.trials import make_state
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_failing_trial_is_an_outcome(ray_cluster, tmp_path, monkeypatch):
    """Every learning rate diverges: the study says so, with the trials' ends, and exits without a traceback."""
    from orchestrator.study import StudyError

    monkeypatch.setattr("orchestrator.scheduling.arm_search.HOPELESS_TRIALS", 3)

    space = tmp_path / "wild.yaml"
    space.write_text("dimensions: {learning_rate: {type: float, low: 1.0e+30, high: 1.0e+31}}\n")
    arms = {"vanilla": {"objective": "clm", "space": str(space)}}
    study = Study(small_study("diverging", tmp_path, arms=arms))
    with pytest.raises(StudyError, match="diverged"):
        study.run()
    outcomes = {t.outcome for t in study.results.history.trials.values()}
    assert outcomes == {"diverged"}


def test_failures_have_their_outcome_and_reason(ray_cluster, tmp_path):
    """Out of memory; a checkpoint of another shape; one that was cut short, alone, and with a whole one before it."""
    huge = small_study("", tmp_path)["model"]["config"] | {"intermediate_size": 10**10}
    arms = {
        "huge": {"objective": "clm", "model": {"config": huge}},
        "other": {"objective": "clm"},
        "torn": {"objective": "clm"},
        "fine": {"objective": "clm"},
    }
    confirm = {"seeds": 1, "describe_only": True}
    spec = small_study("failing", tmp_path, arms=arms, search={"budget_per_arm": 0}, confirm=confirm)
    study = Study(spec)
    trials = tmp_path / "failing" / "trials"
    for arm in ("other", "torn"):
        checkpoints = Checkpoints(Location(trials / f"confirm-{arm}-000"))
        tensors = {"model": {"body.weight": torch.ones(2, 2)}, "optimiser": {"x": torch.ones(1)}}
        checkpoints.save(7, tensors, make_state(seen=(0, 0)))
        checkpoints.wait()
    torn = trials / "confirm-torn-000" / "start-0001" / "step-00000007" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-3])
    history = study.run().history
    outcomes = {name: (trial.outcome, trial.attempts) for name, trial in history.trials.items()}
    assert outcomes == {
        "confirm-huge-000": ("failed", 2),
        "confirm-other-000": ("failed", 1),
        "confirm-torn-000": ("failed", 1),
        "confirm-fine-000": ("completed", 1),
    }
    records = read_ledger(Location(tmp_path / "failing" / "ledger"))
    reasons = {r.arm: r.reason for r in records if isinstance(r, EndRecord)}
    assert "out of memory" in reasons["huge"]
    assert "micro_batch_sequences" in reasons["huge"]
    assert "of another model" in reasons["other"]
    assert "parameters differ" in reasons["other"]
    assert "checksum differs" in reasons["torn"]
    assert "remove that folder" in reasons["torn"]


def test_a_study_that_has_ended_leaves_one_history_in_memory(tmp_path):
    """That of its results: the driver's own, of ten thousand trials, would be as large again."""
    spec = small_study("one", tmp_path, search={"budget_per_arm": 0}, confirm={"seeds": 1, "describe_only": True})
    script = (
        "import gc, json, sys; from orchestrator import Study; from orchestrator.ledger.history import History;"
        "results = Study(json.loads(sys.argv[1])).run(); gc.collect();"
        "assert [o for o in gc.get_objects() if isinstance(o, History)] == [results.history]"
    )
    subprocess.run([sys.executable, "-c", script, json.dumps(spec)], check=True)
