"""Objectives of other packages keep what the shipped ones do."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.helpers.extensions import COUNTS, documented_code, members
from tests.helpers.objectives import ObjectiveConformance

torch.set_num_threads(1)


class TestRegression(ObjectiveConformance):
    """A module and a loss of its own, as the documentation has it."""

    name, exported = "regression_clm", False
    objective = members(documented_code()[0])["Regression"]
    variations = ({}, {"margin": 0.1})

    def definition(self, learner, hidden_KD, part, log_frequency_V):
        targets = part.corrupted.target_NT.ravel()
        total = torch.zeros((), dtype=hidden_KD.dtype)
        for k, hidden in enumerate(hidden_KD):
            predicted = learner.projection.weight @ hidden + learner.projection.bias
            own, other = (
                functional.cosine_similarity(predicted, learner.embedding_VD[token], dim=0)
                for token in (targets[k], targets[k - 1])
            )
            total = total + torch.clamp(learner.objective.options.margin - own + other, min=0)
        return total


class TestTempered(ObjectiveConformance):
    """Another weighting of a shipped objective's candidates."""

    name = "tempered_clm"
    objective = members(COUNTS)["Tempered"]
    variations = ({}, {"power": 0.0, "temperature": 0.5}, {"power": 1.0, "negatives": 9})

    def definition(self, learner, hidden_KD, part, log_frequency_V):
        options, token_C = learner.objective.options, part.candidates.token_C
        weight_V = torch.zeros(len(learner.embedding_VD), dtype=hidden_KD.dtype)
        weight_V[token_C] = torch.from_numpy(part.candidates.bias_C).exp()
        if options.power:
            counts_C = weight_V[token_C] ** (1 / options.power)
            torch.testing.assert_close(counts_C, counts_C.round())
        total = torch.zeros((), dtype=hidden_KD.dtype)
        for query, target in zip(hidden_KD, part.corrupted.target_NT.ravel(), strict=True):
            similarity_V = learner.embedding_VD @ query / options.temperature
            among_V = weight_V.clone()
            among_V[target] = weight_V[target] if target in token_C else 1.0
            total = total + (among_V * similarity_V.exp()).sum().log() - similarity_V[target]
        return total
