"""The stream: sequence number -> tokens, a pure function of (corpus, seed).

It does not depend on the number of workers or on restarts, and finding the n-th sequence costs the same for every n.
Ray Data moves it (:func:`ray_data_batches`); without Ray the same sequences are read in the process
(:func:`local_batches`).

Letters: N sequences, L tokens each.
"""

import itertools
import math
import pickle
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.stream.mixture import Pattern, mixture_shares
from trainables.corpora.stream.packed import PackedCorpus
from trainables.hashing import hash_uint64, permute
from trainables.object_store import Patience

_BLOCK_TOKENS = 1 << 19  # about so many are read at once: what a read costs beside its tokens is shared by many batches
_RAY_BLOCK_TOKENS = 1 << 22  # the same for Ray Data, where a block costs a task and its way through the object store
_WINDOW_BLOCKS = 32
"""A Ray Data pipeline is finite, the stream is not: it is served as one pipeline after another, of so many blocks."""
_READ_TASKS = 2  # at once, of each worker: one block is made while another is consumed


class Batch(NamedTuple):
    """Consecutive sequences of the stream, as one worker sees them."""

    token_NL: NDArray[np.integer]  # in the shards' unsigned type
    language_N: NDArray[np.int64]  # index into the corpus's languages
    number_N: NDArray[np.int64]  # place in the stream

    def rows(self, rows: slice) -> "Batch":
        """Some of its sequences."""
        return Batch(self.token_NL[rows], self.language_N[rows], self.number_N[rows])


class TokenStream:
    """The training sequences, mixed by :func:`mixture_shares`, in the order of a seed: arms with one see the same."""

    def __init__(self, corpus: PackedCorpus, seed: int, alpha: float, maximum_repetition: float) -> None:
        self.corpus, self.seed = corpus, seed
        self._size_l = np.array([corpus.sequences("train", language) for language in corpus.languages])
        self.share_l = mixture_shares(self._size_l, alpha, maximum_repetition)
        self._pattern = Pattern(self.share_l)

    def take(self, number_N: NDArray[np.int64]) -> Batch:
        """The sequences at these places. Per language every sequence comes once before any comes twice."""
        language_N, count_N = self._pattern.locate(number_N)
        token_NL = np.empty((len(number_N), self.corpus.manifest.sequence_length), dtype=self.corpus.manifest.dtype)
        for language in np.unique(language_N):
            here = language_N == language
            size = int(self._size_l[language])
            epoch, place = np.divmod(count_N[here], size)
            index = np.empty_like(place)
            for e in np.unique(epoch):
                index[epoch == e] = permute(place[epoch == e], size, self.seed, int(language), int(e))
            token_NL[here] = self.corpus.take("train", self.corpus.languages[language], index)
        return Batch(token_NL, language_N, number_N)

    def log_unigram(self, never: Sequence[int] = ()) -> NDArray[np.float64]:
        """Log-probability of each token in the stream, (V,): the training split's tokens, mixed as the stream is.

        It does not depend on the seed. One is added to the count of every token, so that each has some; tokens that are
        ``never`` asked for have no other.
        """
        counts = [self.corpus.token_counts.of(language) for language in self.corpus.languages]
        frequency_V = sum(share * count_V / count_V.sum() for share, count_V in zip(self.share_l, counts, strict=True))
        count_V = sum(int(count_V.sum()) for count_V in counts) * np.asarray(frequency_V)
        count_V[list(never)] = 0.0
        count_V += 1.0
        log_unigram_V: NDArray[np.float64] = np.log(count_V / count_V.sum())
        return log_unigram_V


def sequence_digest(batch: Batch) -> int:
    """Digest of sequences at their places, 64 bits. Digests of parts add up (modulo 2^64) to that of the whole."""
    position_L = np.arange(batch.token_NL.shape[1], dtype=np.uint64)
    hashed_NL = hash_uint64(hash_uint64(batch.token_NL.astype(np.uint64)) + position_L[None, :])
    content_N = hashed_NL.sum(axis=1, dtype=np.uint64)
    hashed_N = hash_uint64(content_N ^ hash_uint64(batch.number_N.astype(np.uint64)))
    return int(hashed_N.sum(dtype=np.uint64))


