"""Recovery: how well held-out tokens are found again among the whole vocabulary.

A decoder is to find every token of a sequence but the first, given the tokens before it; an encoder those that are
masked, given all others: all of a sequence's are masked at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainables.evaluation.yardstick import Items, Yardstick

if TYPE_CHECKING:
    from trainables.evaluation.passes import Taking


class RecoveryAccuracy(Yardstick):
    """The share of first ranks."""

    name = "recovery_accuracy"
    description = "share of held-out tokens that are the model's first choice among the whole vocabulary"

    def items(self, taking: Taking) -> Mapping[str, Items]:
        return taking.by_document(lambda tokens: tokens.rank_K == 1)


class RecoveryMeanReciprocalRank(Yardstick):
    """The mean of 1 / rank."""

    name = "recovery_mrr"
    description = "mean reciprocal rank of held-out tokens among the whole vocabulary"

    def items(self, taking: Taking) -> Mapping[str, Items]:
        return taking.by_document(lambda tokens: 1.0 / tokens.rank_K)
