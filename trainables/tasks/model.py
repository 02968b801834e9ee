"""A language model as tasks ask it: how likely text is, and what it makes of text, layer by layer. Letters: P passages,
N rows of a batch, L tokens each, K scored tokens, D hidden size, V vocabulary, H layers with the embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from trainables.evaluation.held_out import batches
from trainables.evaluation.passes import Taking
from trainables.models.config import Task
from trainables.objectives.loss import slice_rows

Ints = NDArray[np.int64]


class Passage(NamedTuple):
    """A text, of which what begins at a character is scored, given what stands before it."""

    text: str
    start: int = 0


class Scored(NamedTuple):
    """Of passages."""

    log_likelihood_P: NDArray[np.float64]
    """In nats, over the whole vocabulary; an encoder's is a pseudo-log-likelihood (arXiv 1910.14659)."""
    is_first_P: NDArray[np.bool_]
    """Whether each scored token is the model's first choice, given those before it."""


class _Row(NamedTuple):
    """A passage's tokens as the model sees them."""

    token_L: Ints
    scored: range
    """Places of the scored tokens."""
    word_L: Ints
    """The number of the word that each token is of; of a special token -1."""


class LanguageModel:
    """A model in evaluation mode.

    Args:
        body: the transformer, whose layers are one ``ModuleList``.
        hidden: of tokens, (N, L), and their mask, 0 where a position is padding: last hidden states, (N, L, D).
        logits: of hidden states, (K, D), scores of the whole vocabulary, (K, V).
        before: special tokens in front of a text, as the model was trained; a decoder needs one to score a first token.
        after: likewise behind it.
        most_tokens: that a row may have; of a longer text the end is kept.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        task: Task,
        body: nn.Module,
        hidden: Callable[[Tensor, Tensor], Tensor],
        logits: Callable[[Tensor], Tensor],
        *,
        before: Sequence[int],
        after: Sequence[int],
        most_tokens: int,
        vocabulary_size: int,
        hidden_size: int,
    ) -> None:
        self.tokenizer, self.task, self.body = tokenizer, task, body
        self._hidden, self._logits = hidden, logits
        self._before, self._after, self._most = list(before), list(after), most_tokens
        self._device = next(body.parameters()).device
        self._slice = slice_rows(vocabulary_size, hidden_size, self._device)

    @classmethod
    def of_taking(cls, taking: Taking) -> LanguageModel:
        """A study's model by one of its scorers: between separators, as documents are in the text it is trained on."""
        learner, manifest = taking.learner, taking.held_out.corpus.manifest
        separator = [manifest.separator_token]

        def logits(hidden_KD: Tensor) -> Tensor:
            (scores_KV,) = learner.scores(hidden_KD, [taking.scorer]).values()
            return scores_KV

        return cls(
            taking.held_out.tokenizer,
            taking.task,
            learner.body,
            learner.hidden,
            logits,
            before=separator,
            after=separator if taking.task == "masked" else [],
            most_tokens=manifest.sequence_length,
            vocabulary_size=learner.config.vocab_size,
            hidden_size=learner.config.hidden_size,
        )

    @property
    def room(self) -> int:
        """Most tokens of a text in a row, beside the special ones."""
        return self._most - len(self._before) - len(self._after)

    @property
    def num_before(self) -> int:
        """Special tokens in front of a text."""
        return len(self._before)

    def framed(self, tokens: Sequence[int]) -> Ints:
        """A text's tokens between the special ones."""
        return np.array([*self._before, *tokens, *self._after], dtype=np.int64)

    @torch.no_grad()
    def score(self, passages: Sequence[Passage]) -> Scored:
        """How likely each passage's scored part is.

        An encoder's tokens are masked one by one, each together with those that follow it in its word
        (``within_word_l2r``: Kauf and Ivanova 2023, arXiv 2305.10588).
        """
        rows = self._rows(passages)
        log_likelihood_P, is_first_P = np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
        states = self._causal(rows) if self.task == "causal" else self._masked(rows)
        for owner_K, hidden_KD, target_K in states:
            for begin in range(0, len(owner_K), self._slice):
                part = slice(begin, begin + self._slice)
                logits_KV = self._logits(hidden_KD[part]).float()
                target_K1 = target_K[part, None]
                nats_K = logits_KV.logsumexp(1) - logits_KV.gather(1, target_K1)[:, 0]
                is_first_K = logits_KV.argmax(1) == target_K1[:, 0]
                np.subtract.at(log_likelihood_P, owner_K[part], nats_K.cpu().numpy())
                np.logical_and.at(is_first_P, owner_K[part], is_first_K.cpu().numpy())
        return Scored(np.nan_to_num(log_likelihood_P, nan=-np.inf), is_first_P)

    def _rows(self, passages: Sequence[Passage]) -> list[_Row]:
        if not passages:
            return []
        texts = [passage.text for passage in passages]
        found = self.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        room = self._most - len(self._before) - len(self._after)
        rows = []
        for number, passage in enumerate(passages):
            ids, offsets, words = found["input_ids"][number], found["offset_mapping"][number], found.word_ids(number)
            first = next((place for place, (_, end) in enumerate(offsets) if end > passage.start), len(ids))
            cut = max(0, len(ids) - room)
            begin, kept = max(first - cut, 0) + len(self._before), ids[cut:]
            token_L = np.array([*self._before, *kept, *self._after], dtype=np.int64)
            word_L = np.full(len(token_L), -1)
            word_L[len(self._before) : len(self._before) + len(kept)] = [-1 if w is None else w for w in words[cut:]]
            rows.append(_Row(token_L, range(max(begin, self.task == "causal"), len(self._before) + len(kept)), word_L))
        return rows

    def _causal(self, rows: list[_Row]) -> Iterator[tuple[Ints, Tensor, Tensor]]:
        """Whose each scored token is, (K,), the state that is to find it, (K, D), and the token, (K,)."""
        for part in batches([len(row.token_L) for row in rows]):
            token_NL, mask_NL = self._padded([rows[number].token_L for number in part])
            hidden_NLD = self._hidden(token_NL, mask_NL)
            owner_K = np.repeat(part, [len(rows[number].scored) for number in part])
            row_K = np.repeat(np.arange(len(part)), [len(rows[number].scored) for number in part])
            place_K = np.concatenate([np.array(rows[number].scored, dtype=np.int64) for number in part])
            yield owner_K, hidden_NLD[row_K, place_K - 1], token_NL[row_K, place_K]

    def _masked(self, rows: list[_Row]) -> Iterator[tuple[Ints, Tensor, Tensor]]:
        mask_token = self.tokenizer.mask_token_id
        scored = np.array([(owner, place) for owner, row in enumerate(rows) for place in row.scored]).reshape(-1, 2)
        for part in batches([len(rows[owner].token_L) for owner, _ in scored]):
            owner_N, place_N = scored[part].T
            own = [rows[owner] for owner in owner_N]
            inputs = []
            for row, place in zip(own, place_N, strict=True):
                input_L = row.token_L.copy()
                input_L[place] = mask_token
                if row.word_L[place] >= 0:
                    input_L[place:][row.word_L[place:] == row.word_L[place]] = mask_token
                inputs.append(input_L)
            token_NL, mask_NL = self._padded(inputs)
            target_N = torch.tensor([row.token_L[place] for row, place in zip(own, place_N, strict=True)])
            hidden_ND = self._hidden(token_NL, mask_NL)[torch.arange(len(part)), torch.from_numpy(place_N)]
            yield owner_N, hidden_ND, target_N.to(self._device)

    def _padded(self, rows: Sequence[Ints]) -> tuple[Tensor, Tensor]:
        """Tokens and their mask, (N, L)."""
        length_N = np.array([len(row) for row in rows])
        mask_NL = np.arange(length_N.max()) < length_N[:, None]
        token_NL = np.full(mask_NL.shape, self.tokenizer.pad_token_id or 0, dtype=np.int64)
        token_NL[mask_NL] = np.concatenate(rows)
        return torch.from_numpy(token_NL).to(self._device), torch.from_numpy(mask_NL.astype(np.int64)).to(self._device)
