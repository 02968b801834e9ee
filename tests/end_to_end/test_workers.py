"""A study whose trials are Ray Train runs of two workers, from the command line."""

from __future__ import annotations

import json

import pytest

from orchestrator import Results
from orchestrator.config.files import make_study
from orchestrator.ledger.records import BegunRecord
from orchestrator.ledger.segments import read_ledger
from tests.helpers.alone import assert_as_in_one_process
from tests.helpers.study import h2h, small_study


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_workers_train_on_the_batches_of_one_process(tmp_path):
    """In a folder where a module of the user's own is called as a package of ours is, which Ray tells its workers."""
    (tmp_path / "cluster.py").write_text("raise RuntimeError('nobody asked for this module')\n")
    content = small_study(
        "pair",
        tmp_path,
        search={"budget_per_arm": 0},
        confirm={"seeds": 1, "describe_only": True, "evaluations": 1},
        resources={"workers": 2},
    )
    (tmp_path / "study.yaml").write_text(json.dumps(content))
    done = h2h("run", str(tmp_path / "study.yaml"), "--plain", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    results = Results(str(tmp_path / "pair"))
    begun = [r for r in read_ledger(results.folder / "ledger") if isinstance(r, BegunRecord)]
    assert [r.workers for r in begun] == [2, 2]
    assert_as_in_one_process(results.history, make_study(content))
