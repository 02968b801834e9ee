"""Contrastive objectives: against the targets of the batch, and what their options add to or take from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.helpers.corpus import VOCABULARY, write_corpus
from tests.helpers.learners import make_learner
from tests.helpers.objectives import ObjectiveConformance, contrastive_definition, take
from trainables.corpora.stream.token_stream import TokenStream
from trainables.objectives.contrastive import ContrastiveOptions
from trainables.training.batch import BatchMaker
from trainables.training.world import World

torch.set_num_threads(1)


def temperature_of(learner):
    if learner.objective.options.learn_temperature:
        return learner.log_temperature.exp()
    return learner.objective.options.temperature


class TiedConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        weight_VD = learner.embedding_VD
        weight_VD = weight_VD.detach() if learner.objective.options.detached else weight_VD
        return contrastive_definition(learner, hidden_KD, part, log_frequency_V, weight_VD, temperature_of(learner))


class UntiedConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        return contrastive_definition(
            learner, hidden_KD, part, log_frequency_V, learner.table_VD, temperature_of(learner)
        )


class TestHeadlessMasked(TiedConformance):
    name = "headless_mlm"


class TestHeadlessCausal(TiedConformance):
    name = "headless_clm"


class TestUntiedMasked(UntiedConformance):
    name = "nce_untied"


class TestUntiedCausal(UntiedConformance):
    name = "nce_untied_clm"


def test_a_queue_has_the_targets_that_came_before(tmp_path):
    stream = TokenStream(write_corpus(tmp_path, {"en": 300, "fr": 60}), 3, 0.3, 4.0)
    learner = make_learner("headless_clm", "gpt2", {"negatives": 100, "beyond_batch": "queue"})
    maker = BatchMaker(learner, stream, 0.3, World())
    (part,) = maker.prepare(take(stream, 40, 2), 40)
    before = stream.take(np.arange(30, 40)).token_NL[:, 1:].ravel()[-70:].tolist()
    counts = np.bincount(before + part.corrupted.target_NT.ravel().tolist(), minlength=VOCABULARY)
    token_C = part.candidates.token_C
    assert np.array_equal(np.flatnonzero(counts), token_C)
    assert np.allclose(np.exp(part.candidates.bias_C), counts[token_C])


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"beyond_batch": "queue"}, "negatives"),
        ({"negatives": 0}, "negatives"),
        ({"temperature": 0}, "temperature"),
        ({"beyond_batch": "moon"}, "beyond_batch"),
    ],
)
def test_options_that_are_refused(options, hint):
    with pytest.raises(ValueError, match=hint):
        ContrastiveOptions.model_validate(options)
