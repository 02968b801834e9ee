"""Candidate sets: against which tokens a target is told apart.

Vanilla objectives have the whole vocabulary. Contrastive weight tying has the targets of the batch: a token that
occurs m times among them counts m times (also as its own negative), so the K targets are exactly their U unique
tokens with bias log(m) (arXiv 2309.08351, equation 3). With N negatives (its footnote 2) the set is a sample of N of
them, shared by all positions, and each position's own target is added where the sample lacks it. Sampled softmax
draws from the vocabulary.

All of it is made from the token ids alone, with NumPy, beside the data: a GPU need not wait for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from trainables.corpora.stream.token_stream import TokenStream


@dataclass(frozen=True)
class Proposal:
    """A distribution that tokens are drawn from."""

    log_probability_V: NDArray[np.float64]

    @cached_property
    def _cumulative_V(self) -> NDArray[np.float64]:
        cumulative_V: NDArray[np.float64] = np.exp(self.log_probability_V).cumsum()
        cumulative_V /= cumulative_V[-1]
        return cumulative_V

    def draw(self, count: int, rng: Generator) -> NDArray[np.int64]:
        """Tokens, with replacement, (count,)."""
        return np.searchsorted(self._cumulative_V, rng.random(count), side="right")


@dataclass(frozen=True)
class Text:
    """What is known of a stream's tokens beyond a batch. It is counted when it is first asked for."""

    stream: TokenStream

    @cached_property
    def by_frequency(self) -> Proposal:
        """Tokens as often as they are trained on."""
        return Proposal(self.stream.log_unigram())

    @cached_property
    def uniform(self) -> Proposal:
        size = self.stream.corpus.manifest.vocabulary_size
        return Proposal(np.full(size, -np.log(size), dtype=np.float64))


@dataclass(frozen=True)
class Pool:
    """What the candidates of a step, or of a micro-batch, are chosen from."""

    rng: Generator  # the same on all workers, for the same step or micro-batch
    text: Text
    targets: Callable[[], NDArray[np.int64]]
    """Those of the step, gathered from all workers, or of the micro-batch, with duplicates, in the stream's order."""
    targets_before: Callable[[int], NDArray[np.int64]]
    """So many of the last targets before the step. They are made again from the stream: no queue has to be restored."""


class Candidates(NamedTuple):
    """The candidates of one micro-batch. Letters: K target positions, C candidates."""

    token_C: NDArray[np.int64]  # token ids, ascending, each once
    bias_C: NDArray[np.float64]  # added to their scores
    index_K: NDArray[np.int64]  # where each position's target is among them; C where it is the position's own
    own_bias_K: NDArray[np.float64] | None
    """Added to the score of a position's own candidate, -inf where it has none; None where no position has one."""
    constant: float  # to be added to the loss summed over the positions


@dataclass(frozen=True)
class CandidateSet:
    """What the positions of one or more micro-batches share. Letters: C candidates, V vocabulary."""

    token_C: NDArray[np.int64]
    log_count_C: NDArray[np.float64]
    correction_V: NDArray[np.float64] | None
    """Taken off the score of every token, whether it is a candidate of all or of its position alone."""

    def of(self, target_K: NDArray[np.int64]) -> Candidates:
        """The candidates of positions with these targets, (K,)."""
        index_K = np.searchsorted(self.token_C, target_K)
        found_K = self.token_C[np.minimum(index_K, len(self.token_C) - 1)] == target_K
        constant = float(self.log_count_C[index_K[found_K]].sum())
        bias_C, bias_K = self.log_count_C, np.zeros(len(target_K))
        if self.correction_V is not None:
            bias_C, bias_K = bias_C - self.correction_V[self.token_C], -self.correction_V[target_K]
        own_bias_K = None if found_K.all() else np.where(found_K, -np.inf, bias_K)
        return Candidates(self.token_C, bias_C, np.where(found_K, index_K, len(self.token_C)), own_bias_K, constant)


def target_candidates(pool_P: NDArray[np.int64], log_frequency_V: NDArray[np.float64] | None = None) -> CandidateSet:
    """The candidates that targets (P,) make: each counts as often as it occurs among them.

    exp(s) summed over the m copies of a token is exp(s + log m); the paper's numerator has one copy, so log m of the
    target is a constant of the loss, without gradient. Given log-probabilities of drawing each token are taken off the
    scores, the target's included (the log-Q correction; Yi et al. 2019, "Sampling-bias-corrected neural modeling",
    equation 3).
    """
    token_C, count_C = np.unique(pool_P, return_counts=True)
    return CandidateSet(token_C, np.log(count_C), log_frequency_V)


def negatives_of(
    target_P: NDArray[np.int64], negatives: int | None, rng: Generator, beyond_E: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """N of the batch's targets (P,), without replacement; fewer are filled up from beyond the batch (E,)."""
    if negatives is None or negatives == len(target_P):
        return target_P
    if negatives < len(target_P):
        return rng.choice(target_P, size=negatives, replace=False)
    return target_P if beyond_E is None else np.concatenate([target_P, beyond_E[: negatives - len(target_P)]])


def sampled_candidates(draw_S: NDArray[np.int64], log_frequency_V: NDArray[np.float64]) -> CandidateSet:
    """Candidates for sampled softmax: tokens (S,) drawn with replacement, by log-probabilities (V,).

    Every candidate's score, the target's included, is lowered by the log-probability of its being in the sample,
    1 - (1 - q)^S: the sampled loss goes to the full one as S grows (arXiv 1412.2007, section 3).
    """
    token_C = np.unique(draw_S)
    inclusion_V = -np.expm1(len(draw_S) * np.log1p(-np.exp(log_frequency_V)))
    return CandidateSet(token_C, np.zeros(len(token_C)), np.log(inclusion_V))
