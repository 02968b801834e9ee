"""Recovery: how well held-out tokens are found again among the whole vocabulary.

They are the same tokens for an encoder, which sees both sides of them, and a decoder, which sees the left. An encoder
finds all of a sequence's targets masked. Targets at a sequence's first position are left out, for decoders' sake.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from trainables.evaluation.yardstick import Score, Yardstick
from trainables.models.config import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.passes import Taking


class Recovery(Yardstick):
    """The mean over held-out tokens of something that their ranks decide."""

    @abstractmethod
    def gain(self, rank_K: NDArray[np.int64]) -> NDArray[Any]:
        """What a rank, 1 the best, counts."""

    def measure(self, taking: Taking) -> Score:
        """Each language counts the same."""
        from trainables.evaluation.held_out import mean_score

        return mean_score({language: self.gain(rank_K) for language, rank_K in taking.ranks.items()})

    def tokens(self, held_out: HeldOut, task: Task) -> int:
        """Of the sequences."""
        return held_out.token_NL.size


class RecoveryAccuracy(Recovery):
    """The share of first ranks."""

    name = "recovery_accuracy"
    description = "share of held-out tokens that are the model's first choice among the whole vocabulary"

    def gain(self, rank_K: NDArray[np.int64]) -> NDArray[Any]:
        """1 for the first."""
        first: NDArray[np.bool_] = rank_K == 1
        return first


class RecoveryMeanReciprocalRank(Recovery):
    """The mean of 1 / rank."""

    name = "recovery_mrr"
    description = "mean reciprocal rank of held-out tokens among the whole vocabulary"

    def gain(self, rank_K: NDArray[np.int64]) -> NDArray[Any]:
        """1 for the first, 1/2 for the second."""
        return 1.0 / rank_K
