"""The stream: a pure function of (corpus, seed, place), whatever reads it."""

from __future__ import annotations

import os
from itertools import islice, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import cloudpickle

from tests.helpers.corpus import LENGTH, write_corpus
from trainables.corpora.stream import packed
from trainables.corpora.stream.mixture import PERIOD, Pattern, mixture_shares
from trainables.corpora.stream.token_stream import Batch, TokenStream, local_batches, ray_data_batches, sequence_digest
from trainables.hashing import permute
from trainables.object_store import Patience

SIZES = {"de": 90, "en": 400, "sw": 13}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), SIZES)


@pytest.fixture(scope="module")
def stream(corpus):
    return TokenStream(corpus, 7, alpha=0.3, maximum_repetition=4.0)


def assert_same(one, other):
    for got, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(got, expected)


def join(batches):
    """Batches as one, in the order of their places."""
    joined = Batch(*(np.concatenate(arrays) for arrays in zip(*batches, strict=True)))
    order = np.argsort(joined.number_N)
    return Batch(*(array[order] for array in joined))


# --- permutation --------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(size=st.integers(1, 3000), key=st.integers(0, 2**63), other=st.integers(0, 2**63))
def test_permute_is_a_bijection_that_differs_by_key(size, key, other):
    image = permute(np.arange(size), size, key)
    np.testing.assert_array_equal(np.sort(image), np.arange(size))
    if size > 200 and key != other:  # two random permutations of few elements may well be the same
        assert (image == permute(np.arange(size), size, other)).mean() < 0.1
        assert (image == np.arange(size)).mean() < 0.1


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 64, 65, 4095, 4096, 4097])
def test_permute_at_the_edges_of_its_domain(size):
    np.testing.assert_array_equal(np.sort(permute(np.arange(size), size, 3, 1)), np.arange(size))


def test_permute_takes_indices_one_by_one_and_large_sizes():
    size = 10**12 + 39
    index = np.array([0, 1, size // 2, size - 1])
    image = permute(index, size, 5)
    assert len(set(image.tolist())) == 4
    assert ((image >= 0) & (image < size)).all()
    for one, expected in zip(index, image, strict=True):
        assert permute(np.array([one]), size, 5)[0] == expected


def test_permute_spreads_neighbours():
    """The mean distance between the images of neighbours is a third of the size, as of random points."""
    image = permute(np.arange(20_000), 20_000, 11)
    assert np.abs(np.diff(image)).mean() == pytest.approx(20_000 / 3, rel=0.05)


# --- mixture ------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 10**9), min_size=1, max_size=12), alpha=st.floats(0, 1.5))
def test_shares_without_a_cap_are_the_formula(sizes, alpha):
    share_l = mixture_shares(np.array(sizes), alpha, maximum_repetition=1e18)
    powers = [float(size) ** alpha for size in sizes]
    np.testing.assert_allclose(share_l, [power / sum(powers) for power in powers], rtol=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=10),
    alpha=st.floats(0, 1),
    repetition=st.floats(1.001, 50),
)
def test_capped_shares(sizes, alpha, repetition):
    size_l = np.array(sizes)
    share_l = mixture_shares(size_l, alpha, repetition)
    cap_l = repetition * size_l / size_l.sum()
    assert share_l.sum() == pytest.approx(1.0, abs=1e-12)
    assert (share_l <= cap_l * (1 + 1e-9)).all(), "a language is repeated too often"
    # The languages below their cap keep their proportions, and no capped one would do with less.
    free_l = share_l < cap_l * (1 - 1e-9)
    assert free_l.any() or np.isclose(cap_l.sum(), 1.0)
    if free_l.any():
        scale_l = share_l / size_l.astype(float) ** alpha
        np.testing.assert_allclose(scale_l[free_l], scale_l[free_l][0], rtol=1e-9)
        assert (scale_l[~free_l] <= scale_l[free_l][0] * (1 + 1e-9)).all()


def test_a_capped_share_goes_to_the_others_in_proportion():
    # By hand: with alpha 0 thirds; language 0 is capped at 4 * 1/100; the rest is halved.
    share_l = mixture_shares(np.array([1, 49, 50]), 0.0, 4.0)
    np.testing.assert_allclose(share_l, [0.04, 0.48, 0.48], rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=12),
    start_period=st.one_of(st.integers(0, 5), st.integers(10**6, 10**9)),
)
def test_every_prefix_has_the_mix_and_ranks_have_no_gaps(weights, start_period):
    """Far out too: what a share loses by rounding does not add up over the periods."""
    share_l = np.array(weights) / np.sum(weights)
    pattern = Pattern(share_l)
    start, length = start_period * PERIOD, 2 * PERIOD + 17
    language_N, rank_N = pattern.locate(start + np.arange(length))
    before_l = pattern.before_l(start_period)
    assert before_l.sum() == start
    seen_Nl = before_l + np.cumsum(language_N[:, None] == np.arange(len(share_l)), axis=0)
    prefix_N1 = start + np.arange(1, length + 1)[:, None]
    few_l = 3.0 + 1.5 * share_l * len(share_l)
    # 1e-15 of the place: what float64 makes of a product, at a place of 4e12 still thousandths of a sequence
    assert (np.abs(seen_Nl - share_l * prefix_N1) <= few_l + 1e-15 * prefix_N1).all()
    for language in range(len(share_l)):
        ranks = rank_N[language_N == language]
        np.testing.assert_array_equal(ranks, before_l[language] + np.arange(len(ranks)))


