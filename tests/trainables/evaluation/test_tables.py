"""Tables of tokens and of neighbours, against probabilities written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.evaluation.tables import TokenTable


def written_out(rows: list[list[int]], size: int, *, neighbours: bool) -> np.ndarray:
    """p(w | v) by v and w, (V, V), with Python's own arithmetic."""
    tokens = [token for row in rows for token in row]
    alone = [(tokens.count(token) + 1) / (len(tokens) + size) for token in range(size)]
    pairs = [pair for row in rows for pair in itertools.pairwise(row)] if neighbours else []
    found = np.empty((size, size))
    for before in range(size):
        after = [second for first, second in pairs if first == before]
        kinds = len(set(after))
        for token in range(size):
            whole = (after.count(token) + kinds * alone[token]) / (len(after) + kinds) if after else alone[token]
            found[before, token] = whole
    return found


def table(rows: list[list[int]], size: int, *, neighbours: bool) -> TokenTable:
    count_V = np.bincount([token for row in rows for token in row], minlength=size)
    pairs = [pair for row in rows for pair in itertools.pairwise(row)] if neighbours else []
    before_P, after_P = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return TokenTable(count_V, before_P, after_P)


@given(
    st.integers(3, 7).flatmap(
        lambda size: st.tuples(
            st.just(size), st.lists(st.lists(st.integers(0, size - 1), min_size=2, max_size=9), min_size=1, max_size=5)
        )
    ),
    st.booleans(),
)
def test_ranks_and_nats_are_those_of_the_written_probabilities(
    case: tuple[int, list[list[int]]], neighbours: bool
) -> None:
    size, rows = case
    expected = written_out(rows, size, neighbours=neighbours)
    np.testing.assert_allclose(expected.sum(1), 1.0)
    before_K, token_K = (part.ravel() for part in np.indices((size, size)))
    found = table(rows, size, neighbours=neighbours).tokens(before_K, token_K)
    np.testing.assert_allclose(found.nats_K, -np.log(expected[before_K, token_K]))
    own_K = expected[before_K, token_K][:, None]
    # Ties count against the target; two sums of the same numbers may differ in their last digit.
    np.testing.assert_array_equal(found.rank_K, (expected[before_K] >= own_K * (1 - 1e-12)).sum(1))
    np.testing.assert_array_equal(found.token_K, token_K)


def test_the_first_choice_is_the_commonest_follower() -> None:
    found = table([[0, 1, 0, 1, 0, 2, 3, 3, 3, 3]], 5, neighbours=True).tokens(np.array([0, 0, 4]), np.array([1, 3, 3]))
    assert found.rank_K.tolist() == [1, 3, 1], "after a token that never came the commonest of all is the choice"


@pytest.mark.parametrize("kind", ["unigram", "bigram"])
def test_probabilities_over_the_vocabulary_sum_to_one(kind: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 50, (20, 30)).tolist()
    found = table(rows, 64, neighbours=kind == "bigram")
    for before in (0, 17, 63):
        nats_V = found.tokens(np.full(64, before), np.arange(64)).nats_K
        assert np.exp(-nats_V).sum() == pytest.approx(1.0)
