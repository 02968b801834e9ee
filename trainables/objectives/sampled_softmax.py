"""Sampled softmax: cross-entropy against a sample of the vocabulary (Bengio and Senecal 2008; arXiv 1412.2007)."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from trainables.config import Config
from trainables.models.flops import loss_flops, transform_flops
from trainables.objectives.objective import Objective

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from trainables.objectives.candidates import CandidateSet, Pool
    from trainables.objectives.learner import Learner, MicroBatch, States


class SampledOptions(Config):
    """Sampled softmax (Bengio and Senecal 2008; arXiv 1412.2007)."""

    samples: int = Field(4096, ge=1)
    """Tokens drawn from the vocabulary, each step anew; each position's own target is always among its candidates."""
    proposal: Literal["frequency", "uniform"] = "frequency"
    """They are drawn by their frequency in the training text, or all alike."""


class SampledSoftmax(Objective):
    """The head scores a sample of the vocabulary; each score is lowered by the log-probability of being in it."""

    Options = SampledOptions
    options: SampledOptions
    restorable = candidates_vary = True

    def candidates(self, pool: Pool) -> CandidateSet:
        """One sample for all positions of the step."""
        from trainables.objectives.candidates import sampled_candidates

        proposal = pool.text.uniform if self.options.proposal == "uniform" else pool.text.by_frequency
        return sampled_candidates(proposal.draw(self.options.samples, pool.rng), proposal.log_probability_V)

    def most_candidates(self, num_targets: int, vocabulary_size: int, searched: Container[str] = ()) -> int:
        """All samples different, and the position's own."""
        return min(self.options.samples, vocabulary_size) + 1

    def candidate_table(self, model: Learner) -> nn.Parameter:
        return model.required_head.weight_VD

    def whole_tables(self, model: Learner) -> tuple[nn.Parameter, ...]:
        return ()

    def loss(self, model: Learner, batch: MicroBatch, states: States) -> Tensor:
        from trainables.objectives.loss import candidate_cross_entropy

        head, found = model.required_head, batch.candidates
        assert found is not None
        if head.bias is not None:
            own_bias_K = None if found.own_bias_K is None else found.own_bias_K + head.bias[batch.target_K]
            found = found._replace(bias_C=found.bias_C + head.bias[found.token_C], own_bias_K=own_bias_K)
        return candidate_cross_entropy(found, head(states.hidden_KD), states.candidate_CD, states.own_KD)

    def flops(self, config: PreTrainedConfig, num_targets: int, num_candidates: int) -> int:
        return loss_flops(config.hidden_size, num_targets, num_candidates) + transform_flops(config, num_targets)


class SampledSoftmaxMasked(SampledSoftmax):
    """Of masked tokens."""

    name, task = "sampled_softmax", "masked"


class SampledSoftmaxCausal(SampledSoftmax):
    """Of next tokens."""

    name, task = "sampled_softmax_clm", "causal"
