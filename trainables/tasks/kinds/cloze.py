"""Cloze: is the last word of a passage what the model would say? Paperno et al. 2016, arXiv 1606.06031."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.kinds.kind import Kind, Row, UnusableError, text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import Passage, Scored


class Cloze(Kind):
    """Texts: the passage, and its last word. Right where each piece of the word is the model's first choice, given
    the pieces before it."""

    name: ClassVar[str] = "cloze"
    description: ClassVar[str] = "a passage whose last word is to be found"
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        passage = text(row, "text").rstrip()
        context, _, word = passage.rpartition(" ")
        if not context.strip():
            raise UnusableError("its text is a single word")
        return Example((passage, word), (), "")

    def chance(self, examples: Sequence[Example]) -> float:
        return 0.0

    def passages(self, examples: Sequence[Example]) -> list[Passage]:
        from trainables.tasks.model import Passage

        return [Passage(e.texts[0], len(e.texts[0]) - len(e.texts[1])) for e in examples]

    def right(self, scored: Scored, examples: Sequence[Example]) -> NDArray[np.float64]:
        import numpy as np

        return scored.is_first_P.astype(np.float64)
