"""Other ways to run a study than one worker of this process: more workers, and a cluster's job."""

from __future__ import annotations

import json

import pytest
from small_study import h2h, small_study

from orchestrator import Results, Study

pytestmark = pytest.mark.slow


def test_two_workers_train_on_the_batches_of_one(ray_cluster, tmp_path):
    """Under Ray Train, where one worker gives the same to the bit (test_chaos), two give the same but for rounding."""
    common = {
        "arms": {"vanilla": {"objective": "clm"}},
        "search": {"budget_per_arm": 0},
        "confirm": {"seeds": 1},
    }
    alone = Study(small_study("alone", tmp_path, **common)).run()
    file = tmp_path / "pair.yaml"
    file.write_text(json.dumps(small_study("pair", tmp_path, **common, resources={"workers": 2})))
    done = h2h("run", str(file))
    assert done.returncode == 0, done.stderr
    ((name, trial),) = Results(str(tmp_path / "pair")).history.trials.items()
    assert trial.outcome == "completed"
    last, other = trial.measures[-1], alone.history.trials[name].measures[-1]
    assert (last["digest"], last["mix"], last["step"]) == (other["digest"], other["mix"], other["step"])
    assert last["loss"] == pytest.approx(other["loss"], rel=1e-3)


def test_submit_a_study_to_a_local_head_node(tmp_path):
    """The whole study as a job: followed to its end, results read from the storage."""
    from cluster.local import LocalCluster

    file = tmp_path / "study.yaml"
    file.write_text(
        json.dumps(small_study("job", tmp_path, search={"budget_per_arm": 1}, confirm={"seeds": 1}))
    )
    with LocalCluster(autoscaling=False, head_cpus=2) as cluster:
        done = h2h("submit", str(file), "--address", cluster.dashboard_url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "phase    compare ends" in done.stdout  # the job's own lines
    assert str(tmp_path / "job") in done.stdout
    assert len(Results(str(tmp_path / "job")).comparison) == 3
