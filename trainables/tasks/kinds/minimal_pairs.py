"""Minimal pairs: is the grammatical sentence likelier than its twin? Warstadt et al. 2020, arXiv 1912.00582."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.kinds.kind import Kind, Row, text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import Passage, Scored

ROUNDING = 1e-5  # of log-likelihoods: what is closer is a tie, as sums of float32 were added in another order


class MinimalPairs(Kind):
    """Texts: the good sentence and the bad one. A tie is half right."""

    name: ClassVar[str] = "minimal_pairs"
    description: ClassVar[str] = "two sentences, of which the grammatical one is to be the likelier"
    columns: ClassVar[tuple[str, ...]] = ("good", "bad")

    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        return Example((text(row, "good"), text(row, "bad")), (), "")

    def chance(self, examples: Sequence[Example]) -> float:
        return 0.5

    def passages(self, examples: Sequence[Example]) -> list[Passage]:
        from trainables.tasks.model import Passage

        return [Passage(sentence) for example in examples for sentence in example.texts]

    def right(self, scored: Scored, examples: Sequence[Example]) -> NDArray[np.float64]:
        good, bad = scored.log_likelihood_P.reshape(-1, 2).T
        return likelier(good, bad)


def likelier(good_I: NDArray[np.float64], bad_I: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where the good log-likelihood is higher, 0.5 where that is but rounding, else 0, (I,). What is impossible,
    -inf, ties with its like alone."""
    import numpy as np

    limit_I = ROUNDING * np.maximum(1.0, np.abs(np.where(np.isfinite(bad_I), bad_I, 0.0)))
    is_tie_I = np.isclose(good_I, bad_I, rtol=0.0, atol=limit_I)
    found: NDArray[np.float64] = np.where(is_tie_I, 0.5, (good_I > bad_I).astype(np.float64))
    return found
