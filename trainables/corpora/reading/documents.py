"""Sources: where a language's text comes from, and its documents one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from pydantic import Field, model_validator

from trainables.config import Config
from trainables.corpora.reading.formats import COLUMN_REMEDY, Malformed, group_bytes, read_records
from trainables.corpora.reading.hugging_face import open_data_set, rows
from trainables.corpora.reading.tally import Document, Passed, Tally, total
from trainables.corpora.reading.wildcards import matching_files
from trainables.errors import InputError, nearest
from trainables.storage import Location

__all__ = [
    "Allowance",
    "Document",
    "Portion",
    "SourceConfig",
    "Tally",
    "check_sources",
    "divide",
    "expand",
    "read_documents",
    "read_head",
]

HEAD_RECORDS = 100
"""How many records of each file are looked at before anything starts."""

HEAD_MALFORMED_SHARE = 0.1
"""Tolerated of a head: among so few records a share is a guess, and the preparation counts them all."""

_HEAD_CHARACTERS = 1 << 20
_OPEN_FILES = 16

_KIND_OPTIONS = {
    "files": ("text_column", "id_column", "language_column"),
    "dataset": ("config", "split", "revision", "streaming", "text_column", "id_column", "language_column"),
    "grammar": ("documents", "seed"),
}


class SourceConfig(Config):
    """Text of one language, from exactly one of ``files``, ``dataset`` and ``grammar``."""

    language: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        optional = (self.id_column, self.language_column)
        return (self.text_column, *(column for column in optional if column is not None))

    @model_validator(mode="after")
    def _one_kind_with_its_options(self) -> SourceConfig:
        kinds = [kind for kind in _KIND_OPTIONS if getattr(self, kind) not in (None, "", ())]
        if len(kinds) != 1:
            raise ValueError(f"set exactly one of files, dataset and grammar, not {' and '.join(kinds) or 'none'}")
        options = dict.fromkeys(option for options in _KIND_OPTIONS.values() for option in options)
        for option in options:
            changed = getattr(self, option) != type(self).model_fields[option].default
            if changed and option not in _KIND_OPTIONS[kinds[0]]:
                owners = [kind for kind in _KIND_OPTIONS if option in _KIND_OPTIONS[kind]]
                raise ValueError(f"{option} is an option of {' and '.join(owners)}; this source is a {kinds[0]} source")
        return self

    @property
    def kind(self) -> str:
        """``files``, ``dataset`` or ``grammar``."""
        return next(kind for kind in _KIND_OPTIONS if getattr(self, kind))


class Portion(NamedTuple):
    """Read in one go: a file, or a range of a large one, of a data set or of a grammar's documents."""

    name: str
    """The file's path or URI, the data set's or the grammar's name."""

    size_bytes: int
    """As stored; estimated for a grammar and for a data set that does not say."""

    start: int = 0
    """The first row group (parquet), batch (arrow), block (plain text), shard (data set) or document (grammar)."""

    stop: int | None = None
    """The end of the range; None: to the end."""


