"""The manifest of a packed corpus: what was made, how much of it, and where it lies."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from trainables.config import Config
from trainables.corpora.reading.tally import Tally
from trainables.errors import InputError
from trainables.storage import Location

FORMAT_VERSION = 5  # changes with anything that changes the packed tokens of the same input, or this record's form

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
HELD_OUT: tuple[Split, ...] = SPLITS[1:]
Share = Annotated[float, Field(ge=0, le=1)]


class Shard(Config):
    """One file of packed sequences."""

    file: str = Field(pattern=r"^shards/[a-z]+/[A-Za-z0-9_-]{1,200}\.npy$")  # path in the corpus's folder
    sequences: int = Field(ge=1)  # rows of the array
    checksum: str  # blake2b of the file, hexadecimal


class LanguageCounts(Config):
    """One language of one split."""

    documents: NonNegativeInt  # documents read into the split
    tokens: NonNegativeInt
    """All their tokens with a separator after each document; the last ones, which fill no sequence, count too."""
    sequences: NonNegativeInt  # rows of all shards
    shards: tuple[Shard, ...]  # in the order in which their rows are numbered
    words: NonNegativeInt = 0  # runs of characters between white space
    characters: NonNegativeInt = 0  # Unicode code points
    unknown_tokens: NonNegativeInt = 0  # unknown tokens, and bytes of characters that have no piece

    @classmethod
    def total(cls, *own: Self) -> Self:
        """Of several parts together, their shards one after the other."""
        sums = {name: sum(getattr(part, name) for part in own) for name in cls.model_fields if name != "shards"}
        return cls(**sums, shards=tuple(shard for part in own for shard in part.shards))


class Overlap(Config):
    """How much of a language's held-out text of one split stands in the training text of any language too."""

    documents: NonNegativeInt  # held out, before any is left out
    left_out: NonNegativeInt  # of which too much stands there
    kept: NonNegativeInt  # of which too much stands there, and which stay: generated, or most of their language's
    before: Share  # of the n-grams of all documents, each counted once a document
    after: Share  # of those that are not left out


class Manifest(Config):
    """What a packed corpus is. Written last: where it is, the corpus is whole."""

    format_version: int  # `FORMAT_VERSION` of the code that wrote it
    fingerprint: str  # of the sources' content, the tokenizer, the split and the sequence length
    vocabulary_size: int  # token ids are below it
    sequence_length: int = Field(ge=1)  # tokens in a sequence
    dtype: Literal["uint16", "uint32"]  # of the shards' arrays
    pad_token: NonNegativeInt  # id of the padding token
    mask_token: int | None  # its id; None where the tokenizer has none, which only masked objectives need
    separator_token: NonNegativeInt  # id of the token after every document
    special_tokens: tuple[int, ...]  # ids of all special tokens, those three among them, sorted
    languages: tuple[str, ...]  # sorted
    splits: dict[Split, dict[str, LanguageCounts]]  # counts by split and language
    sources: tuple[Tally, ...] = ()  # what became of the records of each source, in the study's order
    group_bytes: tuple[int | None, ...] = ()  # of each source's text files: given, or chosen
    overlap: dict[Split, dict[str, Overlap]] = Field(default={})  # of the held-out splits, by language
    groups: str = ""  # checksum of the record of the held-out documents' groups; without it each is one of its own

    @model_validator(mode="after")
    def _all_languages_in_all_splits(self) -> Self:
        if set(self.splits) != set(SPLITS) or any(set(own) != set(self.languages) for own in self.splits.values()):
            raise ValueError("its splits are not those of its languages")
        counts = [counts for own in self.splits.values() for counts in own.values()]
        if any(one.sequences != sum(shard.sequences for shard in one.shards) for one in counts):
            raise ValueError("its sequences are not those of its shards")
        if not 0 < self.vocabulary_size <= 1 << 32 or self.separator_token >= self.vocabulary_size:
            raise ValueError(f"its vocabulary has {self.vocabulary_size} tokens")
        return self

    @property
    def required_mask_token(self) -> int:
        """The mask token, for a masked objective: a study without one has none such."""
        assert self.mask_token is not None
        return self.mask_token


def token_dtype(vocabulary_size: int) -> Literal["uint16", "uint32"]:
    """The smallest of the shards' types that holds every token id."""
    return "uint16" if vocabulary_size <= np.iinfo(np.uint16).max + 1 else "uint32"


def damaged(file: Location) -> InputError:
    """The error of a file of a prepared corpus that is not what was written."""
    return InputError(
        f"{file.name} of the prepared corpus is {'damaged' if file.exists() else 'missing'}",
        where=str(file),
        remedy="h2h prepare STUDY makes the parts that are not whole again",
    )
