"""The training loop alone, in one process and without Ray, beside what a study's trials came to."""

from __future__ import annotations

import pytest

from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.scheduling.trials import Planner
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream
from trainables.storage import Location
from trainables.training.loop import Trial


def assert_as_in_one_process(history: History, spec: StudySpec) -> None:
    """The first confirmation run of each arm, of a study without a search, is what the loop alone makes of it.

    That is, but for rounding.
    """
    assert history.corpus is not None
    corpus = f"{spec.storage}/corpora/{history.corpus.fingerprint}"
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
