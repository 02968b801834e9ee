"""A study as a cluster's job, with several workers."""

from __future__ import annotations

import json

import pytest

from cluster.local import LocalCluster
from orchestrator import Results
from orchestrator.config.files import make_study
from tests.helpers.alone import assert_as_in_one_process
from tests.helpers.study import h2h, small_study

pytestmark = pytest.mark.slow


def test_two_workers_on_a_cluster_train_on_the_batches_of_one_process(tmp_path):
    """Submitted as a job and followed to its end; under Ray Train two workers come to what the loop alone comes to.

    That is, in one process and without Ray, but for rounding.
    """
    content = small_study(
        "pair",
        tmp_path,
        search={"budget_per_arm": 0},
        confirm={"seeds": 1, "describe_only": True},
        resources={"workers": 2},
    )
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(content))
    with LocalCluster(autoscaling=False, head_cpus=2) as cluster:
        done = h2h("submit", str(file), "--address", cluster.dashboard_url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "phase    compare ends" in done.stdout  # the job's own lines
    assert str(tmp_path / "pair") in done.stdout
    results = Results(str(tmp_path / "pair"))
    assert len(results.comparison) == 3
    assert_as_in_one_process(results.history, make_study(content))