class Numbered:
    """A corpus whose n-th sequence is the one token n."""

    def __init__(self, sizes):
        self.sizes, self.languages = sizes, tuple(sorted(sizes))
        self.manifest = SimpleNamespace(sequence_length=1, dtype="uint32")

    def sequences(self, split, language):
        assert split == "train"
        return self.sizes[language]

    def take(self, split, language, index):
        assert (index < self.sequences(split, language)).all()
        return index[:, None]


@pytest.mark.parametrize("names", ["abc", "bca", "cab"])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("start", [0, 10**11 + 7])
def test_the_cap_holds_for_the_smallest_languages(names, alpha, start):
    """1e-6 and 1e-5 of the sequences, in any order of the languages: each sequence is counted over one pass."""
    sizes = dict(zip(names, (1, 10, 999_989), strict=True))
    stream = TokenStream(Numbered(sizes), 7, alpha, maximum_repetition=8.0)
    seen = {language: np.zeros(size, dtype=np.int64) for language, size in sizes.items()}
    for first in range(start, start + 1_000_000, 62_500):
        batch = stream.take(np.arange(first, first + 62_500))
        for number, language in enumerate(sorted(sizes)):
            tokens = batch.token_NL[batch.language_N == number, 0]
            seen[language] += np.bincount(tokens, minlength=sizes[language])
    slack = 1 if start == 0 else 2  # of rounding, at each end that is not the stream's own
    for language, size in list(sizes.items())[:2]:
        assert abs(seen[language].sum() - 8 * size) <= slack, language
        assert np.ptp(seen[language]) <= 2
        share = stream.share_l[sorted(sizes).index(language)]
        assert share == pytest.approx(8 * size / 1_000_000, rel=1e-12)
    large = seen[names[2]]
    assert large.min() >= 0
    assert large.max() <= 2
    assert sum(counts.sum() for counts in seen.values()) == 1_000_000


def test_quotas_are_never_negative():
    """Where the sum of the shares before the last is rounded to more than 1."""
    share_l = np.full(10, 0.1)
    share_l[-1] = 1e-17
    share_l[0] = 0.2 + 4e-16
    assert share_l[:-1].sum() > 1
    quota_l = np.diff([Pattern(share_l).before_l(period) for period in range(2000)], axis=0)
    assert quota_l.min() >= 0
    assert (quota_l.sum(axis=1) == PERIOD).all()


