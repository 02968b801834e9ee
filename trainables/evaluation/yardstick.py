"""A yardstick: a metric that means the same for every arm of a task. One is a class, and a line in the registry.

Letters: I items of one language: documents of the held-out text, or minimal pairs.
"""

from __future__ import annotations

import math
from abc import ABC
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field

from trainables.config import LARGEST, Config, Number
from trainables.models.config import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.corpora.config import CorporaConfig
    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.passes import Taking

TASK_ITEMS = 500  # of a downstream task and language at most, where nothing says how many
WORST = LARGEST / 10  # a mean of several is rounded, and must fit into a record too

Transform = Literal["identity", "exp"]


class EvaluationConfig(Config):
    """On what the yardsticks are taken."""

    sequences_per_language: int = Field(1024, ge=1)
    """Held-out sequences of each language at a trial's end, at most: the first of a shuffled order. Of a decoder all
    their tokens count, of an encoder those that are masked."""
    sequences_on_the_way: int = Field(64, ge=1)
    """The same of evaluations before a trial's end: at the search's rungs, and for the curves."""
    task_items: int | None = Field(None, ge=1)
    """Examples of each zero-shot task and language at a trial's end, at most: the first of a shuffled order. Null: as
    many as take 2% of a run's FLOPs, or 5% where that is fewer than 100; at most 500."""
    learned_task_items: int = Field(TASK_ITEMS, ge=1)
    """The same of tasks with training examples: what is fitted takes most of their time."""
    task_items_on_the_way: int = Field(50, ge=1)
    """Of each task and language in evaluations before a trial's end."""
    mask_rate: float = Field(0.15, gt=0, le=0.9)
    """Share of an encoder's tokens that are masked and must be recovered."""

    def sequences(self, *, final: bool) -> int:
        """Of each language, at most."""
        return self.sequences_per_language if final else min(self.sequences_on_the_way, self.sequences_per_language)

    def most_task_items(self, *, final: bool, learned: bool) -> int:
        """Of each task and language, at most."""
        most = self.learned_task_items if learned else self.task_items or TASK_ITEMS
        return most if final else min(self.task_items_on_the_way, most)


class Score(Config):
    """A yardstick's value."""

    overall: Number
    languages: Mapping[str, Number]
    """Of each language's own text; of tasks, by ``task/language``."""
    metrics: Mapping[str, Number] = {}
    """Of tasks that their field measures by something else than what is right, that, by ``task/language``."""


class Items(NamedTuple):
    """What a language's score is made of, item by item."""

    item_I: NDArray[np.int64]  # numbers of documents or their groups, or of pairs
    value_I: NDArray[np.float64]
    weight_I: NDArray[np.float64]
    is_common: bool = False
    """Whether what has one number in two languages is one unit of text, as a group that both have documents of."""

    @property
    def ratio(self) -> float:
        """The sum of the values over that of the weights; :data:`WORST` at most, and where nothing weighs."""
        weight = float(self.weight_I.sum())
        return min(float(self.value_I.sum()) / weight, WORST) if weight else WORST


def shares_of(languages: Iterable[str]) -> dict[str, float]:
    """What each counts in a score over all: the same; of names ``task/language`` each task the same, and in it each
    language."""
    names = list(languages)
    parts = Counter(name.partition("/")[0] for name in names)
    return {name: 1 / (len(parts) * parts[name.partition("/")[0]]) for name in names}


def mean_over(values: Mapping[str, float]) -> float:
    """Of languages' values, by :func:`shares_of`."""
    shares = shares_of(values)
    if len(set(shares.values())) == 1:  # as a sum of equals, whose rounding others check
        return math.fsum(values.values()) / len(values)
    return math.fsum(shares[name] * value for name, value in values.items())


def transformed(transform: Transform, ratio: float) -> float:
    """A score, at most :data:`WORST`."""
    return ratio if transform == "identity" else math.exp(min(ratio, math.log(WORST)))


class Yardstick(ABC):  # of ``items`` and ``measure`` a member has one
    """A metric of a model, taken on held-out text. A member has :meth:`items`, or :meth:`measure` where it has none.

    Its module is read for every command: import torch and NumPy in the methods that need them.
    """

    name: ClassVar[str]
    """As a study writes it."""
    description: ClassVar[str]
    """What it says, in a line."""
    higher_is_better: ClassVar[bool] = True
    """Of those of which higher is better, all are shares between 0 and 1."""
    only_at_end: ClassVar[bool] = False
    """True: too dear to be taken before a trial's end, so that it cannot be the primary one."""
    chance: ClassVar[float | None] = None
    """What guessing comes to, where that is known beforehand."""
    transform: ClassVar[Transform] = "identity"
    """What a ratio of items' sums becomes as a score."""

    @classmethod
    def has_items(cls) -> bool:
        """Whether its score is made of items."""
        return cls.items is not Yardstick.items

    def require(self, corpora: CorporaConfig) -> None:  # noqa: B027  # most need nothing
        """Refuse, by an InputError, a study whose text lacks what it needs."""

    def items(self, taking: Taking) -> Mapping[str, Items] | None:
        """By language what the score is made of, by the model and the passes through it that yardsticks share.

        A language's score is the transform of its ratio, the overall one that of the ratios' mean. None where a score
        is not made of items: nothing is then known of its spread over text.
        """
        return None

    def measure(self, taking: Taking) -> Score:
        """Its value: that of the items."""
        items = self.items(taking)
        assert items is not None, f"{self.name} has neither items nor a measure of its own"
        ratios = {language: own.ratio for language, own in items.items()}
        languages = {language: transformed(self.transform, ratio) for language, ratio in ratios.items()}
        return Score(overall=transformed(self.transform, mean_over(ratios)), languages=languages)

    def tokens(self, held_out: HeldOut, task: Task) -> int:
        """What it costs: tokens, padding too, that are passed through a model of the task to take it alone."""
        return held_out.token_NL.size
