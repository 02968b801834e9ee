"""A language model as tasks ask it: how likely text is, and what it makes of text, layer by layer. Letters: P passages,
R rows (passages as tokens), N inputs of the model, L tokens each, S states that are scored, K scored tokens, D hidden
size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, takewhile
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from trainables.evaluation.passes import Taking
from trainables.models.body import run_body
from trainables.models.config import Task
from trainables.models.pretrained import head_of, load_whole
from trainables.objectives.learner import Learner
from trainables.objectives.loss import slice_rows
from trainables.objectives.objective import Scorer

Ints = NDArray[np.int64]
CHUNK = 1 << 14
"""Passages that are prepared at a time: neighbours in the order of their texts, which share beginnings."""
MOST_TOKENS = 2048  # that a model sees which names no limit of its own
_ANY_TEXT = "a"  # to see the special tokens around it
INPUT_ELEMENTS = 1 << 22
"""Tokens of an encoder's inputs that are prepared at a time."""
BATCH_TOKENS = 1 << 13
"""Of a batch, padding too."""


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


class _Rows(NamedTuple):
    """Passages' tokens as the model sees them, padded with zeros."""

    token_RL: Ints
    length_R: Ints
    first_R: Ints
    """The place of the first scored token."""
    end_R: Ints
    """The place behind the last one."""
    word_RL: Ints
    """The number of the word that each token is of; of a special token -1. Of a decoder's none is known."""

    def scored(self) -> tuple[Ints, Ints]:
        """Row and place of each scored token, (K,)."""
        count_R = np.maximum(self.end_R - self.first_R, 0)
        return np.repeat(np.arange(len(count_R)), count_R), _ranges(self.first_R, count_R)


class _Asked(NamedTuple):
    """What the model is asked: hidden states of some inputs at some places, none of them twice."""

    input_NL: Ints
    length_N: Ints
    row_S: Ints
    """The input that each state is of, ascending."""
    place_S: Ints
    state_K: Ints
    """The state that is to find each scored token."""


