"""Recovery: how well held-out tokens are found again among the whole vocabulary.

They are the same for an encoder, which finds all of a sequence's masked, and a decoder. Targets at a sequence's first
position are left out, for decoders' sake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainables.evaluation.yardstick import Score, Yardstick

if TYPE_CHECKING:
    from trainables.evaluation.passes import Taking


class RecoveryAccuracy(Yardstick):
    """The share of first ranks."""

    name = "recovery_accuracy"
    description = "share of held-out tokens that are the model's first choice among the whole vocabulary"

    def measure(self, taking: Taking) -> Score:
        return taking.mean({language: rank_K == 1 for language, rank_K in taking.ranks.items()})


class RecoveryMeanReciprocalRank(Yardstick):
    """The mean of 1 / rank."""

    name = "recovery_mrr"
    description = "mean reciprocal rank of held-out tokens among the whole vocabulary"

    def measure(self, taking: Taking) -> Score:
        return taking.mean({language: 1.0 / rank_K for language, rank_K in taking.ranks.items()})
