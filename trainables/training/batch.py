"""From sequences of the stream to micro-batches on the device.

Letters: N sequences, L tokens each, T targets a sequence, K targets of a micro-batch, V vocabulary, R rows of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from trainables.corpora.stream.frequencies import log_frequencies
from trainables.corpora.stream.token_stream import Batch, TokenStream
from trainables.models.learner import CandidateBatch, Learner, MicroBatch, Table
from trainables.objectives.candidates import (
    Candidates,
    CandidateSet,
    negatives_of,
    sampled_candidates,
    target_candidates,
)
from trainables.objectives.corruption import Corrupted, mask, shift, targets_per_sequence
from trainables.objectives.registry import ContrastiveOptions, SampledOptions
from trainables.training.world import World, host_group


class Part(NamedTuple):
    """One micro-batch, in memory of the host."""

    corrupted: Corrupted
    document_NL: NDArray[np.int64] | None
    candidates: Candidates | None

    @property
    def num_targets(self) -> int:
        """K."""
        return self.corrupted.target_NT.size

    @property
    def num_candidates(self) -> int:
        """As ``MicroBatch.num_candidates``."""
        if self.candidates is None:
            return 0
        return len(self.candidates.token_C) + (self.candidates.own_bias_K is not None)


@dataclass(frozen=True)
class BatchMaker:
    """Corrupts sequences and finds their candidates: a pure function of the sequences, their places and the seed.

    Args:
        learner: decides what is recovered, and from what it is told apart.
        stream: where the sequences are from.
        mask_rate: share of the tokens that a masked objective recovers.
        world: this worker among those whose sequences make a step.
    """

    learner: Learner
    stream: TokenStream
    mask_rate: float
    world: World

    @property
    def targets_per_sequence(self) -> int:
        """Target positions of a sequence: the same for every sequence."""
        length = self.stream.corpus.manifest.sequence_length
        return targets_per_sequence(self.learner.objective.task, length, self.mask_rate)

    def corrupt(self, batch: Batch) -> Corrupted:
        """The objective's corruption of clean sequences."""
        manifest, token_NL = self.stream.corpus.manifest, batch.token_NL.astype(np.int64)
        if self.learner.objective.task == "causal":
            return shift(token_NL)
        return mask(
            token_NL,
            batch.number_N,
            self.stream.seed,
            mask_rate=self.mask_rate,
            mask_token=manifest.required_mask_token,
            special_tokens=manifest.special_tokens,
            vocabulary_size=manifest.vocabulary_size,
        )

    def prepare(self, batch: Batch, first: int, num_parts: int = 1) -> list[Part]:
        """This worker's share of a step as micro-batches, in memory of the host. All workers must call it together.

        Every ``num_parts``-th sequence makes a micro-batch, as every so manyth of the stream makes a worker's share:
        workers and micro-batches divide a step in the same way.

        Args:
            batch: this worker's sequences.
            first: place in the stream of the step's first sequence, of all workers.
            num_parts: micro-batches.
        """
        corrupted, document_NL = self.corrupt(batch), None
        if self.learner.separator is not None:
            ends_NL = (batch.token_NL == self.learner.separator).astype(np.int64)
            document_NL = ends_NL.cumsum(axis=1) - ends_NL
        shared = self._shared_candidates(corrupted.target_NT, first)
        parts = []
        for start in range(num_parts):
            rows = slice(start, None, num_parts)
            part = Corrupted(*(array[rows] for array in corrupted))
            found = shared or self._own_candidates(part.target_NT, int(batch.number_N[start]), first)
            parts.append(
                Part(
                    part,
                    None if document_NL is None else document_NL[rows],
                    None if found is None else found.of(part.target_NT.ravel()),
                )
            )
        return parts

    def _shared_candidates(self, target_NT: NDArray[np.int64], first: int) -> CandidateSet | None:
        """Candidates of all micro-batches and workers, where the objective has such."""
        options = self.learner.options
        rng = np.random.default_rng([self.stream.seed, first])
        if isinstance(options, SampledOptions):
            return sampled_candidates(self._draw(options.samples, rng), self._log_proposal_V)
        if isinstance(options, ContrastiveOptions) and options.gathered:
            # Worker r has the sequences first + r, first + r + W, ...: back into the stream's order.
            target_WNT = _gather(target_NT, self.world)
            return self._contrastive(target_WNT.swapaxes(0, 1).ravel(), rng, first)
        return None

    def _own_candidates(self, target_NT: NDArray[np.int64], number: int, first: int) -> CandidateSet | None:
        if not isinstance(self.learner.options, ContrastiveOptions):
            return None
        return self._contrastive(
            target_NT.ravel(), np.random.default_rng([self.stream.seed, number, 1]), first
        )

    def _contrastive(self, target_P: NDArray[np.int64], rng: np.random.Generator, first: int) -> CandidateSet:
        options = self.learner.options
        assert isinstance(options, ContrastiveOptions)
        missing, beyond_E = (options.negatives or 0) - len(target_P), None
        if missing > 0 and options.beyond_batch == "vocabulary":
            beyond_E = self._draw(missing, rng)
        elif missing > 0 and options.beyond_batch == "queue":
            beyond_E = self._targets_before(first, missing)
        pool_P = negatives_of(target_P, options.negatives, rng, beyond_E)
        return target_candidates(pool_P, self._log_proposal_V if options.log_q else None)

    def _targets_before(self, first: int, count: int) -> NDArray[np.int64]:
        """The last targets before a step: made again from the stream, so there is no queue to keep or to restore."""
        sequences = min(first, -(-count // self.targets_per_sequence))
        number_N = np.arange(first - sequences, first, dtype=np.int64)
        return self.corrupt(self.stream.take(number_N)).target_NT.ravel()[-count:]

    @cached_property
    def _log_proposal_V(self) -> NDArray[np.float64]:
        options = self.learner.options
        if isinstance(options, SampledOptions) and options.proposal == "uniform":
            size = self.stream.corpus.manifest.vocabulary_size
            return np.full(size, -np.log(size), dtype=np.float64)
        return log_frequencies(self.stream)

    @cached_property
    def _cumulative_V(self) -> NDArray[np.float64]:
        cumulative_V: NDArray[np.float64] = np.exp(self._log_proposal_V).cumsum()
        cumulative_V /= cumulative_V[-1]
        return cumulative_V

    def _draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.searchsorted(self._cumulative_V, rng.random(count), side="right")

    def rows(self, parts: list[Part], tables: Mapping[Table, Tensor]) -> dict[Table, NDArray[np.int64]]:
        """The rows of tables that a step's parts touch on any worker, ascending. All workers must call it together."""
        rows: dict[Table, NDArray[np.int64]] = {}
        for name, table_VD in tables.items():
            touched_V = np.zeros(len(table_VD), dtype=np.uint8)
            for part in parts:
                if name == "embedding":
                    touched_V[part.corrupted.input_NL.ravel()] = 1
                if part.candidates is not None and self.learner.candidate_table == name:
                    touched_V[part.candidates.token_C] = 1
                    if part.candidates.own_bias_K is not None:
                        touched_V[part.corrupted.target_NT.ravel()] = 1
            if self.world.size > 1:
                dist.all_reduce(torch.from_numpy(touched_V), op=dist.ReduceOp.MAX, group=host_group())
            rows[name] = np.flatnonzero(touched_V)
        return rows

    def send(
        self,
        part: Part,
        row_R: Mapping[Table, NDArray[np.int64]] | None = None,
        rows: Mapping[Table, Tensor] | None = None,
    ) -> MicroBatch:
        """A micro-batch on the device.

        Args:
            part: the micro-batch.
            row_R: of tables that are updated by rows: the rows that the step touches, ascending, (R,).
            rows: likewise their values, (R, D), to which gradients flow.
        """
        row_R, rows = row_R or {}, rows or {}
        vocabulary_size = self.stream.corpus.manifest.vocabulary_size

        def places(token: NDArray[np.int64], table: Table) -> NDArray[np.int64]:
            if table not in row_R:
                return token
            place_V = np.empty(vocabulary_size, dtype=np.int64)
            place_V[row_R[table]] = np.arange(len(row_R[table]))
            return place_V[token]

        found, candidates, target_K = part.candidates, None, part.corrupted.target_NT.ravel()
        if found is not None:
            table = self.learner.candidate_table
            assert table is not None
            own = found.own_bias_K is not None
            candidates = CandidateBatch(
                self.to_device(found.token_C),
                self.to_device(places(found.token_C, table)),
                self.to_device(found.bias_C.astype(np.float32)),
                self.to_device(found.index_K),
                self.to_device(places(target_K, table)) if own else None,
                self.to_device(found.own_bias_K.astype(np.float32)) if found.own_bias_K is not None else None,
                found.constant,
            )
        return MicroBatch(
            self.to_device(places(part.corrupted.input_NL, "embedding")),
            self.to_device(part.corrupted.position_NT),
            self.to_device(target_K),
            candidates,
            None if part.document_NL is None else self.to_device(part.document_NL),
            dict(rows),
        )

    def to_device(self, array: NDArray[np.generic]) -> Tensor:
        """A copy on the device that the host does not wait for."""
        tensor = torch.from_numpy(np.array(array, order="C"))  # torch wants it writable
        if self.world.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.world.device, non_blocking=True)


def _gather(array: NDArray[np.int64], world: World) -> NDArray[np.int64]:
    """All workers' arrays of one shape, stacked."""
    if world.size == 1:
        return array[None]
    mine = torch.from_numpy(np.ascontiguousarray(array))
    gathered = torch.empty((world.size, *mine.shape), dtype=mine.dtype)
    dist.all_gather(list(gathered), mine, group=host_group())
    return gathered.numpy()
