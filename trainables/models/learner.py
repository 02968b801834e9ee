"""What is trained: a body, a head or table where the objective has one, and the loss, as one module.

Letters: N sequences, L tokens each, T targets a sequence, K = N T target positions, D hidden size, C candidates,
V vocabulary, R rows of a table.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig

from trainables.models.body import ATTENTION, documents, layers_of, make_body, run_body
from trainables.models.flops import body_flops, loss_flops, transform_flops
from trainables.models.head import Head
from trainables.objectives.loss import linear_cross_entropy
from trainables.objectives.registry import (
    OBJECTIVES,
    CombinedOptions,
    ContrastiveOptions,
    Objective,
    Options,
    TiedOptions,
    VocabularyOptions,
)

LOWEST_TEMPERATURE = 0.01
"""A learned temperature stays above it, as in CLIP (arXiv 2103.00020, section 2.5)."""

Table = Literal["embedding", "output"]
"""The input embedding, or the head's weights or table of its own that the objective scores candidates with."""


class CandidateBatch(NamedTuple):
    """``trainables.objectives.candidates.Candidates``, on the device."""

    token_C: Tensor
    row_C: Tensor
    """Where the candidates' weights are in their table: the token ids, or places among ``MicroBatch.rows``."""
    bias_C: Tensor
    index_K: Tensor
    own_row_K: Tensor | None
    """Likewise of the targets; None where no position has a candidate of its own."""
    own_bias_K: Tensor | None
    constant: float


class MicroBatch(NamedTuple):
    """One micro-batch, on the device."""

    input_NL: Tensor
    """Where the input tokens are in the embedding table: their ids, or places among ``rows``."""
    position_NT: Tensor
    """Ascending target positions."""
    target_K: Tensor
    """The tokens to recover."""
    candidates: CandidateBatch | None
    """None where the whole vocabulary is the candidate set."""
    document_NL: Tensor | None
    """Number of each token's document, where attention stays inside documents."""
    rows: dict[Table, Tensor]
    """Of a table that is updated by rows: those that the step touches, (R, D), to which gradients flow."""

    @property
    def num_candidates(self) -> int:
        """Candidates each position is scored against, its own one included; 0 for the whole vocabulary."""
        if self.candidates is None:
            return 0
        return len(self.candidates.row_C) + (self.candidates.own_row_K is not None)


