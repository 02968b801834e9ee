"""A language model as tasks ask it: how likely text is, and what it makes of text, layer by layer. Letters: P passages,
N rows of a batch, L tokens each, K of these tokens, D hidden size, V vocabulary, H layers with the embedding, S parts
of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from trainables.evaluation.held_out import batches
from trainables.evaluation.passes import Taking
from trainables.models.body import layers_of
from trainables.models.config import Task
from trainables.objectives.loss import slice_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

ROWS = 64  # of a batch whose features are taken: of few sentences more would be mostly padding


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


class _Piece(NamedTuple):
    """A row of tokens, and which of them are of which part of a text."""

    token_L: Ints
    place_K: Ints
    part_K: Ints
    """Ascending."""


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

    def of_texts(self, texts: Sequence[str]) -> Floats:
        """The mean state of each text's tokens, by layer, (H, S, D)."""
        return self.features(texts, [[(0, len(text))] for text in texts])

    def of_words(self, sentences: Sequence[Sequence[str]]) -> Floats:
        """The mean state of each word's tokens, by layer, (H, S, D): of the first sentence's words, then the next's."""
        parts = []
        for words in sentences:
            end_S = np.cumsum([len(word) + 1 for word in words]) - 1
            parts.append([(int(end) - len(word), int(end)) for word, end in zip(words, end_S, strict=True)])
        return self.features([" ".join(words) for words in sentences], parts)

    @torch.no_grad()
    def features(self, texts: Sequence[str], parts: Sequence[Sequence[tuple[int, int]]]) -> Floats:
        """Of parts of texts, each from a character to another, the mean state of their tokens, by layer, (H, S, D).

        A text's parts ascend; a token that two share is of both, and a part without a token has zeros. A text that is
        longer than a row is seen in pieces.
        """
        pieces = self._pieces(texts, parts)
        size_S, sum_HSD = np.zeros(sum(map(len, parts))), np.zeros((0, 0, 0), dtype=np.float32)
        for begin in range(0, len(pieces), ROWS):
            rows = pieces[begin : begin + ROWS]
            row_K = np.repeat(np.arange(len(rows)), [len(row.part_K) for row in rows])
            place_K, part_K = (np.concatenate(own) for own in zip(*(row[1:] for row in rows), strict=True))
            # A part's tokens lie together, and are added in their order: the same sums with any number of threads.
            first_K = np.flatnonzero(np.diff(part_K, prepend=-1))
            own_S = part_K[first_K]

            def pooled(hidden_NLD: Tensor) -> Floats:
                token_KD = hidden_NLD[row_K, place_K].float().cpu().numpy()  # noqa: B023
                return np.add.reduceat(token_KD, first_K) if len(first_K) else token_KD  # noqa: B023

            own_HSD = self._layers(*self._padded([row.token_L for row in rows]), pooled)
            if not sum_HSD.size:
                sum_HSD = np.zeros((len(own_HSD), len(size_S), own_HSD[0].shape[-1]), dtype=np.float32)
            sum_HSD[:, own_S] += own_HSD
            size_S[own_S] += np.diff(first_K, append=len(part_K))
        return sum_HSD / np.maximum(size_S, 1).astype(np.float32)[:, None]

    def _pieces(self, texts: Sequence[str], parts: Sequence[Sequence[tuple[int, int]]]) -> list[_Piece]:
        """All texts' rows, those of one text together, texts of similar lengths beside each other."""
        found = self.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
        begin_T = np.cumsum([0, *map(len, parts)])
        room, shift = self._most - len(self._before) - len(self._after), len(self._before)
        pieces = []
        for text in np.argsort([len(ids) for ids in found["input_ids"]], kind="stable"):
            ids, offset_L2 = found["input_ids"][text], np.array(found["offset_mapping"][text]).reshape(-1, 2)
            start_S, end_S = np.array(parts[text]).reshape(-1, 2).T
            first_L = np.searchsorted(end_S, offset_L2[:, 0], side="right")
            num_L = np.maximum(np.searchsorted(start_S, offset_L2[:, 1], side="left") - first_L, 0)
            place_K = np.repeat(np.arange(len(ids)), num_L)
            part_K = (
                begin_T[text] + first_L[place_K] + np.arange(len(place_K)) - np.repeat(num_L.cumsum() - num_L, num_L)
            )
            for cut in range(0, max(1, len(ids)), room):
                own = slice(*np.searchsorted(place_K, [cut, cut + room]))
                token_L = np.array([*self._before, *ids[cut : cut + room], *self._after], dtype=np.int64)
                pieces.append(_Piece(token_L, place_K[own] - cut + shift, part_K[own]))
        return pieces

    def _layers(self, token_NL: Tensor, mask_NL: Tensor, pooled: Callable[[Tensor], Floats]) -> list[Floats]:
        """Of what goes into each layer, and of the last hidden states, (N, L, D) each: transformers'
        ``hidden_states``. Of all layers but what is pooled is kept."""
        found: list[Floats] = []

        def keep(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            found.append(pooled(args[0] if args else named["hidden_states"]))

        with ExitStack() as hooks:
            for layer in layers_of(self.body):
                hooks.callback(layer.register_forward_pre_hook(keep, with_kwargs=True).remove)
            last_NLD = self._hidden(token_NL, mask_NL)
        return [*found, pooled(last_NLD)]

    def _padded(self, rows: Sequence[Ints]) -> tuple[Tensor, Tensor]:
        """Tokens and their mask, (N, L)."""
        length_N = np.array([len(row) for row in rows])
        mask_NL = np.arange(length_N.max()) < length_N[:, None]
        token_NL = np.full(mask_NL.shape, self.tokenizer.pad_token_id or 0, dtype=np.int64)
        token_NL[mask_NL] = np.concatenate(rows)
        return torch.from_numpy(token_NL).to(self._device), torch.from_numpy(mask_NL.astype(np.int64)).to(self._device)
