"""Candidate sets: against which tokens a target is told apart.

Vanilla objectives have the whole vocabulary. Contrastive weight tying has the targets of the micro-batch: a token
that occurs m times among them counts m times (also as its own negative), so the K targets are exactly their U unique
tokens with bias log(m) (arXiv 2309.08351, equation 3). With N negatives (its footnote 2) the set is a sample of N of
the K targets, shared by all positions, and each position's own target is added where the sample lacks it.

All of it is made from the token ids alone, with NumPy, beside the data: a GPU need not wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Candidates(NamedTuple):
    """The candidates of one micro-batch. Letters: K target positions, C candidates."""

    token_C: NDArray[np.int64]
    """Token ids, ascending, each once."""
    log_count_C: NDArray[np.float64]
    """Log of how often each occurs."""
    index_K: NDArray[np.int64]
    """Where each position's target is among them; C where it is the position's own."""


def in_batch_candidates(
    target_K: NDArray[np.int64], negatives: int | None, rng: np.random.Generator
) -> Candidates:
    """The candidates that the targets themselves make.

    Args:
        target_K: token id of every target position, (K,).
        negatives: N, how many of the K targets are drawn, without replacement; None, or N >= K, takes all.
        rng: draws them.
    """
    sample = target_K
    if negatives is not None and negatives < len(target_K):
        sample = rng.choice(target_K, size=negatives, replace=False)
    token_C, count_C = np.unique(sample, return_counts=True)
    index_K = np.searchsorted(token_C, target_K)
    found = token_C[np.minimum(index_K, len(token_C) - 1)] == target_K
    return Candidates(token_C, np.log(count_C), np.where(found, index_K, len(token_C)))