def expand(source: SourceConfig, where: str = "source") -> list[Portion]:
    """The portions of a source in a fixed order: files by name, a data set's shards, one for a grammar.

    Args:
        source: the source.
        where: how to call the source in an error.

    Raises:
        InputError: no file matches, there is no such data set or grammar.
    """
    if source.grammar is not None:
        _check_grammar(source.grammar, where)
        return [Portion(source.grammar, source.documents * GRAMMAR_DOCUMENT_BYTES, 0, source.documents)]
    if source.dataset is not None:
        _, num_shards, size_bytes = open_data_set(source, where)
        return [Portion(source.dataset, size_bytes // num_shards, shard, shard + 1) for shard in range(num_shards)]
    patterns = (source.files,) if isinstance(source.files, str) else source.files or ()
    found = {file for pattern in patterns for file in matching_files(pattern, f"{where}.files")}
    return [Portion(name, size_bytes) for name, size_bytes in sorted(found)]


GRAMMAR_DOCUMENT_BYTES = 512
"""About how long a generated document is."""


def divide(portion: Portion, size_bytes: int) -> list[Portion]:
    """Cut a portion in ranges of about ``size_bytes``, where its kind can be read from the middle."""
    if portion.size_bytes <= size_bytes:
        return [portion]
    if portion.stop is not None:
        step = max(1, (portion.stop - portion.start) * size_bytes // portion.size_bytes)
        sizes_bytes = [portion.size_bytes // (portion.stop - portion.start)] * (portion.stop - portion.start)
        starts = list(range(portion.start, portion.stop, step))
    elif sizes_bytes := group_bytes(Location(portion.name)):
        starts, room_bytes = [], 0
        for group, own_bytes in enumerate(sizes_bytes):
            if own_bytes > room_bytes:
                starts.append(group)
                room_bytes = size_bytes
            room_bytes -= own_bytes
    else:
        return [portion]
    stops = [*starts[1:], portion.start + len(sizes_bytes)]
    return [
        Portion(portion.name, sum(sizes_bytes[start - portion.start : stop - portion.start]), start, stop)
        for start, stop in zip(starts, stops, strict=True)
    ]


@dataclass
class Allowance:
    """How much may still be read; readings that share one end together."""

    characters: float
    """Of records of whatever language."""

    def take(self, text: object) -> bool:
        """Whether there was any left for a record with this text."""
        is_left = self.characters > 0
        self.characters -= 1 + (len(text) if isinstance(text, str) else 0)
        return is_left


def read_documents(
    portion: Portion,
    source: SourceConfig,
    where: str = "source",
    tally: Tally | None = None,
    allowance: Allowance | None = None,
) -> Iterator[Document]:
    """The documents of a portion, in order, streamed.

    Args:
        portion: what to read.
        source: where it is from.
        where: how to call the source in an error.
        tally: counts every record, those too of which no document comes.
        allowance: the documents end early when it is used up.

    Raises:
        InputError: the portion cannot be read.
    """
    tally = tally if tally is not None else Tally()
    for item in _read(portion, source, where, allowance or Allowance(math.inf)):
        tally.count(item)
        if isinstance(item, Document):
            yield item


def _read(
    portion: Portion, source: SourceConfig, where: str, allowance: Allowance
) -> Iterator[Document | Malformed | Passed]:
    """What each record of a portion is."""
    if source.grammar is not None:
        from trainables.corpora.grammar import documents

        generated = documents(source.grammar, source.documents, source.seed)
        for document_id, text in itertools.islice(generated, portion.start, portion.stop):
            yield Document(text, source.language, document_id)
        return
    if source.dataset is not None:
        for place, record in rows(source, portion.start, where):
            for column in source.columns:
                if column not in record:
                    raise InputError(
                        f"there is no column '{column}' in the data set {source.dataset}",
                        where=f"{where}.dataset",
                        why=nearest(column, record),
                        remedy=COLUMN_REMEDY,
                    )
            if not allowance.take(record[source.text_column]):
                return
            yield _document(record, source, place)
        return
    file = Location(portion.name)
    groups = None if portion.stop is None else range(portion.start, portion.stop)
    for item in read_records(file, source.columns, groups):
        if not allowance.take(None if isinstance(item, Malformed) else item[1][source.text_column]):
            return
        yield item if isinstance(item, Malformed) else _document(item[1], source, f"{file}, {item[0]}")


def _document(record: Mapping[str, object], source: SourceConfig, place: str) -> Document | Malformed | Passed:
    """The record's document, or what it is instead."""
    if source.language_column is not None:
        language = record[source.language_column]
        if not isinstance(language, str) or not language:
            what = f"a record without a language in the column '{source.language_column}'"
            return Malformed(what, place, f"it holds {language!r:.60}", "fill the column")
        if language != source.language:
            return Passed.OTHER_LANGUAGE
    text = record[source.text_column]
    if text is None:
        return Passed.EMPTY
    if not isinstance(text, str):
        return Malformed(
            f"the column '{source.text_column}' holds no text but a value of type {type(text).__name__}",
            place,
            f"it holds {text!r:.60}",
            "name the column that holds the documents' text: text_column",
        )
    if not text or text.isspace():
        return Passed.EMPTY
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        what = f"the column '{source.text_column}' holds half a character (a lone surrogate)"
        why = f"{text[error.start]!a} at character {error.start + 1}"
        return Malformed(what, place, why, "escape characters beyond U+FFFF as pairs of surrogates")
    if source.id_column is None:
        content = source.language.encode() + b"\0" + encoded
        return Document(text, source.language, blake2b(content, digest_size=16).hexdigest())
    document_id = str(record[source.id_column] if record[source.id_column] is not None else "")
    if not document_id or not _is_unicode(document_id):
        return Malformed(
            f"a document without a usable id in the column '{source.id_column}'",
            place,
            "the id decides whether a document is trained on or held out",
            "fill the column, or leave out id_column to have ids made from the text",
        )
    return Document(text, source.language, document_id)


def _is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_sources(sources: Sequence[SourceConfig], malformed_share: float = 0.0) -> None:
    """Look at the head of every file, data set and grammar, so that a mistake shows before anything starts.

    Args:
        sources: what to look at.
        malformed_share: of a source's records, tolerated.

    Raises:
        InputError: the first thing wrong, with the file and line or the key (``corpora.sources[2].files``).
    """
    for number, source in enumerate(sources):
        where = f"corpora.sources[{number}]"
        portions = expand(source, where)
        if source.files is None:
            portions = portions[:1]
        with ThreadPoolExecutor(_OPEN_FILES) as pool:  # on an object store each file is a round trip
            heads = list(pool.map(partial(read_head, source=source, where=where), portions))
        head = total(tally for tally, _ in heads)
        whole = all(is_whole for _, is_whole in heads)
        head.require_sound(malformed_share, where, 0.0 if whole else HEAD_MALFORMED_SHARE)
        if not head.documents and not head.other_languages:
            raise InputError(
                "no document with text",
                where=f"{where}.{source.kind}",
                why=f"the column '{source.text_column}' is empty in the first {HEAD_RECORDS} records",
                remedy="name the column that holds the documents' text: text_column",
            )


def read_head(portion: Portion, source: SourceConfig, where: str = "source") -> tuple[Tally, bool]:
    """What the first records of a portion are, and whether they are all."""
    tally = Tally()
    num_characters = 0
    for item in _read(portion, source, where, Allowance(math.inf)):
        tally.count(item)
        num_characters += len(item.text) if isinstance(item, Document) else 0
        if tally.records >= HEAD_RECORDS or num_characters > _HEAD_CHARACTERS:
            return tally, False
    return tally, source.files is not None


def _check_grammar(name: str, where: str) -> None:
    from trainables.corpora.grammar import LANGUAGES

    if name not in LANGUAGES:
        raise InputError(
            f"there is no embedded language '{name}'",
            where=f"{where}.grammar",
            why=nearest(name, LANGUAGES),
            remedy="choose one of them, or give files or a dataset",
        )