def local_batches(
    stream: TokenStream, start: int, batch_size: int, rank: int = 0, world_size: int = 1, expected: int | None = None
) -> Generator[Batch, None, None]:
    """One worker's batches from ``start`` on, without end, read in this process.

    Worker r of W has the places start + r, start + r + W, ...: together the workers' n-th batches, of ``batch_size``
    sequences each, are the next ``batch_size * W`` places of the stream. Nothing much is prefetched beyond the
    ``expected`` sequences, those that all workers will ask for, where that is known.
    """
    block, per_step = _block_sequences(stream, batch_size, _BLOCK_TOKENS), batch_size * world_size
    stop = None if expected is None else start + expected
    read = partial(_read, stream, step=world_size)
    with ThreadPoolExecutor(1) as reader:  # reads a block while the one before it is consumed
        first, size = start + rank, batch_size  # the first batch is not to wait for a whole block
        coming = reader.submit(read, first, size)
        while True:
            first += world_size * size
            # What will not be asked for is not read; who asks all the same is served batch by batch.
            left = block if stop is None else max(1, math.ceil((stop - first) / per_step)) * batch_size
            size = min(block, left)
            block_now, coming = coming, reader.submit(read, first, size)
            yield from _split(block_now.result(), batch_size)


def _block_sequences(stream: TokenStream, batch_size: int, tokens: int) -> int:
    """Of a block of whole batches."""
    sequences = tokens // stream.corpus.manifest.sequence_length
    return max(1, sequences // batch_size) * batch_size


def _read(stream: TokenStream, first: int, count: int, step: int) -> Batch:
    return stream.take(first + step * np.arange(count))


def _split(block: Batch, batch_size: int) -> Iterator[Batch]:
    for first in range(0, len(block.number_N), batch_size):
        yield block.rows(slice(first, first + batch_size))


def ray_data_batches(
    stream: TokenStream, start: int, batch_size: int, rank: int = 0, world_size: int = 1, expected: int | None = None
) -> Generator[Batch, None, None]:
    """The same batches as :func:`local_batches`, gathered by Ray Data tasks and prefetched."""
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    block, blocks = _block_sequences(stream, batch_size, _RAY_BLOCK_TOKENS), _WINDOW_BLOCKS
    if expected is not None:
        wanted = max(1, math.ceil(expected / (world_size * batch_size))) * batch_size
        block, blocks = min(block, wanted), min(blocks, math.ceil(wanted / block))
    window, pickled = block * blocks, ray.cloudpickle.dumps(stream)
    for first in itertools.count(start + rank, window * world_size):
        firsts = [first + world_size * offset for offset in range(0, window, block)]
        # The tasks only copy memory-mapped rows. Were CPUs reserved for them, they would wait for ever behind
        # the trials that hold the CPUs and wait for them. So nothing but their number limits how many run at
        # once: without it every block of a window starts a process, half a minute's work for two cores.
        begins = ray.data.from_items(firsts, override_num_blocks=len(firsts))
        tasks = ray.data.TaskPoolStrategy(size=min(_READ_TASKS, len(firsts)))
        read = partial(_columns, pickled, block, world_size, Patience.seconds)
        dataset = begins.map_batches(read, batch_size=1, num_cpus=0, compute=tasks)
        blocks_in_turn = dataset.iter_batches(batch_size=block, prefetch_batches=1, batch_format="numpy")
        with closing(iter(blocks_in_turn)) as columns:
            for column in columns:
                yield from _split(Batch(**column), batch_size)


def _columns(
    pickled: bytes, block: int, step: int, patience: float, begin: dict[str, NDArray[np.int64]]
) -> dict[str, Any]:
    """A Ray Data task: where a block begins, to its sequences. It waits for the storage as long as the trial does, also
    to open the corpus, as unpickling the stream does: so that is done here, and not before Ray calls this."""
    Patience.seconds = patience
    stream: TokenStream = pickle.loads(pickled)
    return _read(stream, int(begin["item"][0]), block, step)._asdict()
