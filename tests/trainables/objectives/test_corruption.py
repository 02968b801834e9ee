"""Corruptions: pure functions of (tokens, sequence number, seed), with the shares of BERT's paper."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trainables.objectives.corruption import mask, masked_positions, num_masked, shift

SPECIAL = (0, 1, 2, 3, 4)
MASK = 4
VOCABULARY = 60


def ordinary_tokens(num_sequences, length, seed=0):
    return np.random.default_rng(seed).integers(5, VOCABULARY, (num_sequences, length))


def corrupt(token_NL, number_N, seed=0, mask_rate=0.15):
    manifest = SimpleNamespace(required_mask_token=MASK, special_tokens=SPECIAL, vocabulary_size=VOCABULARY)
    return mask(token_NL, np.asarray(number_N, dtype=np.int64), manifest, seed, mask_rate)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(12)), cut=st.integers(0, 12), seed=st.integers(0, 2**63 - 1))
def test_masks_do_not_depend_on_batching(order, cut, seed):
    tokens = ordinary_tokens(12, 20)
    number = 10**9 + np.arange(12)
    whole = corrupt(tokens, number, seed)
    order = np.array(order)
    for part in (order[:cut], order[cut:]):
        if not len(part):
            continue
        got = corrupt(tokens[part], number[part], seed)
        for array, expected in zip(got, whole, strict=True):
            np.testing.assert_array_equal(array, expected[part])


def test_the_seed_and_the_number_each_change_the_masks():
    tokens = np.tile(ordinary_tokens(1, 128), (200, 1))
    one, other = corrupt(tokens, range(200), seed=1), corrupt(tokens, range(200), seed=2)
    assert (one.position_NT == one.position_NT[0]).all(axis=1).sum() == 1, "numbers share their masks"
    assert not (one.position_NT == other.position_NT).all(axis=1).any(), "seeds share their masks"
    # Neither is the one a shift of the other's numbers: every pair of sequences differs.
    both = np.concatenate([one.position_NT, other.position_NT])
    assert len(np.unique(both, axis=0)) == 400


@settings(max_examples=60, deadline=None)
@given(length=st.integers(2, 300), mask_rate=st.floats(0.01, 0.9))
def test_every_sequence_has_the_rounded_number_of_targets(length, mask_rate):
    found = corrupt(ordinary_tokens(3, length), range(3), mask_rate=mask_rate)
    T = found.position_NT.shape[1]
    assert num_masked(length, mask_rate) == T
    assert T >= 1
    assert abs(T - mask_rate * length) <= 0.5 or (T == 1 and mask_rate * length < 0.5)
    assert (np.diff(found.position_NT, axis=1) > 0).all(), "ascending, each once"
    assert (found.position_NT >= 0).all()
    assert (found.position_NT < length).all()


def test_only_targets_change_and_targets_are_the_clean_tokens():
    tokens = ordinary_tokens(50, 40)
    before = tokens.copy()
    found = corrupt(tokens, range(50), mask_rate=0.3)
    np.testing.assert_array_equal(tokens, before)  # the caller's array is left alone
    restored = found.input_NL.copy()
    np.put_along_axis(restored, found.position_NT, found.target_NT, axis=1)
    np.testing.assert_array_equal(restored, tokens)
    np.testing.assert_array_equal(found.target_NT, np.take_along_axis(tokens, found.position_NT, axis=1))


@settings(max_examples=60, deadline=None)
@given(length=st.integers(4, 40), num_special=st.integers(0, 40), seed=st.integers(0, 2**32))
def test_special_tokens_are_masked_last(length, num_special, seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, VOCABULARY, (4, length))
    for row in tokens:
        row[rng.permutation(length)[:num_special]] = rng.choice(SPECIAL)
    position_NT = masked_positions(tokens, np.arange(4), seed, 0.4, SPECIAL)
    chosen_special_N = np.isin(np.take_along_axis(tokens, position_NT, axis=1), SPECIAL).sum(axis=1)
    unavoidable = max(0, position_NT.shape[1] - (length - min(num_special, length)))
    assert (chosen_special_N == unavoidable).all()


def test_shares_are_bert_s():
    """80% mask, 10% random, 10% unchanged, within five deviations; a random token may be the same."""
    tokens = ordinary_tokens(4000, 128, seed=3)
    found = corrupt(tokens, range(4000), seed=5)
    shown_NT = np.take_along_axis(found.input_NL, found.position_NT, axis=1)
    num_ordinary = VOCABULARY - len(SPECIAL)
    expected = {
        "mask": (shown_NT == MASK, 0.8),
        "same": (shown_NT == found.target_NT, 0.1 + 0.1 / num_ordinary),
        "other": ((shown_NT != MASK) & (shown_NT != found.target_NT), 0.1 * (1 - 1 / num_ordinary)),
    }
    count = shown_NT.size
    for name, (hits, share) in expected.items():
        deviation = (share * (1 - share) / count) ** 0.5
        assert abs(hits.mean() - share) < 5 * deviation, name


def test_random_tokens_are_uniform_over_the_ordinary_ones():
    """Where the clean token is 5, what is neither the mask nor 5 was drawn."""
    tokens = np.full((6000, 128), 5)
    found = corrupt(tokens, range(6000), seed=8)
    shown = np.take_along_axis(found.input_NL, found.position_NT, axis=1)
    drawn = shown[(shown != MASK) & (shown != 5)]
    assert not np.isin(drawn, SPECIAL).any()
    counts = np.bincount(drawn, minlength=VOCABULARY)[6:]
    assert counts.min() > 0
    assert stats.chisquare(counts).pvalue > 1e-4


def test_positions_and_kinds_are_uniform_and_independent():
    """Every position is a target as often, and what is shown there does not depend on where it is."""
    tokens = ordinary_tokens(8000, 32, seed=1)
    found = corrupt(tokens, range(8000), mask_rate=0.25)
    counts = np.bincount(found.position_NT.ravel(), minlength=32)
    # Draws without replacement vary less than multinomial ones: the statistic is small if all is well.
    assert stats.chisquare(counts).pvalue > 1e-4
    masked = np.take_along_axis(found.input_NL, found.position_NT, axis=1) == MASK
    by_position = np.bincount(found.position_NT.ravel(), weights=masked.ravel(), minlength=32) / counts
    assert np.abs(by_position - 0.8).max() < 5 * (0.16 / counts.min()) ** 0.5


@pytest.mark.parametrize(("num_sequences", "length"), [(1, 2), (3, 7)])
def test_shift_recovers_the_successor(num_sequences, length):
    tokens = ordinary_tokens(num_sequences, length)
    found = shift(tokens)
    np.testing.assert_array_equal(found.input_NL, tokens)
    assert found.position_NT.shape == (num_sequences, length - 1)
    for n in range(num_sequences):
        for k, position in enumerate(found.position_NT[n]):
            assert position == k
            assert found.target_NT[n, k] == tokens[n, position + 1]
