"""File formats: each suffix and the function that streams the records of such a file.

A new format is one entry of :data:`READERS`. A reader yields ``(place, record)``: where in the file the
record is, as a person would say it, and its columns. It holds a bounded part of the file in memory:
a batch of rows, a line, or a document.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainables.errors import InputError, nearest
from trainables.storage import Location

Record = tuple[str, Mapping[str, Any]]
"""Where the record lies in its file, and its columns."""

Columns = tuple[str, ...]
"""The columns that the caller needs; a reader may leave out the others."""

Reader = Callable[[Location, Columns, range | None], Iterator[Record]]
"""Streams a file's records; with a range, only those of these row groups (parquet)."""

READ_BYTES = 1 << 20
"""How much is read at a time."""

ROWS_PER_BATCH = 1024
"""How many rows of a parquet file are decoded at a time."""

COLUMN_REMEDY = "name the column of the documents' text with text_column, that of their ids with id_column"

_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"

csv.field_size_limit(2**31 - 1)  # a document is often longer than the default limit of 128 KiB


def suffix_of(name: str) -> str | None:
    """The registered suffix that a file's name ends with, or None."""
    return next((suffix for suffix in READERS if name.endswith(suffix)), None)


def read_records(file: Location, columns: Columns, row_groups: range | None = None) -> Iterator[Record]:
    """The records of a file, in its order, by the reader for its suffix.

    Raises:
        InputError: the suffix is unknown, the file is empty, damaged or of another format than its name says,
            or a record is malformed or lacks one of the columns.
    """
    suffix = suffix_of(file.name)
    if suffix is None:
        raise InputError(
            f"unknown file format: {file.name}",
            where=str(file),
            why=f"the suffix says which reader to use; {nearest(_suffixes(file.name), READERS)}",
            remedy="convert the file, or rename it if only its suffix is wrong",
        )
    _check_magic(file, suffix)
    try:
        yield from READERS[suffix](file, columns, row_groups)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{file.name} cannot be read to its end",
            where=str(file),
            why=f"it is truncated or damaged: {error}",
            remedy="copy or download the file again",
        ) from error


def _suffixes(name: str) -> str:
    """``.jsonl.zst`` of ``en.jsonl.zst``."""
    return name[name.find(".", 1) :] if "." in name[1:] else name


def _check_magic(file: Location, suffix: str) -> None:
    """Raise InputError where the file's first bytes say another format than its name."""
    with file.filesystem.open_input_file(file.path) as stream:
        head = bytes(stream.read(4))
    if not head:
        raise InputError(
            f"{file.name} is empty", where=str(file), remedy="remove it, or leave it out of the pattern"
        )
    expected = _GZIP_MAGIC if suffix.endswith(".gz") else _PARQUET_MAGIC if suffix == ".parquet" else b""
    found = next((magic for magic in (_GZIP_MAGIC, _PARQUET_MAGIC) if head.startswith(magic)), b"")
    if found != expected:
        kinds = {_GZIP_MAGIC: "gzip", _PARQUET_MAGIC: "parquet", b"": "neither gzip nor parquet"}
        claimed = kinds[expected] if expected else "plain text"
        raise InputError(
            f"{file.name} is of another format than its name says",
            where=str(file),
            why=f"by its first bytes it is {kinds[found]}; a {suffix} file is {claimed}",
            remedy="rename the file to its true format",
        )


def _lines(file: Location) -> Iterator[str]:
    """The decoded lines of a text file, each with its line end; a byte order mark is dropped."""
    compression = "gzip" if file.name.endswith(".gz") else None
    with file.filesystem.open_input_stream(
        file.path, compression=compression, buffer_size=READ_BYTES
    ) as stream:
        offset_bytes = 0
        for number, line in enumerate(io.BufferedReader(stream, READ_BYTES), 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{file.name} holds bytes that are not UTF-8",
                    where=f"{file}, line {number}, byte {offset_bytes + error.start}",
                    why=f"{error.reason}: {error.object[error.start : error.start + 1]!r}",
                    remedy="convert the file: iconv -f latin1 -t utf-8 OLD > NEW (with its true encoding)",
                ) from error
            offset_bytes += len(line)
            yield text