@pytest.mark.parametrize(
    "sizes",
    [[100] * 2500 + [101], [100] * 2100 + [200], list(1 + np.arange(3000) % 4), [7] * 5000, [10**6] + [1] * 1000],
    ids=["one larger", "one twice as large", "four sizes", "alike", "one large, all others tiny"],
)
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_thousands_of_languages(sizes, alpha):
    """They take places in step, where they are alike: no others' places, and no more than the bound ahead."""
    share_l = mixture_shares(np.array(sizes), alpha, maximum_repetition=8.0)
    pattern = Pattern(share_l)
    periods = range(5, 40)
    quota_l = np.diff([pattern.before_l(period) for period in periods], axis=0)
    assert quota_l.min() >= 0
    assert (quota_l.sum(axis=1) == pattern.period).all()
    start = periods[0] * pattern.period
    language_N, _ = pattern.locate(start + np.arange(pattern.period))
    seen_l, largest_l = pattern.before_l(periods[0]), np.zeros(len(sizes))
    for number, language in enumerate(language_N, start + 1):
        seen_l[language] += 1
        if number % 61 == 0:
            largest_l = np.maximum(largest_l, np.abs(seen_l - share_l * number))
    assert (largest_l <= 3 * (1 + share_l * len(sizes))).all()


def test_a_thousand_languages_keep_the_period_of_few():
    """A longer one would be another stream of the same corpus."""
    assert Pattern(np.full(1024, 1 / 1024)).period == PERIOD


# --- stream -------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(start=st.integers(0, 10**10), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_batching_and_seeking_change_nothing(stream, start, sizes):
    ends = start + np.cumsum([0, *sizes])
    whole = stream.take(np.arange(ends[0], ends[-1]))
    parts = [stream.take(np.arange(a, b)) for a, b in pairwise(ends)]
    assert_same(join(parts), whole)


def test_a_seek_is_what_a_run_from_the_start_comes_to(stream):
    from_the_start = list(islice(local_batches(stream, 0, 8), 60))
    assert_same(next(local_batches(stream, 8 * 37, 8)), from_the_start[37])


def test_an_epoch_has_every_sequence_once(corpus, stream):
    """Per language: the first n_l sequences are all of them, the next n_l all again, in another order."""
    batch = stream.take(np.arange(6000))
    for number, language in enumerate(corpus.languages):
        size = SIZES[language]
        everything = corpus.take("train", language, np.arange(size))
        tokens = batch.token_NL[batch.language_N == number]
        assert len(tokens) > 2 * size
        epochs = [tokens[:size], tokens[size : 2 * size]]
        for epoch in epochs:
            assert sorted(map(bytes, epoch)) == sorted(map(bytes, everything))
        assert (epochs[0] != epochs[1]).any(), "every epoch has one order"
        assert (epochs[0] != everything).any(), "the corpus's order"


def test_seeds_have_orders_of_their_own_and_equal_seeds_the_same(corpus, stream):
    number = np.arange(300)
    again = TokenStream(corpus, 7, 0.3, 4.0).take(number)
    assert_same(again, stream.take(number))
    other = TokenStream(corpus, 8, 0.3, 4.0).take(number)
    np.testing.assert_array_equal(other.language_N, again.language_N)
    assert (other.token_NL == again.token_NL).all(axis=1).mean() < 0.2


def test_the_realised_mix_is_the_target(stream):
    batch = stream.take(np.arange(2500))
    realised = np.bincount(batch.language_N) / 2500
    np.testing.assert_allclose(realised, stream.share_l, atol=0.01)


