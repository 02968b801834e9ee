"""The held-out text that yardsticks are taken on, and what of it is to be recovered. Letters: N sequences, L tokens
each, T targets a sequence of an encoder, K targets in all, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.stream.manifest import Manifest
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import token_bytes
from trainables.evaluation.yardstick import EvaluationConfig
from trainables.hashing import permute
from trainables.models.config import Task
from trainables.objectives.corruption import masked_positions
from trainables.storage import Location

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HELD_OUT_SEED = 20_230_915  # held-out targets are the same for every arm, trial and seed
ROWS = 256  # of a batch of sentences


class Targets(NamedTuple):
    """Tokens to be recovered."""

    input_NL: NDArray[np.int64]  # what the model sees
    sequence_K: NDArray[np.int64]  # which sequence each target is in, ascending
    place_K: NDArray[np.int64]  # where it is in its sequence, ascending
    position_K: NDArray[np.int64]  # at which position the hidden state must recover it
    target_K: NDArray[np.int64]  # the tokens


def targets_of(
    token_NL: NDArray[np.int64], number_N: NDArray[np.int64], manifest: Manifest, mask_rate: float, task: Task
) -> Targets:
    """A decoder's are all tokens but the first; an encoder's are drawn by the sequences' numbers, and masked."""
    if task == "causal":
        N, L = token_NL.shape
        place_K = np.tile(np.arange(1, L), N)
        return Targets(token_NL, np.repeat(np.arange(N), L - 1), place_K, place_K - 1, token_NL[:, 1:].ravel())
    position_NT = masked_positions(token_NL, number_N, HELD_OUT_SEED, mask_rate, manifest.special_tokens)
    input_NL = token_NL.copy()
    np.put_along_axis(input_NL, position_NT, manifest.required_mask_token, axis=1)
    sequence_K, place_K = np.repeat(np.arange(len(token_NL)), position_NT.shape[1]), position_NT.ravel()
    return Targets(input_NL, sequence_K, place_K, place_K, token_NL[sequence_K, place_K])


class HeldOut:
    """Held-out text, read when asked for: ``validation`` while searching, ``test`` (not tuned on) when confirming.

    Of each language it has the first sequences of a shuffled order, which is always the same: fewer are some of more,
    with the same masks. ``tasks`` is where the examples of downstream tasks lie, if there are any.
    """

    def __init__(
        self,
        corpus: PackedCorpus,
        config: EvaluationConfig,
        split: Literal["validation", "test"],
        *,
        final: bool = True,
        tasks: Location | None = None,
    ) -> None:
        self.corpus, self.config, self.split, self.final, self.tasks = corpus, config, split, final, tasks
        self.most = config.sequences(final=final)

    @cached_property
    def _index_of(self) -> dict[str, NDArray[np.int64]]:
        """Numbers of the sequences in their language."""
        sizes = {language: self.corpus.sequences(self.split, language) for language in self.corpus.languages}
        return {
            language: permute(np.arange(min(size, self.most)), size, HELD_OUT_SEED) for language, size in sizes.items()
        }

    @cached_property
    def token_NL(self) -> NDArray[np.int64]:
        """Sequences, (N, L), language by language."""
        taken = [self.corpus.take(self.split, *item) for item in self._index_of.items()]
        return np.concatenate(taken).astype(np.int64)

    @cached_property
    def language_N(self) -> NDArray[np.str_]:
        return np.repeat(list(self._index_of), [len(index) for index in self._index_of.values()])

    def targets(self, task: Task) -> Targets:
        number_N = np.concatenate(list(self._index_of.values()))
        return targets_of(self.token_NL, number_N, self.corpus.manifest, self.config.mask_rate, task)

    @cached_property
    def document_NL(self) -> NDArray[np.int64]:
        """The number of each token's document in its language's split: a separator ends its own. (N, L)."""
        before = [
            self.corpus.documents_before(self.split, language)[index] for language, index in self._index_of.items()
        ]
        ends_NL = (self.token_NL == self.corpus.manifest.separator_token).astype(np.int64)
        document_NL: NDArray[np.int64] = np.concatenate(before)[:, None] + ends_NL.cumsum(axis=1) - ends_NL
        return document_NL

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        return self.corpus.tokenizer()

    @cached_property
    def token_bytes_V(self) -> NDArray[np.int64]:
        """How many UTF-8 bytes each token stands for, (V,)."""
        return token_bytes(self.tokenizer)

    @cached_property
    def pair_languages(self) -> NDArray[np.str_]:
        return np.array([pair.language for pair in self.corpus.minimal_pairs()])

    @cached_property
    def sentences(self) -> list[list[int]]:
        """The tokens of the good sentences of all minimal pairs, then of the bad ones."""
        pairs, tokenizer = self.corpus.minimal_pairs(), self.tokenizer
        texts = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
        return [list(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


def passed_tokens(sentences: Sequence[Sequence[int]], task: Task, manifest: Manifest) -> int:
    """Tokens, padding too, that ``passes.log_likelihoods`` passes through a model of the task."""
    length_S = np.array([len(tokens) for tokens in framed(sentences, manifest)])
    lengths = length_S if task == "causal" else np.repeat(length_S, length_S - 2)
    return sum(len(part) * int(lengths[part].max()) for part in batches(lengths))


def framed(sentences: Sequence[Sequence[int]], manifest: Manifest) -> list[NDArray[np.int64]]:
    """Between separators, and no longer than a sequence."""
    separator, limit = manifest.separator_token, manifest.sequence_length - 2
    return [np.array([separator, *sentence[:limit], separator], dtype=np.int64) for sentence in sentences]


def batches(lengths: Sequence[int] | NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Numbers of rows that make a batch: of similar lengths, for little padding."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), ROWS):
        yield order[start : start + ROWS]
