"""What is trained: a body and what its objective adds to it, as one module. Letters: N sequences, L tokens each, T
targets a sequence, K = N T target positions, D hidden size, C candidates, V vocabulary, R rows of a table.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig

from trainables.models.body import ATTENTION, documents, embedding_of, make_body, run_body
from trainables.models.flops import body_flops
from trainables.models.head import Head
from trainables.objectives.objective import Objective, Scorer
from trainables.objectives.registry import vanilla_objective

Table = Literal["embedding", "output"]
"""The input embedding, or the head's weights or table of its own that the objective scores candidates with."""


class CandidateBatch(NamedTuple):
    """``trainables.objectives.candidates.Candidates``, on the device."""

    token_C: Tensor
    row_C: Tensor  # where the candidates' weights are in their table: the token ids, or places among a batch's ``rows``
    bias_C: Tensor
    index_K: Tensor
    own_row_K: Tensor | None  # likewise of the targets; None where no position has a candidate of its own
    own_bias_K: Tensor | None
    constant: float


class MicroBatch(NamedTuple):
    """One micro-batch, on the device."""

    input_NL: Tensor  # where the input tokens are in the embedding table: their ids, or places among ``rows``
    position_NT: Tensor  # ascending target positions
    target_K: Tensor  # the tokens to recover
    candidates: CandidateBatch | None  # None where the whole vocabulary is the candidate set
    document_NL: Tensor | None  # number of each token's document, where attention stays inside documents
    rows: dict[Table, Tensor]
    """Of a table that is updated by rows: those that the step touches, (R, D), to which gradients flow."""


class States(NamedTuple):
    """What a loss is made of."""

    hidden_KD: Tensor  # last hidden states at the target positions
    candidate_CD: Tensor  # the candidates' rows of their table; none where no candidates are chosen
    own_KD: Tensor  # likewise of each position's own candidate; none where no position has one


class Learner(nn.Module):
    """A model under its objective: a body, and the parts that the objective adds to it.

    Attention has transformers' name of an implementation; with a separator, which ends documents, it stays in them.
    ``log_unigram_V`` is the log-probability of each token among the text's targets; 0 of all where none is given.
    """

    log_unigram_V: Tensor

    def __init__(
        self,
        config: PreTrainedConfig,
        objective: Objective,
        attention: str = ATTENTION,
        separator: int | None = None,
        log_unigram_V: Tensor | None = None,
    ) -> None:
        super().__init__()
        if log_unigram_V is None:
            log_unigram_V = torch.zeros(config.vocab_size)
        self.register_buffer("log_unigram_V", log_unigram_V, persistent=False)  # the corpus has it
        self.config, self.objective, self.separator = config, objective, separator
        # The body draws its weights before the objective's parts do: two arms with one seed start from the same body.
        self.body = make_body(config, attention)
        self._added: tuple[str, ...] = ()
        self._replace_parts(objective.parts(config, self.embedding_VD))

    def _replace_parts(self, parts: Mapping[str, nn.Module | nn.Parameter]) -> None:
        for name in self._added:
            delattr(self, name)
        for name, part in parts.items():
            assert name == "head" or not hasattr(self, name), f"the learner has a {name} of its own"
            setattr(self, name, part)
        self._added = tuple(parts)

    @property
    def embedding_VD(self) -> nn.Parameter:
        return embedding_of(self.body)

    @property
    def head(self) -> Head | None:
        head = self._modules.get("head")
        assert head is None or isinstance(head, Head)
        return head

    @property
    def required_head(self) -> Head:
        assert self.head is not None
        return self.head

    @property
    def candidate_table(self) -> Table:
        """The table that candidates, where any are chosen, are looked up in."""
        return "embedding" if self.objective.candidate_table(self) is self.embedding_VD else "output"

    @property
    def tables(self) -> dict[Table, nn.Parameter]:
        """The tables of which a step touches but the rows it looks up."""
        tables: dict[Table, nn.Parameter] = {"embedding": self.embedding_VD}
        tables[self.candidate_table] = self.objective.candidate_table(self)
        whole = {id(table) for table in self.objective.whole_tables(self)}
        return {name: table for name, table in tables.items() if id(table) not in whole}

    def hidden(self, input_NL: Tensor, attention_mask_NL: Tensor | None = None) -> Tensor:
        """Last hidden states, (N, L, D)."""
        document_NL = None
        if self.separator is not None and attention_mask_NL is None:
            document_NL = documents(input_NL, self.separator)
        embedded_NLD = F.embedding(input_NL, self.embedding_VD)
        return run_body(self.body, embedded_NLD, attention_mask_NL=attention_mask_NL, document_NL=document_NL)

    def forward(self, batch: MicroBatch) -> Tensor:
        return self.objective.loss(self, batch, self._states(batch))

    def _states(self, batch: MicroBatch) -> States:
        found, rows = batch.candidates, batch.rows
        inputs = batch.input_NL.flatten()
        nothing = inputs[:0]
        row_C = nothing if found is None else found.row_C
        own_row_K = nothing if found is None or found.own_row_K is None else found.own_row_K
        sizes = [len(inputs), len(row_C), len(own_row_K)]
        embedding_RD = rows.get("embedding", self.embedding_VD)
        if self.candidate_table == "embedding":
            # One look-up of inputs, candidates and targets: one gradient of the table, not three.
            looked_up = F.embedding(torch.cat([inputs, row_C, own_row_K]), embedding_RD)
            embedded, candidate_CD, own_KD = torch.split(looked_up, sizes)
        else:
            embedded = F.embedding(inputs, embedding_RD)
            output_RD = rows.get("output", self.objective.candidate_table(self))
            candidate_CD, own_KD = torch.split(F.embedding(torch.cat([row_C, own_row_K]), output_RD), sizes[1:])
        embedded_NLD = embedded.view(*batch.input_NL.shape, -1)
        hidden_NTD = run_body(
            self.body, embedded_NLD, document_NL=batch.document_NL, target_position_NT=batch.position_NT
        )
        return States(hidden_NTD.flatten(0, 1), candidate_CD, own_KD)

    def scores(self, hidden_KD: Tensor, scorers: Sequence[Scorer]) -> dict[Scorer, Tensor]:
        """Scores of the whole vocabulary, (K, V), by each of the scorers: one product for all."""
        logits_KV = self.objective.logits(self, hidden_KD)
        return {name: logits_KV + self.log_unigram_V if name.endswith("+unigram") else logits_KV for name in scorers}

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Scores of the whole vocabulary, (K, V), as the objective implies."""
        scorer = self.objective.scorers[0]
        return self.scores(hidden_KD, (scorer,))[scorer]

    def restore_head(self) -> None:
        """Go on as the vanilla objective, with a head made of what scored tokens (arXiv 2309.08351, section 4.3)."""
        head = self.objective.scoring_head(self)
        self.objective = vanilla_objective(self.objective.task)
        self._replace_parts({"head": head})

    def flops(self, num_sequences: int, sequence_length: int, num_targets: int, num_candidates: int) -> int:
        """FLOPs of a training step, forward and backward, with K targets over all sequences."""
        body = body_flops(self.config, num_sequences, sequence_length, num_targets)
        return body + self.objective.flops(self.config, num_targets, num_candidates)