# --- workers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_workers_share_the_single_workers_batches(stream, world_size):
    single = list(islice(local_batches(stream, 24, 16), 5))
    ranks = [islice(local_batches(stream, 24, 16 // world_size, rank, world_size), 5) for rank in range(world_size)]
    for alone, together in zip(single, zip(*ranks, strict=True), strict=True):
        assert_same(join(together), alone)


def test_digests_add_up_and_notice_order_place_and_content(stream):
    whole = stream.take(np.arange(40, 72))
    digest = sequence_digest(whole)
    for world_size in (2, 4):
        parts = [Batch(*(array[rank::world_size] for array in whole)) for rank in range(world_size)]
        assert sum(sequence_digest(part) for part in parts) % 2**64 == digest

    swapped = whole.token_NL.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    turned = whole.token_NL.copy()
    turned[3] = turned[3, ::-1]
    changed = whole.token_NL.copy()
    changed[5, 5] += 1
    others = [
        whole._replace(token_NL=swapped),
        whole._replace(token_NL=turned),
        whole._replace(token_NL=changed),
        whole._replace(number_N=whole.number_N + 1),
        stream.take(np.arange(41, 73)),
    ]
    digests = [digest, *map(sequence_digest, others)]
    assert len(set(digests)) == len(digests)
    assert sequence_digest(whole._replace(token_NL=whole.token_NL.astype(np.uint32))) == digest


# --- Ray Data -----------------------------------------------------------------------------------------------


def take_both(stream, count, **arguments):
    feed = ray_data_batches(stream, **arguments)
    try:
        got = list(islice(feed, count))
    finally:
        feed.close()
    return got, list(islice(local_batches(stream, **arguments), count))


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    "arguments",
    [
        {"start": 0, "batch_size": 96, "expected": 96 * 4},
        {"start": 3 * 10**9 + 5, "batch_size": 100, "rank": 1, "world_size": 2, "expected": 1000},
    ],
    ids=["from the start", "far cursor, second of two workers"],
)
@pytest.mark.timeout(240)
def test_ray_data_moves_the_same_batches(monkeypatch, stream, arguments):
    """Over more than one block and, as ``expected`` is too small, more than one window."""
    monkeypatch.setattr("trainables.corpora.stream.token_stream._RAY_BLOCK_TOKENS", 256 * LENGTH)
    got, expected = take_both(stream, 14, **arguments)
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)


@pytest.mark.usefixtures("ray_cluster")
def test_a_reading_task_waits_for_the_storage_from_its_first_request_on(monkeypatch, stream):
    """A new process opens the corpus: it had its own patience of seconds there, and cost the trial an attempt."""
    sent, seen = [], []

    def instead(dataset, read, **_):
        sent.append(cloudpickle.dumps(read))
        raise StopIteration

    monkeypatch.setattr("ray.data.Dataset.map_batches", instead)
    monkeypatch.setattr(Patience, "seconds", Patience.FOR_STUDIES)
    with pytest.raises(RuntimeError):  # the generator's
        next(ray_data_batches(stream, 0, 32))
    packed._corpus_of_this_process.cache_clear()
    read_manifest = packed.read_manifest

    def reading(folder):
        seen.append(Patience.seconds)
        return read_manifest(folder)

    monkeypatch.setattr(packed, "read_manifest", reading)
    Patience.seconds = 6.0  # of any process
    cloudpickle.loads(sent[0])({"item": np.array([0])})
    assert seen == [Patience.FOR_STUDIES]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("ray_cluster")
def test_ray_data_does_not_wait_for_cpus_that_trials_hold(stream):
    import ray

    @ray.remote(num_cpus=1)
    class Holder:
        def ready(self):
            return True

    holders = [Holder.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
    try:
        ray.get([holder.ready.remote() for holder in holders])
        assert ray.available_resources().get("CPU", 0) == 0
        got, expected = take_both(stream, 2, start=64, batch_size=32, expected=64)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    finally:
        for holder in holders:
            ray.kill(holder)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("ray_cluster")
def test_closing_early_leaves_nothing_that_blocks(stream):
    import ray

    for _ in range(2):
        feed = ray_data_batches(stream, 0, 32)  # without an end in sight: a window of many blocks
        next(feed)
        feed.close()
        with pytest.raises(StopIteration):
            next(feed)

    @ray.remote(num_cpus=2)
    def needs_all():
        return 1

    assert ray.get(needs_all.remote(), timeout=60) == 1
    got, expected = take_both(stream, 1, start=5, batch_size=16, expected=16)
    assert_same(got[0], expected[0])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("ray_cluster")
def test_a_window_does_not_start_a_process_for_every_block(monkeypatch, corpus, tmp_path):
    monkeypatch.setattr("trainables.corpora.stream.token_stream._RAY_BLOCK_TOKENS", 2048 * LENGTH)

    class Spy(TokenStream):
        def take(self, number_N):
            (tmp_path / f"{os.getpid()}").touch()
            return super().take(number_N)

    feed = ray_data_batches(Spy(corpus, 7, 0.3, 4.0), 0, 2048)
    for _ in islice(feed, 20):
        pass
    feed.close()
    assert 1 <= len(list(tmp_path.iterdir())) <= 6
