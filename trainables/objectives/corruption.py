"""Corruptions: what the model sees and what it must recover. Pure functions of (tokens, sequence numbers, seed).
Letters: N sequences, L tokens each, T targets a sequence.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.stream.manifest import Manifest
from trainables.corpora.stream.token_stream import Batch
from trainables.hashing import hash_uint64, uniform
from trainables.models.config import Task


class Corrupted(NamedTuple):
    """Sequences made into a task. Every sequence has the same number of targets, T."""

    input_NL: NDArray[np.int64]
    position_NT: NDArray[np.int64]  # ascending positions at which the hidden state must recover a target
    target_NT: NDArray[np.int64]  # the clean tokens to recover there


def num_masked(sequence_length: int, mask_rate: float) -> int:
    """Targets a masked sequence has: a fixed number, so that the loss has one normaliser on any number of workers."""
    return max(1, round(mask_rate * sequence_length))


def corrupt(task: Task, batch: Batch, manifest: Manifest, seed: int, mask_rate: float) -> Corrupted:
    """Clean sequences of the stream, made into the task."""
    token_NL = batch.token_NL.astype(np.int64)
    return shift(token_NL) if task == "causal" else mask(token_NL, batch.number_N, manifest, seed, mask_rate)


def masked_positions(
    token_NL: NDArray[np.int64], number_N: NDArray[np.int64], seed: int, mask_rate: float, special: tuple[int, ...]
) -> NDArray[np.int64]:
    """Positions drawn uniformly without replacement, (N, T), ascending; special tokens only where all else is drawn."""
    key_NL = uniform(_keys(token_NL, number_N, seed, salt=1))
    key_NL += np.isin(token_NL, special)
    count = num_masked(token_NL.shape[1], mask_rate)
    chosen = np.argpartition(key_NL, count - 1, axis=1)[:, :count]
    chosen.sort(axis=1)
    return chosen.astype(np.int64)


def mask(
    token_NL: NDArray[np.int64], number_N: NDArray[np.int64], manifest: Manifest, seed: int, mask_rate: float
) -> Corrupted:
    """BERT's corruption (arXiv 1810.04805, section 3.1): 80% mask token, 10% a random ordinary token, 10% unchanged.

    A sequence of the same number in the stream has the same masks wherever it is made.
    """
    position_NT = masked_positions(token_NL, number_N, seed, mask_rate, manifest.special_tokens)
    target_NT = np.take_along_axis(token_NL, position_NT, axis=1)

    def draw(salt: int) -> NDArray[np.uint64]:
        return np.take_along_axis(_keys(token_NL, number_N, seed, salt), position_NT, axis=1)

    special = np.unique(manifest.special_tokens)
    rank_NT = (uniform(draw(2)) * (manifest.vocabulary_size - len(special))).astype(np.int64)
    # The ordinary token of that rank: past every special token with at most so many ordinary ones below it.
    random_NT = rank_NT + np.searchsorted(special - np.arange(len(special)), rank_NT, side="right")
    kind_NT = uniform(draw(3))
    shown_NT = np.where(kind_NT < 0.9, random_NT, target_NT)
    shown_NT = np.where(kind_NT < 0.8, manifest.required_mask_token, shown_NT)
    input_NL = token_NL.copy()
    np.put_along_axis(input_NL, position_NT, shown_NT, axis=1)
    return Corrupted(input_NL, position_NT, target_NT)


def shift(token_NL: NDArray[np.int64]) -> Corrupted:
    """Next-token prediction: every position but the last, a separator too, recovers its successor, T = L - 1."""
    num_sequences, length = token_NL.shape
    position_NT = np.tile(np.arange(length - 1), (num_sequences, 1))
    return Corrupted(token_NL, position_NT, token_NL[:, 1:])


def _keys(token_NL: NDArray[np.int64], number_N: NDArray[np.int64], seed: int, salt: int) -> NDArray[np.uint64]:
    position_L = np.arange(token_NL.shape[1], dtype=np.uint64)
    sequence_key_N = hash_uint64(number_N.astype(np.uint64), seed, salt)
    return hash_uint64(sequence_key_N[:, None] + position_L[None, :])
