"""Minimal pairs: is the grammatical sentence likelier than its ungrammatical twin? Equal scores count as wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainables.errors import InputError
from trainables.evaluation.yardstick import Items, Yardstick
from trainables.models.config import Task

if TYPE_CHECKING:
    from trainables.corpora.config import CorporaConfig
    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.passes import Taking


class MinimalPairAccuracy(Yardstick):
    """The share of pairs that a model gets right."""

    name = "minimal_pair_accuracy"
    description = "share of minimal pairs whose grammatical sentence is likelier (embedded grammars)"

    def require(self, corpora: CorporaConfig) -> None:
        if not corpora.has_minimal_pairs:
            raise InputError(
                f"there are no minimal pairs to take {self.name} on",
                where="yardsticks",
                why="a source with a grammar brings them, corpora.minimal_pairs_per_language says how many",
                remedy="add such a source, or leave out this yardstick: --set yardsticks.others=[]",
            )

    def items(self, taking: Taking) -> Mapping[str, Items]:
        """One a pair, numbered in its language."""
        import numpy as np

        right = {language: (good_P > bad_P).astype(np.float64) for language, (good_P, bad_P) in taking.pairs.items()}
        return {
            language: Items(np.arange(len(right_P)), right_P, np.ones(len(right_P)))
            for language, right_P in right.items()
        }

    def tokens(self, held_out: HeldOut, task: Task) -> int:
        """An encoder sees a sentence once for each of its tokens."""
        from trainables.evaluation.held_out import passed_tokens

        return passed_tokens(held_out.sentences, task, held_out.corpus.manifest)
