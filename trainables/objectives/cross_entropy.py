"""Cross-entropy against the whole vocabulary: masked and causal language modelling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.models.flops import loss_flops, transform_flops
from trainables.objectives.objective import Objective

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from trainables.objectives.learner import Learner, MicroBatch, States


class CrossEntropy(Objective):
    """The head scores every token of the vocabulary."""

    def whole_tables(self, model: Learner) -> tuple[nn.Parameter, ...]:
        return (model.required_head.weight_VD,)

    def loss(self, model: Learner, batch: MicroBatch, states: States) -> Tensor:
        from trainables.objectives.loss import linear_cross_entropy

        head = model.required_head
        return linear_cross_entropy(head(states.hidden_KD), head.weight_VD, batch.target_K, head.bias)

    def flops(self, config: PreTrainedConfig, num_targets: int, num_candidates: int) -> int:
        return loss_flops(config.hidden_size, num_targets, config.vocab_size) + transform_flops(config, num_targets)


class MaskedLanguageModelling(CrossEntropy):
    """BERT's objective (arXiv 1810.04805), by masked tokens alone."""

    name, task = "mlm", "masked"


class CausalLanguageModelling(CrossEntropy):
    """The next token."""

    name, task = "clm", "causal"
