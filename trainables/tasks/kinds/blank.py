"""Blank: which of two names goes where a sentence has a gap? Levesque et al. 2012; Tikhonov and Ryabinin 2021
(XWinograd, arXiv 2106.12066)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.kinds.kind import Kind, Row, UnusableError, class_of, text
from trainables.tasks.kinds.minimal_pairs import likelier

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import Passage, Scored

GAP = "_"


class Blank(Kind):
    """Texts: up to the end of the gap with the right name and with the wrong one, and what stands behind it, which is
    to be likelier after the right one (Trinh and Le 2018, arXiv 1806.02847). A tie is half right."""

    name: ClassVar[str] = "blank"
    description: ClassVar[str] = "a sentence with a gap (_), and two names of which one belongs there"
    columns: ClassVar[tuple[str, ...]] = ("text", "option1", "option2", "label")

    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        before, gap, behind = text(row, "text").partition(GAP)
        if not gap or not behind.strip():
            raise UnusableError(f"its text has no gap ({GAP}) with words behind it")
        names = [text(row, "option1"), text(row, "option2")]
        number = class_of(row, "label", classes or {"0": 0, "1": 1})
        if number >= len(names):
            raise UnusableError(f"its label is {row['label']!r:.60}, and it has two names")
        return Example((before + names[number], before + names[1 - number], behind), (), "")

    def chance(self, examples: Sequence[Example]) -> float:
        return 0.5

    def passages(self, examples: Sequence[Example]) -> list[Passage]:
        from trainables.tasks.model import Passage

        return [Passage(start + e.texts[2], len(start)) for e in examples for start in e.texts[:2]]

    def right(self, scored: Scored, examples: Sequence[Example]) -> NDArray[np.float64]:
        good, bad = scored.log_likelihood_P.reshape(-1, 2).T
        return likelier(good, bad)
