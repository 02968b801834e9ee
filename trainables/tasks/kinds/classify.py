"""Classification of a text, or of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.kinds.kind import Kind, Row, class_of, text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import LanguageModel


class Classify(Kind):
    """Texts: one, or two that are told apart; label: the class."""

    name: ClassVar[str] = "classify"
    description: ClassVar[str] = "a text, or two, and its class"
    columns: ClassVar[tuple[str, ...]] = ("text", "label")
    optional: ClassVar[tuple[str, ...]] = ("second",)
    learns: ClassVar[bool] = True
    has_labels: ClassVar[bool] = True

    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        texts = [text(row, name) for name in ("text", "second") if name in row]
        return Example(tuple(texts), (class_of(row, "label", classes),), "")

    def features(self, model: LanguageModel, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Of two texts u and v: [u, v, |u - v|, u * v] (Conneau et al. 2017, arXiv 1705.02364, section 3.1)."""
        import numpy as np

        from trainables.tasks.features import of_texts

        found = of_texts(model, [text for example in examples for text in example.texts])
        if len(examples[0].texts) == 1:
            return found
        u_HIF, v_HIF = found[:, ::2], found[:, 1::2]
        return np.concatenate([u_HIF, v_HIF, np.abs(u_HIF - v_HIF), u_HIF * v_HIF], axis=-1)

    def chance(self, examples: Sequence[Example]) -> float:
        return most_frequent(examples)


def most_frequent(examples: Sequence[Example]) -> float:
    """The share of the most frequent label."""
    counts = Counter(label for example in examples for label in example.labels)
    return max(counts.values()) / counts.total()
