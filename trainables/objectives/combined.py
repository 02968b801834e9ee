"""Cross-entropy and contrastive weight tying, summed (arXiv 2309.08351, section 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from trainables.objectives.contrastive import Tied, TiedOptions
from trainables.objectives.cross_entropy import CrossEntropy
from trainables.objectives.objective import NoOptions, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from trainables.objectives.learner import Learner, MicroBatch, States
    from trainables.objectives.objective import Parts


class CombinedOptions(TiedOptions):
    """Cross-entropy and contrastive weight tying, summed (arXiv 2309.08351, section 5.1)."""

    contrastive_weight: float = Field(1.0, gt=0)
    """The contrastive loss is multiplied by it. The paper's is 1."""


class Combined(Tied):
    """The head and the input embedding learn to score tokens; the head does so in the end."""

    Options = CombinedOptions
    options: CombinedOptions
    headless = False
    cross_entropy = CrossEntropy(NoOptions())

    def parts(self, config: PreTrainedConfig, embedding_VD: nn.Parameter) -> Parts:
        return self.cross_entropy.parts(config, embedding_VD) | super().parts(config, embedding_VD)

    def whole_tables(self, model: Learner) -> tuple[nn.Parameter, ...]:
        return self.cross_entropy.whole_tables(model)

    def loss(self, model: Learner, batch: MicroBatch, states: States) -> Tensor:
        contrastive = super().loss(model, batch, states)
        return self.cross_entropy.loss(model, batch, states) + self.options.contrastive_weight * contrastive

    def flops(self, config: PreTrainedConfig, num_targets: int, num_candidates: int) -> int:
        contrastive = super().flops(config, num_targets, num_candidates)
        return self.cross_entropy.flops(config, num_targets, num_candidates) + contrastive

    scorers, logits, scoring_head = Objective.scorers, Objective.logits, Objective.scoring_head


class CombinedMasked(Combined):
    """Of masked tokens."""

    name, task = "mlm+cwt", "masked"


class CombinedCausal(Combined):
    """Of next tokens."""

    name, task = "clm+cwt", "causal"
