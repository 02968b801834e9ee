"""Tagging: a class for each word of a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.kinds.classify import most_frequent
from trainables.tasks.kinds.kind import Kind, Row, UnusableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import LanguageModel


class Tag(Kind):
    """Texts: a sentence's words; labels: their classes. Of an example the share of its words counts that is right."""

    name: ClassVar[str] = "tag"
    description: ClassVar[str] = "a sentence, word by word, and each word's class"
    columns: ClassVar[tuple[str, ...]] = ("words", "tags")
    learns: ClassVar[bool] = True
    has_labels: ClassVar[bool] = True
    of_words: ClassVar[bool] = True

    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        words, tags = row["words"], row["tags"]
        if not (isinstance(words, list) and isinstance(tags, list) and len(words) == len(tags) > 0):
            raise UnusableError("its words and tags are no two lists of one length")
        if any(word is None or not str(word).strip() for word in words):
            raise UnusableError("one of its words is empty")
        unknown = [tag for tag in tags if str(tag) not in classes]
        if unknown:
            raise UnusableError(f"its tag {unknown[0]!r:.60} is none of {', '.join(classes)}"[:300])
        return Example(tuple(map(str, words)), tuple(classes[str(tag)] for tag in tags), "")

    def features(self, model: LanguageModel, examples: Sequence[Example]) -> NDArray[np.float32]:
        from trainables.tasks.features import of_words

        return of_words(model, [example.texts for example in examples])

    def chance(self, examples: Sequence[Example]) -> float:
        return most_frequent(examples)
