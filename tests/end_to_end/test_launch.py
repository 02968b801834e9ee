"""A study as a cluster's job, with several workers."""

from __future__ import annotations

import json

import pytest

from cluster.local import LocalCluster
from orchestrator import Results
from orchestrator.config.files import make_study
from orchestrator.ledger.history import History
from orchestrator.scheduling.trials import Planner
from tests.helpers.study import h2h, small_study
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.storage import Location
from trainables.training.loop import Trial

pytestmark = pytest.mark.slow


def test_two_workers_on_a_cluster_train_on_the_batches_of_one_process(tmp_path):
    """Submitted as a job and followed to its end; under Ray Train two workers come to what the loop alone comes to.

    That is, in one process and without Ray, but for rounding.
    """
    content = small_study(
        "pair", tmp_path, search={"budget_per_arm": 0}, confirm={"seeds": 1}, resources={"workers": 2}
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

    history, spec = results.history, make_study(content)
    corpus = str(tmp_path / "corpora" / history.corpus.fingerprint)
    for arm in spec.arms:
        config = Planner(spec, History(), corpus).plan("confirm", arm, 0, 1, {}).config
        trial = history.trials[config.trial]
        assert trial.outcome == "completed"
        stream = TokenStream(PackedCorpus(Location(corpus)), 1, config.alpha, config.maximum_repetition)
        *_, report = Trial(config, stream).run()
        last, alone = trial.measures[-1], report.measure
        assert (last.digest, last.mix, last.step) == (alone.digest, alone.mix, alone.step)
        assert last.loss == pytest.approx(alone.loss, rel=1e-3)
        assert last.yardsticks.keys() == alone.yardsticks.keys()
