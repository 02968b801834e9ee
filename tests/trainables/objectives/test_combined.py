"""Cross-entropy and contrastive weight tying, summed."""

from __future__ import annotations

import torch

from tests.helpers.objectives import ObjectiveConformance, contrastive_definition, cross_entropy_definition

torch.set_num_threads(1)


class CombinedConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        contrastive = contrastive_definition(learner, hidden_KD, part, log_frequency_V, learner.embedding_VD, 1.0)
        weight = learner.objective.options.contrastive_weight
        return cross_entropy_definition(learner, hidden_KD, part) + weight * contrastive


class TestCombinedMasked(CombinedConformance):
    name = "mlm+cwt"


class TestCombinedCausal(CombinedConformance):
    name = "clm+cwt"
