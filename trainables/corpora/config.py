"""The part of a study that says which text is pretrained on."""

from __future__ import annotations

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.corpora.reading.documents import SourceConfig


class CorporaConfig(Config):
    """The text to pretrain on and how it is cut, packed and mixed."""

    sources: tuple[SourceConfig, ...] = Field(min_length=1)
    """Where the text comes from."""

    alpha: float = Field(default=0.3, ge=0, le=1)
    """Languages are mixed in proportion to (their size) ** alpha: 1 as they are, 0 all alike."""

    maximum_repetition: float = Field(default=8.0, ge=1)
    """How often at most a language is seen in one pass over a stream as long as all the text: 1 is once."""

    sequence_length: int = Field(default=128, ge=8)
    """Tokens in a sequence."""

    document_attention: bool = False
    """Attention stays inside documents, and positions restart with them; otherwise it crosses packed documents."""

    validation_share: float = Field(default=0.02, gt=0, lt=1)
    """Share of the documents held out for validation."""

    test_share: float = Field(default=0.02, gt=0, lt=1)
    """Share of the documents held out for the final test."""

    malformed_share: float = Field(default=0.001, ge=0, le=1)
    """Share of a source's records that may be malformed: left out, counted and reported. Above it the run refuses;
    and below 1 whenever all the rest of a file is lost: a compressed file that is cut short, a csv quote not closed.
    """

    deduplicate: bool = False
    """Of documents with the same text, in whatever language, only the first is kept, in the order of the sources."""

    minimal_pairs_per_language: int = Field(default=200, ge=0)
    """Minimal pairs to judge models by, for each language that has a grammar."""

    @model_validator(mode="after")
    def _something_to_train_on(self) -> CorporaConfig:
        if self.validation_share + self.test_share >= 1:
            raise ValueError("validation_share and test_share leave nothing to train on: their sum must be below 1")
        return self

    @property
    def has_minimal_pairs(self) -> bool:
        """Whether any language's grammar gives minimal pairs."""
        return self.minimal_pairs_per_language > 0 and any(source.grammar is not None for source in self.sources)