def _require_columns(file: Location, place: str, needed: Columns, present: list[str]) -> None:
    for column in needed:
        if column not in present:
            raise InputError(
                f"there is no column '{column}' in {file.name}",
                where=f"{file}, {place}",
                why=nearest(column, present),
                remedy=COLUMN_REMEDY,
            )


def read_jsonl(file: Location, columns: Columns, _: range | None = None) -> Iterator[Record]:
    """One JSON object a line; blank lines are passed over."""
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        remedy = 'one JSON object a line, such as {"text": "..."}'
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            why = f"{error.msg} at character {error.pos + 1}: {line[:60].rstrip()!r}"
            raise InputError(
                f"a line is not JSON in {file.name}", where=f"{file}, {place}", why=why, remedy=remedy
            ) from error
        if not isinstance(record, dict):
            why = f"it is of type {type(record).__name__}: {line[:60].rstrip()!r}"
            raise InputError(
                f"a line is not a JSON object in {file.name}",
                where=f"{file}, {place}",
                why=why,
                remedy=remedy,
            )
        _require_columns(file, place, columns, list(record))
        yield place, record


def read_text(file: Location, columns: Columns, _: range | None = None) -> Iterator[Record]:
    """Documents are separated by blank lines, as in BERT's own format; the text column's name does not matter."""
    if len(columns) > 1:
        raise InputError(
            f"there are no ids in {file.name}",
            where=str(file),
            why="a text file has no columns",
            remedy="leave out id_column",
        )
    begin, document = 1, ""
    for number, line in enumerate(_lines(file), 1):
        if line.strip():
            document += line
            continue
        if document:
            yield f"line {begin}", {columns[0]: document.rstrip("\r\n")}
        begin, document = number + 1, ""
    if document:  # without its line end too: text added to the file later must not change its id
        yield f"line {begin}", {columns[0]: document.rstrip("\r\n")}


def read_delimited(file: Location, columns: Columns, _: range | None = None) -> Iterator[Record]:
    """Comma- or tab-separated values with a header line, quoted with ``"`` where needed."""
    delimiter = "\t" if file.name.removesuffix(".gz").endswith(".tsv") else ","
    rows = csv.reader(_lines(file), delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        _require_columns(file, "line 1", columns, header)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(
                    f"a row has {len(row)} fields, the header {len(header)}, in {file.name}",
                    where=f"{file}, line {rows.line_num}",
                    remedy='quote text that holds the separator or a line end: "..."',
                )
            yield f"line {rows.line_num}", dict(zip(header, row, strict=True))
    except csv.Error as error:
        where = f"{file}, line {rows.line_num}"
        remedy = 'double the quotes inside quoted text: "say ""yes"""'
        raise InputError(
            f"a row is malformed in {file.name}", where=where, why=str(error), remedy=remedy
        ) from error


def read_parquet(file: Location, columns: Columns, row_groups: range | None = None) -> Iterator[Record]:
    """The rows of the given row groups, or of all."""
    with pq.ParquetFile(file.filesystem.open_input_file(file.path)) as table:
        _require_columns(file, "schema", columns, table.schema_arrow.names)
        groups = list(row_groups if row_groups is not None else range(table.num_row_groups))
        row = sum(table.metadata.row_group(group).num_rows for group in range(groups[0])) if groups else 0
        for batch in table.iter_batches(batch_size=ROWS_PER_BATCH, row_groups=groups, columns=list(columns)):
            for record in batch.to_pylist():
                row += 1
                yield f"row {row}", record


def row_group_bytes(file: Location) -> list[int]:
    """The size of each row group of a parquet file, uncompressed."""
    with pq.ParquetFile(file.filesystem.open_input_file(file.path)) as table:
        return [table.metadata.row_group(group).total_byte_size for group in range(table.num_row_groups)]


READERS: dict[str, Reader] = {
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_jsonl,
    ".parquet": read_parquet,
    ".txt": read_text,
    ".txt.gz": read_text,
    ".csv": read_delimited,
    ".csv.gz": read_delimited,
    ".tsv": read_delimited,
    ".tsv.gz": read_delimited,
}
"""Suffix of a file's name -> the reader of such files. No suffix may be the end of another."""