class LanguageModel:
    """A model in evaluation mode.

    Args:
        body: the transformer, whose layers are one ``ModuleList``.
        hidden: of tokens, (N, L), and their mask, 0 where a position is padding: last hidden states, (N, L, D).
        logits: of hidden states, (K, D), scores of the whole vocabulary, (K, V).
        before: special tokens in front of a text, as the model was trained.
        after: likewise behind it.
        most_tokens: that it sees at a time; of a longer text the end is kept.
        prefix: of a decoder that has none in front of a text, what its first token is scored after.
        hidden_at: last hidden states at one place of each row, (N, D), where that costs less than all of them.
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
        prefix: int | None = None,
        hidden_at: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.tokenizer, self.task, self.body = tokenizer, task, body
        self.hidden, self._hidden_at, self._logits = hidden, hidden_at, logits
        self._before, self._after, self._most, self._prefix = list(before), list(after), most_tokens, prefix
        self._device = next(body.parameters()).device
        self._slice = slice_rows(vocabulary_size, hidden_size, self._device)
        self._pieces = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._pieces.no_padding()
        self._pieces.no_truncation()

    @classmethod
    def of_taking(cls, taking: Taking) -> LanguageModel:
        """A study's model by one of its scorers."""
        manifest, tokenizer = taking.held_out.corpus.manifest, taking.held_out.tokenizer
        most_tokens, separator = manifest.sequence_length, manifest.separator_token
        scorer = cast(Scorer, taking.scorer)  # tables, which have other names, are no learners
        return cls.of_learner(taking.learner, scorer, tokenizer, separator, most_tokens)

    @classmethod
    def of_learner(
        cls, learner: Learner, scorer: Scorer, tokenizer: PreTrainedTokenizerFast, separator: int, most_tokens: int
    ) -> LanguageModel:
        """A learner by one of its scorers. Texts are between separators, as documents are in what it is trained on."""
        is_encoder = learner.objective.task == "masked"

        def logits(hidden_KD: Tensor) -> Tensor:
            (scores_KV,) = learner.scores(hidden_KD, [scorer]).values()
            return scores_KV

        def hidden_at(token_NL: Tensor, mask_NL: Tensor, place_N: Tensor) -> Tensor:
            embedded_NLD, place_N1 = F.embedding(token_NL, learner.embedding_VD), place_N[:, None]
            return run_body(learner.body, embedded_NLD, attention_mask_NL=mask_NL, target_position_NT=place_N1).squeeze(
                1
            )

        return cls(
            tokenizer,
            learner.objective.task,
            learner.body,
            learner.hidden,
            logits,
            before=[separator],
            after=[separator] if is_encoder else [],
            most_tokens=most_tokens,
            vocabulary_size=learner.config.vocab_size,
            hidden_size=learner.config.hidden_size,
            hidden_at=hidden_at if is_encoder else None,
        )

    @classmethod
    def of_folder(cls, path: str, device: str = "cpu") -> LanguageModel:
        """A Hugging Face model: an encoder or a decoder by its architecture, in float32. Texts have the special tokens
        that its own tokenizer adds; a decoder's first token is scored after its bos token, or eos token where it has
        none, as lm-evaluation-harness does. Only safetensors are read, and no code is run.

        Raises InputError: there is no such model, or its tokenizer is none of the library ``tokenizers``.
        """
        model, tokenizer = load_whole(path)
        task: Task = "masked" if model.__class__.__name__.endswith("ForMaskedLM") else "causal"
        body = model.to(device).eval().base_model
        marked = tokenizer(_ANY_TEXT, return_special_tokens_mask=True)
        ids, is_special = marked["input_ids"], marked["special_tokens_mask"]
        before = len(list(takewhile(bool, is_special)))
        after = len(list(takewhile(bool, reversed(is_special[before:]))))

        def hidden(token_NL: Tensor, mask_NL: Tensor) -> Tensor:
            states: Tensor = body(input_ids=token_NL, attention_mask=mask_NL).last_hidden_state
            return states

        prefix = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return cls(
            tokenizer,
            task,
            body,
            hidden,
            head_of(model),
            before=ids[:before],
            after=ids[len(ids) - after :],
            most_tokens=min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", MOST_TOKENS)),
            vocabulary_size=model.config.vocab_size,
            hidden_size=model.config.hidden_size,
            prefix=prefix,
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

    def padded(self, rows: Sequence[Ints]) -> tuple[Tensor, Tensor]:
        """Rows of tokens and their mask, (N, L), on the device."""
        length_N = np.array([len(row) for row in rows])
        token_NL = np.zeros((len(rows), length_N.max()), dtype=np.int64)
        token_NL[np.arange(token_NL.shape[1]) < length_N[:, None]] = np.concatenate(rows)
        return self._padded(token_NL, length_N)

    @torch.no_grad()
    def score(self, passages: Sequence[Passage]) -> Scored:
        """How likely each passage's scored part is.

        An encoder's tokens are masked one by one, each together with those that follow it in its word
        (``within_word_l2r``: Kauf and Ivanova 2023, arXiv 2305.10588). What several passages have in common, a
        beginning or a sentence with a gap, the model is asked once.
        """
        log_likelihood_P, is_first_P = np.zeros(len(passages)), np.ones(len(passages), dtype=bool)
        order = sorted(range(len(passages)), key=lambda number: passages[number].text)
        for start in range(0, len(order), CHUNK):
            part = order[start : start + CHUNK]
            rows = self._rows([passages[number] for number in part])
            row_K, place_K = rows.scored()
            target_K = rows.token_RL[row_K, place_K]
            log_K, is_first_K = np.zeros(len(row_K)), np.zeros(len(row_K), dtype=bool)
            for some in self._parts(rows, len(row_K)):
                asked = (self._continued if self.task == "causal" else self._masked)(rows, row_K[some], place_K[some])
                log_K[some], is_first_K[some] = self._answered(asked, target_K[some])
            log_likelihood_P[part] = np.bincount(row_K, log_K, len(part))
            is_first_P[part] = np.bincount(row_K, ~is_first_K, len(part)) == 0
        return Scored(np.nan_to_num(log_likelihood_P, nan=-np.inf, neginf=-np.inf), is_first_P)

    def _parts(self, rows: _Rows, num_tokens: int) -> Iterator[slice]:
        """Of scored tokens as many at a time as there may be inputs: an encoder has one for each."""
        size = num_tokens if self.task == "causal" else INPUT_ELEMENTS // max(1, rows.token_RL.shape[1])
        for start in range(0, num_tokens, max(1, size)):
            yield slice(start, start + max(1, size))

    def _rows(self, passages: Sequence[Passage]) -> _Rows:
        found = self._pieces.encode_batch([passage.text for passage in passages], add_special_tokens=False)
        ids = [one.ids for one in found]
        length_R = np.fromiter(map(len, ids), np.int64, len(ids))
        pairs = zip(passages, found, strict=True)
        first_R = np.fromiter((_first(one.offsets, own.start) if own.start else 0 for own, one in pairs), np.int64)
        before_R = np.full(len(ids), len(self._before))
        if self.task == "causal" and not self._before and self._prefix is not None:
            before_R = (first_R == 0).astype(np.int64)
        # What a decoder sees last finds no token, so that it does not see the last one.
        room_R = self._most + (self.task == "causal") - before_R - len(self._after)
        cut_R = np.maximum(length_R - room_R, 0)
        kept_R, first_R = length_R - cut_R, np.maximum(first_R - cut_R, 0)
        end_R = before_R + kept_R
        token_RL = np.zeros((len(ids), int((end_R + len(self._after)).max(initial=0))), dtype=np.int64)
        word_RL = np.full(token_RL.shape if self.task == "masked" else (0, 0), -1)
        row_T, place_T = np.repeat(np.arange(len(ids)), kept_R), _ranges(before_R, kept_R)
        kept_T = _ranges(np.cumsum(length_R) - kept_R, kept_R)
        token_RL[row_T, place_T] = np.fromiter(chain.from_iterable(ids), np.int64)[kept_T]
        for place, token in enumerate(self._before or [self._prefix or 0]):
            token_RL[before_R > place, place] = token
        for place, token in enumerate(self._after):
            token_RL[np.arange(len(ids)), end_R + place] = token
        if self.task == "masked":
            words = chain.from_iterable(one.word_ids for one in found)
            word_RL[row_T, place_T] = np.fromiter((-1 if w is None else w for w in words), np.int64)[kept_T]
        first_R = np.maximum(first_R + before_R, self.task == "causal")
        return _Rows(token_RL, end_R + len(self._after), first_R, end_R, word_RL)

    def _continued(self, rows: _Rows, row_K: Ints, place_K: Ints) -> _Asked:
        """A decoder's states: each beginning that texts have in common is one, of the first that has it."""
        input_RL, length_R = rows.token_RL[:, :-1], np.maximum(rows.length_R - 1, 0)
        place_L = np.arange(input_RL.shape[1])
        is_text_RL = place_L < length_R[:, None]
        key_RL = np.where(is_text_RL, input_RL + 1, 0)
        order_R = _sorted(key_RL)
        key_RL = key_RL[order_R]
        is_common_RL = np.zeros(key_RL.shape, dtype=bool)
        is_common_RL[1:] = np.logical_and.accumulate(key_RL[1:] == key_RL[:-1], axis=1) & (key_RL[1:] > 0)
        # Numbers of states ascend with rows, so that the latest above is the one that the beginning is common with.
        state_RL = np.where(is_common_RL, -1, np.arange(key_RL.size).reshape(key_RL.shape))
        state_RL[order_R] = np.maximum.accumulate(state_RL, axis=0)
        asked_S, state_K = np.unique(state_RL[row_K, place_K - 1], return_inverse=True)
        sorted_S, place_S = np.divmod(asked_S, max(1, key_RL.shape[1]))
        return _Asked(input_RL[order_R], length_R[order_R], sorted_S, place_S, state_K)

    def _masked(self, rows: _Rows, row_K: Ints, place_K: Ints) -> _Asked:
        """An encoder's states: of each scored token the row in which it and what follows of its word are masked."""
        input_KL, word_KL = rows.token_RL[row_K], rows.word_RL[row_K]
        place_L = np.arange(input_KL.shape[1])
        own_K1 = np.take_along_axis(word_KL, place_K[:, None], 1)
        is_word_KL = (word_KL == own_K1) & (own_K1 >= 0) & (place_L > place_K[:, None])
        input_KL[is_word_KL | (place_L == place_K[:, None])] = self.tokenizer.mask_token_id
        length_K = rows.length_R[row_K]
        key_KL = np.where(place_L < length_K[:, None], input_KL + 1, 0)
        first_S, state_K = _unique(np.column_stack([key_KL, place_K]))
        return _Asked(input_KL[first_S], length_K[first_S], np.arange(len(first_S)), place_K[first_S], state_K)

    def _answered(self, asked: _Asked, target_K: Ints) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Of each scored token its log-probability, and whether it is the model's first choice, (K,)."""
        log_K, is_first_K = np.zeros(len(target_K)), np.zeros(len(target_K), dtype=bool)
        order_K = np.argsort(asked.state_K, kind="stable")
        tokens_S = np.bincount(asked.state_K, minlength=len(asked.row_S))
        begin_S = np.cumsum(tokens_S) - tokens_S
        for state_S, hidden_SD in self._states(asked):
            for begin in range(0, len(state_S), self._slice):
                own_S = state_S[begin : begin + self._slice]
                logits_SV = self._logits(hidden_SD[begin : begin + self._slice]).float()
                token_k = order_K[_ranges(begin_S[own_S], tokens_S[own_S])]
                place_k = torch.from_numpy(np.repeat(np.arange(len(own_S)), tokens_S[own_S])).to(self._device)
                found_k = logits_SV[place_k, torch.from_numpy(target_K[token_k]).to(self._device)]
                top_S1 = logits_SV.amax(1, keepdim=True)
                # In place: to write as many numbers elsewhere takes as long as to find them.
                above_S = logits_SV.sub_(top_S1).exp_().sum(1).log_()
                found_k -= top_S1[place_k, 0]
                is_first_K[token_k] = (found_k == 0).cpu().numpy()
                log_K[token_k] = (found_k - above_S[place_k]).cpu().numpy()
        return log_K, is_first_K

    def _states(self, asked: _Asked) -> Iterator[tuple[Ints, Tensor]]:
        """Numbers of states, and what they are, (S, D), batch by batch."""
        states_N = np.bincount(asked.row_S, minlength=len(asked.length_N))
        begin_N = np.cumsum(states_N) - states_N
        used_N = np.flatnonzero(states_N)
        for part in _batches(asked.length_N[used_N]):
            own_N = used_N[part]
            state_S = _ranges(begin_N[own_N], states_N[own_N])
            place_S = torch.from_numpy(asked.place_S[state_S]).to(self._device)
            token_NL, mask_NL = self._padded(asked.input_NL[own_N], asked.length_N[own_N])
            if self._hidden_at is not None:
                yield state_S, self._hidden_at(token_NL, mask_NL, place_S)
            else:
                row_S = torch.from_numpy(np.repeat(np.arange(len(own_N)), states_N[own_N])).to(self._device)
                yield state_S, self.hidden(token_NL, mask_NL)[row_S, place_S]

    def _padded(self, token_NL: Ints, length_N: Ints) -> tuple[Tensor, Tensor]:
        """Tokens and their mask, (N, L), on the device."""
        longest = int(length_N.max())
        mask_NL = np.arange(longest) < length_N[:, None]
        token_NL = np.where(mask_NL, token_NL[:, :longest], self.tokenizer.pad_token_id or 0)
        return torch.from_numpy(token_NL).to(self._device), torch.from_numpy(mask_NL.astype(np.int64)).to(self._device)


def _first(offsets: Sequence[tuple[int, int]], start: int) -> int:
    """The number of the first piece that is of characters from there on."""
    return next((number for number, (_, end) in enumerate(offsets) if end > start), len(offsets))


def _ranges(start_N: Ints, count_N: Ints) -> Ints:
    """The numbers of ranges, one behind the other."""
    ends_N = np.cumsum(count_N)
    return np.repeat(start_N - ends_N + count_N, count_N) + np.arange(ends_N[-1] if len(ends_N) else 0)


def _as_bytes(key_NL: Ints) -> NDArray[np.bytes_]:
    """Rows that compare as their numbers do, one after the other, (N,)."""
    big_NL = np.ascontiguousarray(key_NL.astype(">u4"))
    return big_NL.view(f"S{max(4, 4 * big_NL.shape[1])}")[:, 0] if big_NL.size else np.zeros(len(key_NL), "S1")


def _sorted(key_NL: Ints) -> Ints:
    return np.argsort(_as_bytes(key_NL), kind="stable")


def _unique(key_NL: Ints) -> tuple[Ints, Ints]:
    """The first row of each kind, and which kind each row is of."""
    _, first, kind = np.unique(_as_bytes(key_NL), return_index=True, return_inverse=True)
    return first, kind


def _batches(length_N: Ints) -> Iterator[Ints]:
    """Numbers of rows that make a batch: of similar lengths, for little padding."""
    order = np.argsort(length_N, kind="stable")
    start = 0
    while start < len(order):
        length_n = length_N[order[start : start + BATCH_TOKENS]]
        fits = np.arange(1, len(length_n) + 1) * length_n <= BATCH_TOKENS
        stop = start + max(1, int(fits.sum()))
        yield order[start:stop]
        start = stop
