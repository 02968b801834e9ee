"""The objectives: which corruption, which candidates, whose weights, which options. A new one is an entry here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.errors import InputError, nearest

Task = Literal["masked", "causal"]
"""What is recovered: masked tokens from both sides (an encoder), or the next token (a decoder)."""


class Term(NamedTuple):
    """One linear cross-entropy. An objective's loss is the sum of its terms."""

    candidates: Literal["vocabulary", "targets", "samples"]
    """Told apart: all tokens; the targets of the batch; a sample of the vocabulary."""
    weights: Literal["head", "embedding", "table"]
    """What scores a candidate: the head's row, the input embedding, or a row of a table of its own."""


class VocabularyOptions(Config):
    """A vanilla objective has nothing to set."""


class ContrastiveOptions(Config):
    """A contrastive loss against the targets of the batch (arXiv 2309.08351) and its variations."""

    temperature: float = Field(1.0, gt=0)
    """tau: similarities are divided by it. The paper's is 1."""
    learn_temperature: bool = False
    """tau is a parameter, and `temperature` where it starts."""
    negatives: int | None = Field(None, ge=1)
    """How many tokens to be told apart from, drawn from the batch's targets; null takes all, as the paper does."""
    beyond_batch: Literal["nothing", "vocabulary", "queue"] = "nothing"
    """Where negatives come from that the batch does not have: the vocabulary, by frequency, or the targets before."""
    log_q: bool = False
    """Take the log-frequency of a candidate off its score: frequent tokens are more often negatives."""
    gathered: bool = True
    """Candidates are the targets of the whole step, all workers' and micro-batches'; false: of each micro-batch."""

    @model_validator(mode="after")
    def _beyond_needs_a_number(self) -> ContrastiveOptions:
        if self.beyond_batch != "nothing" and self.negatives is None:
            raise ValueError("'beyond_batch' fills up to 'negatives': set it")
        return self


class TiedOptions(ContrastiveOptions):
    """Contrastive weight tying: candidates are scored by their input embeddings. The defaults are the paper's loss."""

    detached: bool = False
    """Candidates' embeddings learn nothing from being candidates."""


class CombinedOptions(TiedOptions):
    """Cross-entropy and contrastive weight tying, summed (arXiv 2309.08351, section 5.1)."""

    contrastive_weight: float = Field(1.0, gt=0)
    """The contrastive loss is multiplied by it. The paper's is 1."""


class SampledOptions(Config):
    """Sampled softmax (Bengio and Senecal 2008; arXiv 1412.2007)."""

    samples: int = Field(4096, ge=1)
    """Tokens drawn from the vocabulary, each step anew; each position's own target is always among its candidates."""
    proposal: Literal["frequency", "uniform"] = "frequency"
    """They are drawn by their frequency in the training text, or all alike."""


Options = VocabularyOptions | ContrastiveOptions | SampledOptions


@dataclass(frozen=True)
class Objective:
    """One pretraining objective."""

    name: str
    task: Task
    options: type[VocabularyOptions] | type[ContrastiveOptions] | type[SampledOptions]
    terms: tuple[Term, ...]

    @property
    def headless(self) -> bool:
        """True: no vocabulary projection is trained; the input embedding scores tokens."""
        return all(term.weights == "embedding" for term in self.terms)

    @property
    def whole_vocabulary(self) -> bool:
        """Whether a term scores every token of the vocabulary."""
        return any(term.candidates == "vocabulary" for term in self.terms)


_CROSS_ENTROPY = Term("vocabulary", "head")
_CONTRASTIVE = Term("targets", "embedding")
_UNTIED = Term("targets", "table")
_SAMPLED = Term("samples", "head")

OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("mlm", "masked", VocabularyOptions, (_CROSS_ENTROPY,)),
        Objective("headless_mlm", "masked", TiedOptions, (_CONTRASTIVE,)),
        Objective("clm", "causal", VocabularyOptions, (_CROSS_ENTROPY,)),
        Objective("headless_clm", "causal", TiedOptions, (_CONTRASTIVE,)),
        Objective("mlm+cwt", "masked", CombinedOptions, (_CROSS_ENTROPY, _CONTRASTIVE)),
        Objective("clm+cwt", "causal", CombinedOptions, (_CROSS_ENTROPY, _CONTRASTIVE)),
        Objective("nce_untied", "masked", ContrastiveOptions, (_UNTIED,)),
        Objective("nce_untied_clm", "causal", ContrastiveOptions, (_UNTIED,)),
        Objective("sampled_softmax", "masked", SampledOptions, (_SAMPLED,)),
        Objective("sampled_softmax_clm", "causal", SampledOptions, (_SAMPLED,)),
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
