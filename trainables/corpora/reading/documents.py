"""The documents of a source, one by one."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainables.corpora.config import SourceConfig
from trainables.corpora.grammar import documents
from trainables.corpora.reading.files import has_columns, read_records
from trainables.corpora.reading.hugging_face import rows
from trainables.corpora.reading.portions import Portion
from trainables.corpora.reading.reader import Malformed, Record, shown
from trainables.corpora.reading.tally import Document, Passed, Tally
from trainables.hashing import checksum
from trainables.storage import Location

_MANY_LINES = 20
"""A text file of one document with so many lines is remarked on: each line may have been meant as a document."""
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass
class Allowance:
    """How much may still be read; readings that share one end together."""

    characters: float = math.inf  # of records of whatever language


def read_documents(
    portion: Portion,
    source: SourceConfig,
    where: str = "source",
    tally: Tally | None = None,
    allowance: Allowance | None = None,
) -> Iterator[Document]:
    """The documents of a portion, in order, streamed; they end early when the allowance is used up. The tally counts
    every record, those too of which no document comes. Raises InputError, which calls the source ``where``, if it
    cannot be read."""
    for item in read_items(portion, source, where, allowance):
        if tally is not None:
            tally.count(item)
        if isinstance(item, Document):
            yield item


def read_items(
    portion: Portion, source: SourceConfig, where: str, allowance: Allowance | None = None
) -> Iterator[Document | Malformed | Passed]:
    """What each record of a portion is, and what there is to say of its file."""
    allowance = allowance or Allowance()
    if source.grammar is not None:
        generated = documents(source.grammar, portion.stop or 0, source.seed, portion.start)
        yield from (Document(text, source.language, document_id, document_id) for document_id, text in generated)
        return
    name, records = open_portion(portion, source, where)
    num_records, text = 0, None
    for record in records:
        text = None if isinstance(record, Malformed) else record.columns[source.text_column]
        if allowance.characters <= 0:
            return
        allowance.characters -= 1 + (len(text) if isinstance(text, str) else 0)
        num_records += 1
        yield record if isinstance(record, Malformed) else _document(record, source, portion, name)
    if source.files is None or portion.start > 0:
        return
    if num_records == 0 and portion.stop is None:
        yield Passed.EMPTY_FILE
    is_long = num_records == 1 and isinstance(text, str) and text.count("\n") >= _MANY_LINES
    if is_long and not has_columns(Location(portion.name)):
        yield Passed.ONE_DOCUMENT


def open_portion(portion: Portion, source: SourceConfig, where: str) -> tuple[str, Iterator[Record | Malformed]]:
    """What to call a portion of files or of a data set in an error, and its records."""
    if source.dataset is not None:
        name = f"{source.dataset}, split {source.split}, shard {portion.start}"
        return name, rows(source, portion.start, where, name)
    file = Location(portion.name)
    parts = None if portion.stop is None else range(portion.start, portion.stop)
    return str(file), read_records(file, source.columns, parts)


def text_group(source: SourceConfig, portion: Portion, begin_bytes: int) -> str:
    """The group of a document of a text file by where it begins: of one language, a file or a stretch of one."""
    stretch = begin_bytes // source.group_bytes if source.group_bytes else 0
    return f"{source.language}\0{portion.file}\0{stretch}"


def _document(record: Record, source: SourceConfig, portion: Portion, name: str) -> Document | Malformed | Passed:
    """The record's document, or what it is instead."""
    where = f"{name}, {record.place}"
    if source.language_column is not None:
        language = record.columns[source.language_column]
        if not isinstance(language, str) or not language:
            what = f"a record without a language in the column '{source.language_column}'"
            return Malformed(what, where, f"it holds {shown(language)}", "fill the column")
        if language != source.language:
            return Passed.OTHER_LANGUAGE
    text = record.columns[source.text_column]
    if text is None:
        return Passed.EMPTY
    if not isinstance(text, str):
        what = f"the column '{source.text_column}' holds no text but a value of type {type(text).__name__}"
        remedy = "name the column that holds the documents' text: text_column"
        return Malformed(what, where, f"it holds {shown(text)}", remedy)
    if not text or text.isspace():
        return Passed.EMPTY
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        what = f"the column '{source.text_column}' holds half a character (a lone surrogate)"
        why = f"{text[error.start]!a} at character {error.start + 1}"
        return Malformed(what, where, why, "escape characters beyond U+FFFF as pairs of surrogates")
    for key, column in (("id", source.id_column), ("group", source.group_column)):
        value = column and record.columns[column]
        if column and (value is None or not str(value) or _HALF_A_CHARACTER.search(str(value))):
            what = f"a document without a usable {key} in the column '{column}'"
            why = f"the {key} decides whether a document is trained on or held out"
            remedy = "to have ids made from the text" if key == "id" else "where documents have nothing in common"
            return Malformed(what, where, why, f"fill the column, or leave out {key}_column {remedy}")
    content = source.language.encode() + b"\0" + encoded
    document_id = str(record.columns[source.id_column]) if source.id_column else checksum(content)
    if source.group_column:
        group = str(record.columns[source.group_column])
    elif record.begin_bytes is not None and source.group_bytes != 1:
        group = text_group(source, portion, record.begin_bytes)
    else:
        group = document_id
    return Document(text, source.language, document_id, group)
