"""The held-out text that yardsticks are taken on, and what of it is to be recovered. Letters: N sequences, L tokens
each, T targets a sequence, K targets in all, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.stream.manifest import Manifest
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import token_bytes
from trainables.evaluation.yardstick import EvaluationConfig
from trainables.models.config import Task
from trainables.objectives.corruption import masked_positions

HELD_OUT_SEED = 20_230_915  # held-out targets are the same for every arm, trial and seed
ROWS = 256  # of a batch of sentences


class Targets(NamedTuple):
    """Tokens to be recovered."""

    input_NL: NDArray[np.int64]  # what the model sees
    sequence_K: NDArray[np.int64]  # which sequence each target is in, ascending
    position_K: NDArray[np.int64]  # at which position the hidden state must recover it, ascending in a sequence
    target_K: NDArray[np.int64]  # the tokens


def masked_targets(token_NL: NDArray[np.int64], manifest: Manifest, mask_rate: float, task: Task) -> Targets:
    """The targets of recovery: drawn positions, which an encoder finds masked; the first is left out."""
    number_N = np.arange(len(token_NL), dtype=np.int64)
    position_NT = masked_positions(token_NL, number_N, HELD_OUT_SEED, mask_rate, manifest.special_tokens)
    sequence_K, column_K = np.nonzero(position_NT > 0)
    position_K = position_NT[sequence_K, column_K]
    target_K = token_NL[sequence_K, position_K]
    if task == "causal":
        return Targets(token_NL, sequence_K, position_K - 1, target_K)
    input_NL = token_NL.copy()
    np.put_along_axis(input_NL, position_NT, manifest.required_mask_token, axis=1)
    return Targets(input_NL, sequence_K, position_K, target_K)


def likelihood_targets(token_NL: NDArray[np.int64], manifest: Manifest, mask_rate: float, task: Task) -> Targets:
    """The targets of a likelihood: a decoder's are all tokens but the first, an encoder's those of recovery."""
    if task == "masked":
        return masked_targets(token_NL, manifest, mask_rate, task)
    N, L = token_NL.shape
    sequence_K = np.repeat(np.arange(N), L - 1)
    return Targets(token_NL, sequence_K, np.tile(np.arange(L - 1), N), token_NL[:, 1:].ravel())


class HeldOut:
    """Held-out text, read when asked for: ``validation`` while searching, ``test`` (not tuned on) when confirming."""

    def __init__(self, corpus: PackedCorpus, config: EvaluationConfig, split: Literal["validation", "test"]) -> None:
        self.corpus, self.config, self.split = corpus, config, split

    @cached_property
    def _index_of(self) -> dict[str, NDArray[np.int64]]:
        most = self.config.sequences_per_language
        return {
            language: np.arange(min(self.corpus.sequences(self.split, language), most))
            for language in self.corpus.languages
        }

    @cached_property
    def token_NL(self) -> NDArray[np.int64]:
        """Sequences, (N, L), language by language."""
        taken = [self.corpus.take(self.split, *item) for item in self._index_of.items()]
        return np.concatenate(taken).astype(np.int64)

    @cached_property
    def language_N(self) -> NDArray[np.str_]:
        return np.repeat(list(self._index_of), [len(index) for index in self._index_of.values()])

    def masked(self, task: Task) -> Targets:
        return masked_targets(self.token_NL, self.corpus.manifest, self.config.mask_rate, task)

    def likely(self, task: Task) -> Targets:
        return likelihood_targets(self.token_NL, self.corpus.manifest, self.config.mask_rate, task)

    def by_language(self, targets: Targets) -> dict[str, NDArray[np.int64]]:
        """Which of the targets are of each language, by number."""
        language_K = self.language_N[targets.sequence_K]
        return {language: np.flatnonzero(language_K == language) for language in self.corpus.languages}

    @cached_property
    def token_bytes_V(self) -> NDArray[np.int64]:
        """How many UTF-8 bytes each token stands for, (V,)."""
        return token_bytes(self.corpus.tokenizer())

    @cached_property
    def pair_languages(self) -> NDArray[np.str_]:
        return np.array([pair.language for pair in self.corpus.minimal_pairs()])

    @cached_property
    def sentences(self) -> list[list[int]]:
        """The tokens of the good sentences of all minimal pairs, then of the bad ones."""
        pairs, tokenizer = self.corpus.minimal_pairs(), self.corpus.tokenizer()
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
