"""The vanilla objectives: cross-entropy against the whole vocabulary."""

from __future__ import annotations

import torch

from tests.helpers.objectives import ObjectiveConformance, cross_entropy_definition

torch.set_num_threads(1)


class CrossEntropyConformance(ObjectiveConformance):
    def definition(self, learner, hidden_KD, part, log_frequency_V):
        return cross_entropy_definition(learner, hidden_KD, part)


class TestMaskedLanguageModelling(CrossEntropyConformance):
    name = "mlm"


class TestCausalLanguageModelling(CrossEntropyConformance):
    name = "clm"
