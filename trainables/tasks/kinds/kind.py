"""A kind of task: what an example is made of, and which of a model's answers are right. Letters:
I examples, P passages, H layers, K labels, F features."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.model import LanguageModel, Passage, Scored

_SURROGATE = re.compile("[\ud800-\udfff]")  # of a pair of which the other is missing: JSON can have it
Row = Mapping[str, Any]
"""One of a file: values by the kind's own names of columns."""


class UnusableError(ValueError):
    """Why a row is no example, in a line."""


class Kind(ABC):
    """A kind of task. Its module is read for every command: import torch and NumPy in the methods that need them."""

    name: ClassVar[str]
    """As a definition writes it."""
    description: ClassVar[str]
    """What an example is, in a line."""
    columns: ClassVar[tuple[str, ...]]
    """What a row must have."""
    optional: ClassVar[tuple[str, ...]] = ()
    """What it may have: read where it is there."""
    learns: ClassVar[bool] = False
    """Whether something is fitted to a training split, on the model's features."""
    has_labels: ClassVar[bool] = False
    """Whether its labels are classes by number, of those that the definition or the training split names."""

    of_words: ClassVar[bool] = False
    """Whether texts are words, each with a label of its own; else all texts together have one."""

    @abstractmethod
    def example(self, row: Row, task: TaskConfig, language: str, classes: Mapping[str, int]) -> Example:
        """What a row is. Raises UnusableError. Its unit and group are filled in by the caller."""

    @abstractmethod
    def chance(self, examples: Sequence[Example]) -> float:
        """Which share of the examples an answer without a look at them gets right."""

    def passages(self, examples: Sequence[Example]) -> list[Passage]:
        """The P texts whose likelihoods a model is asked for. For kinds that learn nothing."""
        raise NotImplementedError(self.name)

    def right(self, scored: Scored, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Of each example how much is right, (I,), from 0 to 1, by what a model finds of the passages. For kinds that
        learn nothing."""
        raise NotImplementedError(self.name)

    def answers(self, model: LanguageModel, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Of each example how much a model gets right, (I,), from 0 to 1. For kinds that learn nothing."""
        return self.right(model.score(self.passages(examples)), examples)

    def features(self, model: LanguageModel, examples: Sequence[Example]) -> NDArray[np.float32]:
        """What the model makes of all that has a label, in the labels' order, by layer: (H, K, F). For kinds that
        learn."""
        raise NotImplementedError(self.name)


def text(row: Row, column: str) -> str:
    """A column's text. Raises UnusableError where it is none, or empty."""
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise UnusableError(f"its {column} is {value!r:.60}, and no text")
    return value


def half_of_a_character(value: object) -> str | None:
    """The text, or of several the first, that has one."""
    texts = value if isinstance(value, list) else [value]
    return next((text for text in texts if isinstance(text, str) and _SURROGATE.search(text)), None)


def class_of(row: Row, column: str, classes: Mapping[str, int]) -> int:
    """The number of a column's class. Raises UnusableError where it is none of them."""
    value = str(row[column])
    if value not in classes:
        raise UnusableError(f"its {column} is {value!r:.60}, which is none of {', '.join(classes)}"[:300])
    return classes[value]
