"""Other ways to run a study than one worker of this process: more workers, and a cluster's job."""

from __future__ import annotations

import json

import pytest
from small_study import h2h, small_study

from orchestrator import Results
from orchestrator.history import History
from orchestrator.phases import Planner
from orchestrator.study_file import make_study
from trainables.corpora.packed import PackedCorpus
from trainables.corpora.stream import TokenStream
from trainables.storage import Location
from trainables.training.loop import Trial

pytestmark = pytest.mark.slow


def test_two_workers_train_on_the_batches_of_one(tmp_path):
    """Under Ray Train they come to what the loop alone, in one process and without Ray, comes to but for rounding."""
    content = small_study(
        "pair",
        tmp_path,
        arms={"vanilla": {"objective": "clm"}},
        search={"budget_per_arm": 0},
        confirm={"seeds": 1},
        resources={"workers": 2},
    )
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(content))
    done = h2h("run", str(file))
    assert done.returncode == 0, done.stderr
    history = Results(str(tmp_path / "pair")).history
    ((name, trial),) = history.trials.items()
    assert trial.outcome == "completed"

    corpus = tmp_path / "corpora" / history.corpus["fingerprint"]
    config = Planner(make_study(content), History(), str(corpus)).plan("confirm", "vanilla", 0, 1, {}).config
    assert config.trial == name
    stream = TokenStream(PackedCorpus(Location(corpus)), 1, config.alpha, config.maximum_repetition)
    *_, report = Trial(config, stream).run()
    last, alone = trial.measures[-1], report.measure
    assert (last["digest"], last["mix"], last["step"]) == (alone["digest"], alone["mix"], alone["step"])
    assert last["loss"] == pytest.approx(alone["loss"], rel=1e-3)
    assert last["yardsticks"].keys() == alone["yardsticks"].keys()


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
