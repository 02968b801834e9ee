"""The objectives: which corruption, which candidates, which options. A new one is an entry here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from trainables.config import Config
from trainables.errors import InputError, nearest

Task = Literal["masked", "causal"]
"""What is recovered: masked tokens from both sides (an encoder), or the next token (a decoder)."""


class VocabularyOptions(Config):
    """A vanilla objective has nothing to set."""


class ContrastiveOptions(Config):
    """Contrastive weight tying (arXiv 2309.08351)."""

    temperature: float = Field(1.0, gt=0)
    """tau: similarities are divided by it. The paper's is 1."""
    negatives: int | None = Field(None, ge=1)
    """Targets drawn from the micro-batch to be told apart from; null takes all, as the paper does."""


@dataclass(frozen=True)
class Objective:
    """One pretraining objective."""

    name: str
    task: Task
    headless: bool
    """True: candidates are the micro-batch's targets, scored by their input embeddings. False: the vocabulary."""
    options: type[ContrastiveOptions] | type[VocabularyOptions]


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("mlm", "masked", headless=False, options=VocabularyOptions),
        Objective("headless_mlm", "masked", headless=True, options=ContrastiveOptions),
        Objective("clm", "causal", headless=False, options=VocabularyOptions),
        Objective("headless_clm", "causal", headless=True, options=ContrastiveOptions),
    )
}


def find_objective(name: str, where: str = "") -> Objective:
    """The objective of that name.

    Raises:
        InputError: there is none.
    """
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective '{name}'", where=where, remedy=nearest(name, OBJECTIVES))
    return OBJECTIVES[name]
