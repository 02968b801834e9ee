"""Resume at any cursor, with any number of workers, batch size and feed: the undisturbed stream's tokens and masks."""

from __future__ import annotations

import random
from itertools import islice
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.helpers.corpus import LENGTH, write_corpus
from tests.helpers.learners import make_learner
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_stream import TokenStream, local_batches, ray_data_batches
from trainables.training.batch import BatchMaker
from trainables.training.world import World

torch.set_num_threads(1)

SIZES = {"de": 90, "en": 400, "sw": 13}
UNDISTURBED = 20_000
"""Sequences read once from the start: some periods of the mixture, many epochs of each language."""
WORLD_SIZES = (1, 2, 3, 4, 5, 8, 16)


class Seen(NamedTuple):
    """What a model sees of sequences, and what it must recover."""

    number_N: NDArray[np.int64]
    language_N: NDArray[np.int64]
    token_NL: NDArray[np.integer]
    input_NL: NDArray[np.int64]
    position_NT: NDArray[np.int64]
    target_NT: NDArray[np.int64]


class Resumption(NamedTuple):
    """One way to go on: where, on how many workers, in which batches and micro-batches."""

    cursor: int
    world_size: int
    batch_size: int
    """Of each worker."""
    num_parts: int
    steps: int

    @property
    def sequences(self) -> int:
        return self.steps * self.batch_size * self.world_size


def resumptions(seed: int, count: int) -> list[Resumption]:
    generator = random.Random(seed)
    made = []
    for number in range(count):
        world_size = WORLD_SIZES[number % len(WORLD_SIZES)]
        batch_size, steps = generator.randint(1, 48), generator.randint(1, 4)
        cursor = generator.randint(0, UNDISTURBED - steps * batch_size * world_size)
        made.append(Resumption(cursor, world_size, batch_size, generator.randint(1, batch_size), steps))
    return made


RESUMPTIONS = resumptions(0, 50)
THROUGH_RAY_DATA = [how for how in RESUMPTIONS if how.world_size in (2, 3, 4)][2:5]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PackedCorpus:
    return write_corpus(tmp_path_factory.mktemp("corpus"), SIZES)


@pytest.fixture(scope="module")
def stream(corpus: PackedCorpus) -> TokenStream:
    return TokenStream(corpus, 7, 0.3, 4.0)


def maker(stream: TokenStream, name: str = "mlm") -> BatchMaker:
    return BatchMaker(make_learner(name, "bert", {}), stream, 0.3, World())


@pytest.fixture(scope="module")
def undisturbed(stream: TokenStream) -> Seen:
    """Read once from the start, by one worker, a sequence a batch."""
    batches = list(islice(local_batches(stream, 0, 1), UNDISTURBED))
    corrupted = [maker(stream).corrupt(batch) for batch in batches[: UNDISTURBED // 10]]
    whole = [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]
    token_NL, language_N, number_N = whole
    # One sequence at a time is slow; of the first tenth it shows that the batch of all says the same.
    together = maker(stream).corrupt(type(batches[0])(*whole))
    for one, other in zip(map(np.concatenate, zip(*corrupted, strict=True)), together, strict=True):
        np.testing.assert_array_equal(one, other[: len(one)])
    np.testing.assert_array_equal(number_N, np.arange(UNDISTURBED))
    return Seen(number_N, language_N, token_NL, *together)


def resumed(stream: TokenStream, how: Resumption, feed=local_batches, name: str = "mlm") -> Seen:
    """What all workers see together after going on, in the stream's order: through the trainer's own micro-batches."""
    make, found = maker(stream, name), list[Seen]()
    for rank in range(how.world_size):
        batches = feed(stream, how.cursor, how.batch_size, rank, how.world_size, expected=how.sequences)
        try:
            for step, batch in enumerate(islice(batches, how.steps)):
                first = how.cursor + step * how.batch_size * how.world_size
                assert batch.number_N[0] == first + rank
                for start, part in enumerate(make.prepare(batch, first, how.num_parts)):
                    rows = slice(start, None, how.num_parts)
                    clean = (batch.number_N[rows], batch.language_N[rows], batch.token_NL[rows])
                    found.append(Seen(*clean, *part.corrupted))
        finally:
            batches.close()
    whole = Seen(*map(np.concatenate, zip(*found, strict=True)))
    order = np.argsort(whole.number_N)
    return Seen(*(array[order] for array in whole))


def assert_undisturbed(got: Seen, undisturbed: Seen, how: Resumption) -> None:
    for name, array, expected in zip(Seen._fields, got, undisturbed, strict=True):
        np.testing.assert_array_equal(
            array, expected[how.cursor : how.cursor + how.sequences], err_msg=f"{name}, {how}"
        )


@pytest.mark.parametrize("how", RESUMPTIONS, ids=lambda how: f"{how.cursor}-on-{how.world_size}")
def test_resumed_at_a_cursor(stream: TokenStream, undisturbed: Seen, how: Resumption) -> None:
    assert_undisturbed(resumed(stream, how), undisturbed, how)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("ray_cluster")
def test_resumed_through_ray_data(stream: TokenStream, undisturbed: Seen) -> None:
    for how in THROUGH_RAY_DATA:
        assert_undisturbed(resumed(stream, how, ray_data_batches), undisturbed, how)


def test_the_masks_are_of_their_seed_and_place_and_the_same_in_both_arms(
    corpus: PackedCorpus, stream: TokenStream, undisturbed: Seen
) -> None:
    how = Resumption(4090, 3, 7, 2, 3)
    assert_undisturbed(resumed(stream, how, name="headless_mlm"), undisturbed, how)
    other = resumed(TokenStream(corpus, 8, 0.3, 4.0), how)
    own = undisturbed.position_NT[how.cursor : how.cursor + how.sequences]
    assert (other.position_NT == own).all(axis=1).mean() < 0.1
    # A sequence that comes again, in a later epoch, is masked elsewhere.
    rows = np.flatnonzero((undisturbed.token_NL == undisturbed.token_NL[0]).all(axis=1))
    assert len(rows) > 5
    assert len(np.unique(undisturbed.position_NT[rows], axis=0)) > 1
    assert undisturbed.input_NL.shape == (UNDISTURBED, LENGTH)


@settings(max_examples=60, deadline=None)
@given(start=st.one_of(st.just(0), st.integers(0, 10**12)), length=st.integers(1, 9000))
def test_any_stretch_of_the_stream_has_the_mix(stream: TokenStream, start: int, length: int) -> None:
    """At any moment, from any moment on: each language's sequences are the target's to within a few, where a block of
    the mixture has 4096 places; and the tokens are of the language that the batch says."""
    first = stream.take(start + np.arange(length))
    seen_Nl = np.cumsum(first.language_N[:, None] == np.arange(len(SIZES)), axis=0)
    target_Nl = np.arange(1, length + 1)[:, None] * stream.share_l
    few_l = 3 + 0.5 * stream.share_l * len(SIZES)  # at each end of the stretch
    assert (np.abs(seen_Nl - target_Nl) <= 2 * few_l).all()
    for language, name in enumerate(stream.corpus.languages):
        own = stream.corpus.take("train", name, np.arange(SIZES[name]))
        tokens = first.token_NL[first.language_N == language]
        assert set(map(bytes, tokens)) <= set(map(bytes, own))
