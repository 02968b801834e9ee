"""The part of a study that says which text is pretrained on, and how it is cut into tokens."""

from typing import Literal, Self

from pydantic import Field, model_validator

from trainables.config import Config, Key
from trainables.errors import InputError

_COLUMNS = ("text_column", "id_column", "language_column", "group_column")
_KIND_OPTIONS = {
    "files": (*_COLUMNS, "group_bytes"),
    "dataset": ("config", "split", "revision", "streaming", *_COLUMNS),
    "grammar": ("documents", "seed"),
}


class SourceConfig(Config):
    """Text of one language, from exactly one of ``files``, ``dataset`` and ``grammar``."""

    language: Key
    """The language's code, such as ``en``: letters, digits, ``-``, ``_``. Sources of one are joined."""
    files: str | tuple[str, ...] | None = None
    """Paths or URIs (``s3://``, ``gs://``, ``hf://``) of files, with ``*``, ``?`` and ``**`` as wildcards."""
    dataset: str | None = None
    """A Hugging Face data set: its name on the hub, or a local folder."""
    config: str | None = None
    """The data set's configuration."""
    split: str = "train"
    """The data set's split."""
    revision: str | None = None
    """The data set's revision on the hub: a commit, branch or tag."""
    streaming: bool = True
    """Read the data set from the hub as it is needed; otherwise it is downloaded first, once on each machine."""
    grammar: str | None = None
    """The name of an embedded language, whose text is generated."""
    documents: int = Field(default=1000, ge=1)
    """How many documents the grammar generates."""
    seed: int = Field(default=0, ge=0)
    """The seed of the grammar's documents."""
    text_column: str = "text"
    """The column that holds a document's text."""
    id_column: str | None = None
    """The column that holds a document's id; without it the id is a hash of language and text."""
    language_column: str | None = None
    """The column that holds a record's language, where a file has several: only records of ``language`` are read."""
    group_column: str | None = None
    """The column that holds what documents have in common: a book, a site, the page that they translate. Those with the
    same value, of whatever source and language, are all in one split."""
    group_bytes: int | None = Field(default=None, ge=0)
    """Documents of a ``.txt`` file are in one split that begin in the same stretch of so many bytes: 0 is the file, 1
    each document alone. Not given: the file; where a split would then have fewer than three groups, the longest stretch
    of 65,536 bytes, 32,768, ... 256 with which none has; else 1."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        optional = (self.id_column, self.language_column, self.group_column)
        return (self.text_column, *(column for column in optional if column is not None))

    @property
    def kind(self) -> str:
        """``files``, ``dataset`` or ``grammar``."""
        return next(kind for kind in _KIND_OPTIONS if getattr(self, kind))

    @model_validator(mode="after")
    def _one_kind_with_its_options(self) -> Self:
        kinds = [kind for kind in _KIND_OPTIONS if getattr(self, kind) not in (None, "", ())]
        if len(kinds) != 1:
            raise ValueError(f"set exactly one of files, dataset and grammar, not {' and '.join(kinds) or 'none'}")
        files = (self.files,) if isinstance(self.files, str) else self.files or ()
        if any("\0" in name for name in (*files, self.dataset or "")):
            raise ValueError("a name of files or of a dataset cannot hold the character NUL")
        options = dict.fromkeys(option for options in _KIND_OPTIONS.values() for option in options)
        for option in options:
            changed = getattr(self, option) != type(self).model_fields[option].default
            if changed and option not in _KIND_OPTIONS[kinds[0]]:
                owners = [kind for kind in _KIND_OPTIONS if option in _KIND_OPTIONS[kind]]
                raise ValueError(f"{option} is an option of {' and '.join(owners)}; this source is a {kinds[0]} source")
        return self


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
    and below 1 whenever all the rest of a file is lost: a compressed file that is cut short."""
    deduplicate: bool = False
    """Of documents with the same text, in whatever language, only the first is kept, in the order of the sources."""
    maximum_overlap: float = Field(default=0.1, gt=0, le=1)
    """A held-out document is left out when more than this share of its n-grams (of 8 words) stands in the training text
    as well; 1 keeps all. Generated text stays, and so does that of a language of which most would go."""
    minimal_pairs_per_language: int = Field(default=200, ge=0)
    """Minimal pairs to judge models by, for each language that has a grammar."""

    @model_validator(mode="after")
    def _something_to_train_on(self) -> Self:
        if self.validation_share + self.test_share >= 1:
            raise ValueError("validation_share and test_share leave nothing to train on: their sum must be below 1")
        return self

    @property
    def has_minimal_pairs(self) -> bool:
        """Whether any language's grammar gives minimal pairs."""
        return self.minimal_pairs_per_language > 0 and any(source.grammar is not None for source in self.sources)


class TrainTokenizer(Config):
    """How to train a tokenizer."""

    type: Literal["unigram", "bpe", "byte_bpe", "wordpiece"] = "unigram"
    """The segmentation model. All but wordpiece restore the text, up to Unicode's NFKC, when decoded."""
    vocabulary_size: int = Field(default=8000, ge=100)
    """Pieces, special tokens included."""
    sample_bytes: int = Field(default=10_000_000, ge=1000)
    """How much text to train on, over all languages."""


class TokenizerConfig(Config):
    """A tokenizer: exactly one of ``train`` and ``pretrained``."""

    train: TrainTokenizer | None = None
    """Train one on the corpora's training split."""
    pretrained: str | None = None
    """A local folder, a ``tokenizer.json`` file or a name on the Hugging Face hub. Its code is never run."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.train is None) == (not self.pretrained):
            alone = f"{{pretrained: {self.pretrained or 'NAME'}}}"
            raise InputError(
                "set exactly one of tokenizer.train and tokenizer.pretrained",
                remedy=f"tokenizer: {alone}, or tokenizer: {{train: {{}}}}; on the command line the whole of it: "
                f"--set tokenizer='{alone}'",
            )
        return self
