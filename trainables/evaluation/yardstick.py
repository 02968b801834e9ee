"""A yardstick: a metric that means the same for every arm of a task. One is a class, and a line in the registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from trainables.config import Config, Number
from trainables.models.config import Task

if TYPE_CHECKING:
    from trainables.corpora.config import CorporaConfig
    from trainables.evaluation.held_out import HeldOut
    from trainables.evaluation.passes import Taking


class EvaluationConfig(Config):
    """On what the yardsticks are taken."""

    sequences_per_language: int = Field(32, ge=1)
    """Held-out sequences of each language: as many for a small language as for a large one."""
    mask_rate: float = Field(0.15, gt=0, le=0.9)
    """Share of their tokens that must be recovered."""


class Score(Config):
    """A yardstick's value."""

    overall: Number
    languages: Mapping[str, Number]
    """Of each language's own text."""


class Yardstick(ABC):
    """A metric of a model, taken on held-out text.

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

    def require(self, corpora: CorporaConfig) -> None:  # noqa: B027  # most need nothing
        """Refuse, by an InputError, a study whose text lacks what it needs."""

    @abstractmethod
    def measure(self, taking: Taking) -> Score:
        """Its value, by the model and the passes through it that yardsticks share."""

    def tokens(self, held_out: HeldOut, task: Task) -> int:
        """What it costs: tokens, padding too, that are passed through a model of the task to take it alone."""
        return held_out.token_NL.size
