"""Sampled softmax: a sample of the vocabulary, each score lowered by the log-probability of being in it."""

from __future__ import annotations

import numpy as np
import torch

from tests.helpers.corpus import VOCABULARY
from tests.helpers.objectives import ObjectiveConformance
from trainables.objectives.candidates import sampled_candidates

torch.set_num_threads(1)


class SampledConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        options, head = learner.objective.options, learner.head
        if options.proposal == "uniform":
            log_frequency_V = np.full(VOCABULARY, -np.log(VOCABULARY))
        included_V = 1 - (1 - np.exp(log_frequency_V)) ** options.samples
        total = torch.zeros((), dtype=hidden_KD.dtype)
        for query, target in zip(head(hidden_KD), part.corrupted.target_NT.ravel(), strict=True):
            tokens = sorted({*part.candidates.token_C.tolist(), int(target)})
            scores = head.weight_VD[tokens] @ query - torch.from_numpy(np.log(included_V[tokens]))
            if head.bias is not None:
                scores = scores + head.bias[tokens]
            total = total + scores.logsumexp(0) - scores[tokens.index(target)]
        return total


class TestSampledSoftmaxMasked(SampledConformance):
    name = "sampled_softmax"


class TestSampledSoftmaxCausal(SampledConformance):
    name = "sampled_softmax_clm"


def test_sampled_softmax_of_everything_is_softmax():
    """With so many samples that every token is drawn, no correction is left."""
    found = sampled_candidates(np.arange(VOCABULARY).repeat(2000), np.full(VOCABULARY, -np.log(VOCABULARY)))
    assert np.abs(found.of(np.array([5, 7])).bias_C).max() < 1e-3
    assert found.of(np.array([5, 7])).own_bias_K is None
