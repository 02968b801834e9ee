"""What is trained: a body, a head where the objective has one, and the loss, as one module.

Letters: N sequences, L tokens each, D hidden size, K target positions, C candidates, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig
from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

from trainables.models.flops import body_flops, loss_flops, transform_flops
from trainables.objectives.loss import linear_cross_entropy
from trainables.objectives.registry import ContrastiveOptions, Objective, VocabularyOptions


class MicroBatch(NamedTuple):
    """One micro-batch, on the device."""

    input_NL: Tensor
    position_K: Tensor
    """Target positions in the flattened (N * L) hidden states."""
    target_K: Tensor
    """The tokens to recover."""
    candidate_C: Tensor | None
    """Candidate tokens; None where the whole vocabulary is the candidate set."""
    log_count_C: Tensor | None
    index_K: Tensor | None
    """Each target's place among the candidates; C where it is the position's own."""


class Head(nn.Module):
    """The vocabulary projection of a vanilla model, as its family has it.

    BERT: a transform, the input embedding as weights (tied), a bias. GPT-NeoX: weights of its own, no bias.
    """

    def __init__(self, config: PreTrainedConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        self.transform: nn.Module | None = None
        self.bias: nn.Parameter | None = None
        if config.model_type == "bert":
            self.transform = BertPredictionHeadTransform(config)
            self.bias = nn.Parameter(torch.zeros(config.vocab_size))
            for module in self.transform.modules():
                if isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, std=config.initializer_range)
                    nn.init.zeros_(module.bias)
        if config.tie_word_embeddings:
            self.weight_VD = embedding
        else:
            self.weight_VD = nn.Parameter(torch.empty_like(embedding))
            nn.init.normal_(self.weight_VD, std=config.initializer_range)

    def forward(self, hidden_KD: Tensor) -> Tensor:
        """What the weights are multiplied with, (K, D)."""
        return hidden_KD if self.transform is None else self.transform(hidden_KD)


class Learner(nn.Module):
    """A model under its objective.

    Args:
        config: of the body; its family decides the head's.
        objective: what is learned.
        options: the objective's.
        attention: transformers' name of an attention implementation.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        objective: Objective,
        options: ContrastiveOptions | VocabularyOptions,
        attention: str = "sdpa",
    ) -> None:
        super().__init__()
        self.config, self.objective, self.options = config, objective, options
        extra = {"add_pooling_layer": False} if config.model_type == "bert" else {}
        # The body draws its weights before the head does: two arms with one seed start from the same body.
        self.body = AutoModel.from_config(config, attn_implementation=attention, **extra)
        self.head = None if objective.headless else Head(config, self.embedding_VD)

    @property
    def embedding_VD(self) -> nn.Parameter:
        """The input embedding table, (V, D)."""
        weight = self.body.get_input_embeddings().weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def hidden(self, input_NL: Tensor, attention_mask_NL: Tensor | None = None) -> Tensor:
        """Last hidden states, (N, L, D)."""
        return self._run_body(F.embedding(input_NL, self.embedding_VD), attention_mask_NL)

    def _run_body(self, embedded_NLD: Tensor, attention_mask_NL: Tensor | None = None) -> Tensor:
        cache = {"use_cache": False} if self.config.model_type == "gpt_neox" else {}
        output = self.body(inputs_embeds=embedded_NLD, attention_mask=attention_mask_NL, **cache)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def forward(self, batch: MicroBatch) -> Tensor:
        """The loss summed over the micro-batch's target positions, a scalar."""
        if batch.candidate_C is None:
            hidden_KD = self.hidden(batch.input_NL).flatten(0, 1)[batch.position_K]
            assert self.head is not None
            return linear_cross_entropy(
                self.head(hidden_KD), self.head.weight_VD, batch.target_K, self.head.bias
            )

        assert isinstance(self.options, ContrastiveOptions)
        assert batch.log_count_C is not None
        assert batch.index_K is not None
        # One look-up of inputs, candidates and (with N negatives) targets: one dense gradient of the table, not three.
        N, L, C = *batch.input_NL.shape, len(batch.candidate_C)
        sampled = self.options.negatives is not None
        wanted = [batch.input_NL.flatten(), batch.candidate_C] + ([batch.target_K] if sampled else [])
        embedded = F.embedding(torch.cat(wanted), self.embedding_VD)
        hidden_KD = self._run_body(embedded[: N * L].view(N, L, -1)).flatten(0, 1)[batch.position_K]
        return contrastive_loss(
            hidden_KD,
            embedded[N * L : N * L + C],
            batch.log_count_C,
            batch.index_K,
            self.options.temperature,
            embedded[N * L + C :] if sampled else None,
        )

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Scores of the whole vocabulary, (K, V): by the head, or by the input embedding where there is none."""
        if self.head is not None:
            return F.linear(self.head(hidden_KD), self.head.weight_VD, self.head.bias)
        assert isinstance(self.options, ContrastiveOptions)
        return hidden_KD @ self.embedding_VD.T / self.options.temperature

    def flops(self, num_sequences: int, sequence_length: int, num_targets: int, num_candidates: int) -> int:
        """FLOPs of a training step, forward and backward (see ``trainables.models.flops``)."""
        D = self.config.hidden_size
        total = num_sequences * body_flops(self.config, sequence_length) + loss_flops(
            D, num_targets, num_candidates
        )
        if self.head is not None and self.head.transform is not None:
            total += transform_flops(D, num_targets)
        return total


def contrastive_loss(
    hidden_KD: Tensor,
    candidate_CD: Tensor,
    log_count_C: Tensor,
    index_K: Tensor,
    temperature: float,
    own_KD: Tensor | None = None,
) -> Tensor:
    """Contrastive weight tying, summed over positions (arXiv 2309.08351, equation 3).

    The paper's loss sums over targets j, duplicates included: exp(s_ij) summed over the m copies of a token is
    exp(s + log m), so unique candidates with bias log m give the same sum. Its numerator has one copy: the bias
    of the target's own candidate, a constant, is added back.

    Args:
        hidden_KD: hidden states at the target positions, (K, D).
        candidate_CD: input embeddings of the unique candidates, (C, D).
        log_count_C: log of how often each is among the negatives, (C,).
        index_K: each target's place among them; C where the sample of negatives lacks it.
        temperature: tau.
        own_KD: input embeddings of the targets, (K, D), where the sample may lack them.
    """
    C = len(candidate_CD)
    missing_K = index_K == C
    own_logit_K = None
    if own_KD is not None:
        own_logit_K = (hidden_KD * own_KD).sum(-1) / temperature
        own_logit_K = own_logit_K.masked_fill(~missing_K, -torch.inf)
    loss = linear_cross_entropy(hidden_KD, candidate_CD / temperature, index_K, log_count_C, own_logit_K)
    return loss + log_count_C[index_K.clamp(max=C - 1)].masked_fill(missing_K, 0.0).sum().to(loss.dtype)
