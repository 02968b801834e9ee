"""From sequences of the stream to micro-batches on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.corpora.packed import Manifest
from trainables.corpora.stream import Batch
from trainables.models.learner import MicroBatch
from trainables.objectives.candidates import in_batch_candidates
from trainables.objectives.corruption import Corrupted, mask, num_masked, shift
from trainables.objectives.registry import ContrastiveOptions, Objective, VocabularyOptions


@dataclass(frozen=True)
class BatchMaker:
    """Corrupts sequences and finds their candidates: a pure function of the sequences, their places and the seed."""

    objective: Objective
    options: ContrastiveOptions | VocabularyOptions
    manifest: Manifest
    seed: int
    mask_rate: float
    device: torch.device

    @property
    def targets_per_sequence(self) -> int:
        """Target positions of a sequence: the same for every sequence."""
        length = self.manifest.sequence_length
        return num_masked(length, self.mask_rate) if self.objective.task == "masked" else length - 1

    def corrupt(self, token_NL: NDArray[np.int64], number_N: NDArray[np.int64]) -> Corrupted:
        """The objective's corruption of clean sequences."""
        if self.objective.task == "causal":
            return shift(token_NL)
        return mask(
            token_NL,
            number_N,
            self.seed,
            mask_rate=self.mask_rate,
            mask_token=self.manifest.mask_token,
            special_tokens=self.manifest.special_tokens,
            vocabulary_size=self.manifest.vocabulary_size,
        )

    def make(self, batch: Batch) -> MicroBatch:
        """One micro-batch of the sequences."""
        corrupted = self.corrupt(batch.token_NL.astype(np.int64), batch.number_N)
        num_sequences, length = batch.token_NL.shape
        position_K = (np.arange(num_sequences)[:, None] * length + corrupted.position_NT).ravel()
        target_K = corrupted.target_NT.ravel()
        candidate_C = log_count_C = index_K = None
        if isinstance(self.options, ContrastiveOptions):
            rng = np.random.default_rng([self.seed, int(batch.number_N[0])])
            found = in_batch_candidates(target_K, self.options.negatives, rng)
            candidate_C = self._send(found.token_C)
            log_count_C = self._send(found.log_count_C).to(torch.float32)
            index_K = self._send(found.index_K)
        return MicroBatch(
            self._send(corrupted.input_NL),
            self._send(position_K),
            self._send(target_K),
            candidate_C,
            log_count_C,
            index_K,
        )

    def num_candidates(self, batch: MicroBatch) -> int:
        """C: the candidates each position of the micro-batch is scored against, its own one included."""
        if batch.candidate_C is None:
            return self.manifest.vocabulary_size
        sampled = isinstance(self.options, ContrastiveOptions) and self.options.negatives is not None
        return len(batch.candidate_C) + sampled

    def _send(self, array: NDArray[np.generic]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)
