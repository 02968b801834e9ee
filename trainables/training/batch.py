"""From sequences of the stream to micro-batches on the device. Letters: N sequences, L tokens each, T targets a
sequence, K targets of a micro-batch, V vocabulary, R rows of a table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from trainables.corpora.stream.token_stream import Batch, TokenStream
from trainables.objectives.candidates import Candidates, Pool, Text
from trainables.objectives.corruption import Corrupted
from trainables.objectives.learner import CandidateBatch, Learner, MicroBatch, Table
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
        """Of each position, its own one included; 0 for the whole vocabulary."""
        if self.candidates is None:
            return 0
        return len(self.candidates.token_C) + (self.candidates.own_bias_K is not None)


@dataclass(frozen=True)
class BatchMaker:
    """Corrupts sequences and finds their candidates: a pure function of the sequences, their places and the seed."""

    learner: Learner
    stream: TokenStream
    mask_rate: float
    world: World

    @property
    def targets_per_sequence(self) -> int:
        """Target positions of a sequence: the same for every sequence."""
        length = self.stream.corpus.manifest.sequence_length
        return self.learner.objective.targets_per_sequence(length, self.mask_rate)

    def corrupt(self, batch: Batch) -> Corrupted:
        """The objective's corruption of clean sequences."""
        corpus, seed = self.stream.corpus, self.stream.seed
        return self.learner.objective.corrupt(batch, corpus.manifest, seed, self.mask_rate)

    def prepare(self, batch: Batch, first: int, num_parts: int = 1) -> list[Part]:
        """This worker's share of a step as micro-batches, in memory of the host. All workers must call it together.

        Every ``num_parts``-th sequence makes a micro-batch, as every so manyth of the stream makes a worker's share:
        workers and micro-batches divide a step in the same way. ``first`` is the place in the stream of the step's
        first sequence, of all workers.
        """
        objective, seed = self.learner.objective, self.stream.seed
        corrupted, document_NL = self.corrupt(batch), None
        if self.learner.separator is not None:
            ends_NL = (batch.token_NL == self.learner.separator).astype(np.int64)
            document_NL = ends_NL.cumsum(axis=1) - ends_NL

        def step_targets() -> NDArray[np.int64]:
            # Worker r has the sequences first + r, first + r + W, ...: back into the stream's order.
            return _gather(corrupted.target_NT, self.world).swapaxes(0, 1).ravel()

        found = None
        if objective.gathered:
            found = objective.candidates(self._pool([seed, first], step_targets, first))
        parts = []
        for start in range(num_parts):
            rows = slice(start, None, num_parts)
            part = Corrupted(*(array[rows] for array in corrupted))
            if not objective.gathered:
                keys = [seed, int(batch.number_N[start]), 1]
                found = objective.candidates(self._pool(keys, part.target_NT.ravel, first))
            own_document_NL = None if document_NL is None else document_NL[rows]
            parts.append(Part(part, own_document_NL, None if found is None else found.of(part.target_NT.ravel())))
        return parts

    def _pool(self, keys: list[int], targets: Callable[[], NDArray[np.int64]], first: int) -> Pool:
        return Pool(np.random.default_rng(keys), self._text, targets, partial(self._targets_before, first))

    def _targets_before(self, first: int, count: int) -> NDArray[np.int64]:
        sequences = min(first, -(-count // self.targets_per_sequence))
        number_N = np.arange(first - sequences, first, dtype=np.int64)
        return self.corrupt(self.stream.take(number_N)).target_NT.ravel()[-count:]

    @cached_property
    def _text(self) -> Text:
        return Text(self.stream)

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
        """A micro-batch on the device, with (R,) and (R, D) of tables of which a step touches some rows alone."""
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
            candidates = CandidateBatch(
                self.to_device(found.token_C),
                self.to_device(places(found.token_C, table)),
                self.to_device(found.bias_C.astype(np.float32)),
                self.to_device(found.index_K),
                None if found.own_bias_K is None else self.to_device(places(target_K, table)),
                None if found.own_bias_K is None else self.to_device(found.own_bias_K.astype(np.float32)),
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