class Learner(nn.Module):
    """A model under its objective.

    Args:
        config: of the body; its family decides the head's.
        objective: what is learned.
        options: the objective's.
        attention: transformers' name of an attention implementation.
        separator: token that ends a document, where attention stays inside documents; None: it crosses them.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        objective: Objective,
        options: Options,
        attention: str = ATTENTION,
        separator: int | None = None,
    ) -> None:
        super().__init__()
        self.config, self.objective, self.options, self.separator = config, objective, options, separator
        # The body draws its weights before the head does: two arms with one seed start from the same body.
        self.body = make_body(config, attention)
        scorers = {term.weights for term in objective.terms}
        self.head = Head(config, self.embedding_VD) if "head" in scorers else None
        self.table_VD: nn.Parameter | None = None
        if "table" in scorers:
            self.table_VD = nn.Parameter(torch.empty_like(self.embedding_VD))
            nn.init.normal_(self.table_VD, std=config.initializer_range)
        self.log_temperature: nn.Parameter | None = None
        if isinstance(options, ContrastiveOptions) and options.learn_temperature:
            start = math.log(max(options.temperature, LOWEST_TEMPERATURE))
            self.log_temperature = nn.Parameter(torch.tensor([start]))  # FSDP refuses scalars

    @property
    def embedding_VD(self) -> nn.Parameter:
        """The input embedding table, (V, D)."""
        weight = self.body.get_input_embeddings().weight  # type: ignore[operator]
        assert isinstance(weight, nn.Parameter)
        return weight

    @property
    def candidate_table(self) -> Table | None:
        """The table that candidates are looked up in; None where the whole vocabulary is scored."""
        for term in self.objective.terms:
            if term.candidates != "vocabulary":
                tied = self.head is not None and self.head.weight_VD is self.embedding_VD
                return (
                    "embedding"
                    if term.weights == "embedding" or (term.weights == "head" and tied)
                    else "output"
                )
        return None

    @property
    def tables(self) -> dict[Table, nn.Parameter]:
        """The tables of which a step touches but the rows it looks up."""
        tables: dict[Table, nn.Parameter] = {}
        dense = self.head.weight_VD if self.head is not None and self.objective.whole_vocabulary else None
        if self.embedding_VD is not dense:
            tables["embedding"] = self.embedding_VD
        if self.candidate_table == "output":
            tables["output"] = self._output_VD
        return tables

    @property
    def _output_VD(self) -> nn.Parameter:
        weight = self.table_VD if self.head is None else self.head.weight_VD
        assert isinstance(weight, nn.Parameter)
        return weight

    @property
    def temperature(self) -> float | Tensor:
        """tau: what similarities are divided by; a tensor where it is learned."""
        if self.log_temperature is not None:
            return self.log_temperature.exp()
        return self.options.temperature if isinstance(self.options, ContrastiveOptions) else 1.0

    @torch.no_grad()
    def bound_temperature(self) -> None:
        """After an update: a learned temperature stays in its range. A bound in the loss would leave it no gradient."""
        if self.log_temperature is not None:
            self.log_temperature.clamp_(min=math.log(LOWEST_TEMPERATURE))

    def hidden(self, input_NL: Tensor, attention_mask_NL: Tensor | None = None) -> Tensor:
        """Last hidden states, (N, L, D)."""
        packed = self.separator is not None and attention_mask_NL is None
        return run_body(
            self.body,
            F.embedding(input_NL, self.embedding_VD),
            attention_mask_NL=attention_mask_NL,
            document_NL=documents(input_NL, self.separator)
            if packed and self.separator is not None
            else None,
        )

    def forward(self, batch: MicroBatch) -> Tensor:
        """The loss summed over the micro-batch's target positions, a scalar."""
        found, rows = batch.candidates, batch.rows
        inputs = batch.input_NL.flatten()
        candidates = [] if found is None else [found.row_C]
        if found is not None and found.own_row_K is not None:
            candidates.append(found.own_row_K)
        embedding_RD = rows.get("embedding", self.embedding_VD)
        if self.candidate_table == "embedding":
            # One look-up of inputs, candidates and targets: one gradient of the table, not three.
            looked_up = F.embedding(torch.cat([inputs, *candidates]), embedding_RD)
            embedded, candidate_CD = torch.split(looked_up, [len(inputs), len(looked_up) - len(inputs)])
        else:
            embedded, candidate_CD = F.embedding(inputs, embedding_RD), embedding_RD[:0]
            if candidates:
                candidate_CD = F.embedding(torch.cat(candidates), rows.get("output", self._output_VD))

        hidden_NTD = run_body(
            self.body,
            embedded.view(*batch.input_NL.shape, -1),
            document_NL=batch.document_NL,
            target_position_NT=batch.position_NT,
        )
        hidden_KD = hidden_NTD.flatten(0, 1)
        loss = torch.zeros((), device=hidden_KD.device)
        for term in self.objective.terms:
            if term.candidates == "vocabulary":
                assert self.head is not None
                loss = loss + linear_cross_entropy(
                    self.head(hidden_KD), self.head.weight_VD, batch.target_K, self.head.bias
                )
            else:
                assert found is not None
                weight = self.options.contrastive_weight if isinstance(self.options, CombinedOptions) else 1.0
                loss = loss + weight * self._loss_against(found, hidden_KD, candidate_CD, batch.target_K)
        return loss

    def _loss_against(
        self, found: CandidateBatch, hidden_KD: Tensor, looked_up: Tensor, target_K: Tensor
    ) -> Tensor:
        C = len(found.row_C)
        candidate_CD, own_KD = torch.split(looked_up, [C, len(looked_up) - C])
        bias_C, own_bias_K = found.bias_C, found.own_bias_K
        if isinstance(self.options, ContrastiveOptions):
            if isinstance(self.options, TiedOptions) and self.options.detached:
                candidate_CD, own_KD = candidate_CD.detach(), own_KD.detach()
            candidate_CD, own_KD = candidate_CD / self.temperature, own_KD / self.temperature
        else:
            assert self.head is not None
            hidden_KD = self.head(hidden_KD)
            if self.head.bias is not None:
                bias_C = bias_C + self.head.bias[found.token_C]
                own_bias_K = None if own_bias_K is None else own_bias_K + self.head.bias[target_K]
        own_logit_K = None
        if own_bias_K is not None:
            own_logit_K = (hidden_KD * own_KD).sum(-1) + own_bias_K
        return (
            linear_cross_entropy(hidden_KD, candidate_CD, found.index_K, bias_C, own_logit_K) + found.constant
        )

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Scores of the whole vocabulary, (K, V): by the head, or by the table or input embedding without one."""
        if self.head is not None:
            return F.linear(self.head(hidden_KD), self.head.weight_VD, self.head.bias)
        weight_VD = self.embedding_VD if self.table_VD is None else self.table_VD
        return hidden_KD @ weight_VD.T / self.temperature

    def scoring_head(self) -> Head:
        """The head, or where there is none one that scores as the model does without.

        Raises:
            InputError: an encoder whose last LayerNorm cannot be undone (see :meth:`Head.over`).
        """
        if self.head is not None:
            return self.head
        weight_VD = self.embedding_VD if self.table_VD is None else self.table_VD
        with torch.no_grad():
            temperature = float(self.temperature)
        learned = self.log_temperature is not None
        return Head.over(self.config, weight_VD, temperature, final_norm(self.body), learned=learned)

    def restore_head(self) -> None:
        """Go on as the vanilla objective of the task, with a head that at first scores as the model did without one.

        It is made of the embedding (arXiv 2309.08351, section 4.3), or of the table that scored tokens.
        """
        self.head = self.scoring_head()
        self.table_VD = self.log_temperature = None
        self.objective = OBJECTIVES["mlm" if self.objective.task == "masked" else "clm"]
        self.options = VocabularyOptions()

    def flops(self, num_sequences: int, sequence_length: int, num_targets: int, num_candidates: int) -> int:
        """FLOPs of a training step, forward and backward (see ``trainables.models.flops``).

        Args:
            num_sequences: N.
            sequence_length: L.
            num_targets: K, over all sequences.
            num_candidates: C, of the terms that do not score the whole vocabulary.
        """
        D = self.config.hidden_size
        total = body_flops(self.config, num_sequences, sequence_length, num_targets)
        for term in self.objective.terms:
            if term.candidates == "vocabulary":
                total += loss_flops(D, num_targets, self.config.vocab_size)
            else:
                detached = isinstance(self.options, TiedOptions) and self.options.detached
                total += loss_flops(D, num_targets, num_candidates, detached=detached)
            if term.weights == "head" and self.head is not None and self.head.transform is not None:
                total += transform_flops(D, num_targets)
        return total


def final_norm(body: nn.Module) -> nn.LayerNorm | None:
    """The LayerNorm whose output an encoder's last hidden states are; None for a decoder."""
    norm = getattr(getattr(layers_of(body)[-1], "output", None), "LayerNorm", None)
    return norm if isinstance(norm, nn.LayerNorm) else None
