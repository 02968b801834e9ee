"""File formats: each suffix and the reader that streams the records of such a file.

A new format is one entry of :data:`FORMATS`. A reader yields records, ``(place, columns)``: where in the file the
record is, as a person would say it, and its columns; and :class:`Malformed` for what should be a record and is none.
It holds a bounded part of the file in memory: a batch of rows, a line, or a document. Where records can be found
from the middle of a file, a range of it can be read apart.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from trainables.errors import InputError, nearest
from trainables.storage import Location, storage_errors

Record = tuple[str, Mapping[str, Any]]
"""Where the record lies in its file, and its columns."""

Columns = tuple[str, ...]
"""The columns that the caller needs; a reader may leave out the others."""


class Malformed(NamedTuple):
    """What should be a record and is none. Not an exception: it is counted, and the reader goes on."""

    what: str
    where: str
    """The file and the line or row; the byte, where the line is not known (see :func:`with_line`)."""
    why: str
    remedy: str
    num_records: int | None = 1
    """How many records may be lost with it; None: the rest of the file."""

    def error(self) -> InputError:
        """What is raised where such a record is not left out."""
        return InputError(self.what, where=self.where, why=self.why, remedy=self.remedy)


class Reader(Protocol):
    """Streams a file's records; with ``groups``, only those of these row groups (parquet), batches (arrow) or blocks
    of :data:`BLOCK_BYTES` (plain lines and text: the records that begin in them).
    """

    def __call__(self, file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
        """The records in the file's order.

        Raises:
            InputError: the whole file lacks a column, or cannot be read.
        """
        ...


READ_BYTES = 1 << 20
"""How much is read at a time."""

LINES_BYTES = 1 << 16
"""How much text is decompressed at a time: of a file that is cut short so much is lost before the cut."""

BLOCK_BYTES = 1 << 20
"""A large plain file is cut in ranges of so many bytes: whole records, wherever they begin."""

ROWS_PER_BATCH = 1024
"""How many rows of a table are decoded at a time."""

COLUMN_REMEDY = "name the column of the documents' text with text_column, that of their ids with id_column"

_DAMAGED_STREAM = re.compile("compressed stream|zlib|zstd", re.IGNORECASE)
"""What pyarrow says of a compressed stream that is cut short or damaged; a failing network says other things."""

_DAMAGED = re.compile(
    f"{_DAMAGED_STREAM.pattern}|thrift|corrupt|decompress|end of stream|expected to be able to read", re.IGNORECASE
)
"""What it says, in errors of the kind that a failing network has, of a table whose pages are."""

_BYTE_ALONE = re.compile(r"(?P<file>.+?)(?P<line>, line \d+)?, byte (?P<byte>\d+)")
"""Where a record begins that lies in the middle of a file."""

csv.field_size_limit(2**31 - 1)  # a document is often longer than the default limit of 128 KiB


def suffix_of(name: str) -> str | None:
    """The registered suffix that a file's name ends with, or None."""
    return next((suffix for suffix in FORMATS if name.endswith(suffix)), None)


def read_records(file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
    """The records of a file, in its order, by the reader for its suffix.

    Raises:
        InputError: the suffix is unknown, the file is empty or of another format than its name says, lacks one
            of the columns, cannot be read, or is a table and damaged.
    """
    suffix = suffix_of(file.name)
    if suffix is None:
        raise InputError(
            f"unknown file format: {file.name}",
            where=str(file),
            why=f"the suffix says which reader to use; {nearest(_suffixes(file.name), FORMATS)}",
            remedy="convert the file, or rename it if only its suffix is wrong",
        )
    with _explained(file):
        _check_magic(file, suffix)
        yield from FORMATS[suffix].read(file, columns, groups)


@contextmanager
def _explained(file: Location) -> Iterator[None]:
    """Turns what a damaged file, the network or a permission raises into an InputError; one of ours passes."""
    try:
        yield
    except (pa.ArrowException, *storage_errors()) as error:
        if isinstance(error, pa.ArrowException) or _DAMAGED.search(str(error)):
            raise InputError(
                f"{file.name} cannot be read to its end",
                where=str(file),
                why=f"it is truncated or damaged: {error}",
                remedy="copy or download the file again",
            ) from error
        raise InputError(
            f"{file.name} could not be read",
            where=str(file),
            why=str(error),
            remedy="see that it is there, that the network is, and that you may read it; then give the same command "
            "again",
        ) from error


def group_bytes(file: Location) -> list[int]:
    """The size of each part of a file that can be read apart; empty where it is read whole.

    Raises:
        InputError: it cannot be read.
    """
    suffix = suffix_of(file.name)
    groups = FORMATS[suffix].group_bytes if suffix else None
    with _explained(file):
        return groups(file) if groups else []


def with_line(malformed: Malformed) -> Malformed:
    """The same with the number of its line, where only its byte was known and the file is on this machine.

    All of the file before the byte is read: for the few that a person is told of.
    """
    place = _BYTE_ALONE.fullmatch(malformed.where)
    if place is None or place["line"]:
        return malformed
    file, remaining_bytes, line = Location(place["file"]).local, int(place["byte"]), 1
    if file is None:
        return malformed
    with file.open("rb") as stream:
        while remaining_bytes and (chunk := stream.read(min(READ_BYTES, remaining_bytes))):
            remaining_bytes -= len(chunk)
            line += chunk.count(b"\n")
    return malformed._replace(where=f"{place['file']}, line {line}, byte {place['byte']}")


def _gravest(malformed: list[Malformed]) -> Malformed:
    """Of all that is wrong with one record the first, unless the rest of the file is lost."""
    return next((one for one in malformed if one.num_records is None), malformed[0])


def _suffixes(name: str) -> str:
    """``.jsonl.bz2`` of ``en.jsonl.bz2``."""
    return name[name.find(".", 1) :] if "." in name[1:] else name


_MAGICS = {
    "gzip": b"\x1f\x8b",
    "zstd": b"\x28\xb5\x2f\xfd",
    "parquet": b"PAR1",
    "arrow": b"ARROW1",
    "an arrow stream": b"\xff\xff\xff\xff",
}
"""How files of each kind begin; plain text begins like none of them."""


def _check_magic(file: Location, suffix: str) -> None:
    """Raise InputError where the file's first bytes say another format than its name."""
    with file.filesystem.open_input_file(file.path) as stream:
        head = bytes(stream.read(max(map(len, _MAGICS.values()))))
    if not head:
        raise InputError(f"{file.name} is empty", where=str(file), remedy="remove it, or leave it out of the pattern")
    expected = FORMATS[suffix].kinds
    found = next((kind for kind, magic in _MAGICS.items() if head.startswith(magic)), "plain text")
    if found not in expected:
        unknown = f"neither {' nor '.join(kind for kind in _MAGICS if kind[:2] != 'an')}"
        raise InputError(
            f"{file.name} is of another format than its name says",
            where=str(file),
            why=f"by its first bytes it is {unknown if found == 'plain text' else found}; "
            f"a {suffix} file is {' or '.join(expected)}",
            remedy="rename the file to its true format",
        )


class _Line(NamedTuple):
    """A line of a text file."""

    text: str
    """Decoded, with its line end."""
    place: str
    """Its number; in the middle of a file, where counting would cost reading all before, the byte it begins at."""
    begin_bytes: int


def _lines(
    file: Location, malformed: list[Malformed], start_bytes: int = 0, stop_bytes: float = math.inf
) -> Iterator[_Line]:
    """The lines of a text file that begin at ``start_bytes`` or after it; a byte order mark is dropped.

    They go on after ``stop_bytes``, as a record may; if none begins before it there are none.

    What is wrong with a line, or with the end of the file, is put in ``malformed`` before the line comes, or the
    lines end: the record it belongs to is the reader's to leave out.
    """
    suffix = file.name.rpartition(".")[2]
    compression = {"gz": "gzip", "zst": "zstd"}.get(suffix)
    if start_bytes:
        opened, buffer_bytes = file.filesystem.open_input_file(file.path), READ_BYTES
    else:
        opened, buffer_bytes = (
            file.filesystem.open_input_stream(file.path, compression=compression, buffer_size=READ_BYTES),
            LINES_BYTES,
        )
    with opened as stream:
        if start_bytes:
            stream.seek(start_bytes - 1)
        lines = io.BufferedReader(stream, buffer_bytes)
        number = offset_bytes = 0
        if start_bytes:  # the line in which the byte before lies began earlier
            offset_bytes = start_bytes - 1 + len(lines.readline(int(stop_bytes) - start_bytes + 1))
            if offset_bytes >= stop_bytes:
                return
        while True:
            place = f"byte {offset_bytes}" if start_bytes else f"line {number + 1}"
            try:
                line = next(lines, b"")
            except OSError as error:
                if compression is None or not _DAMAGED_STREAM.search(str(error)):
                    raise
                malformed.append(
                    Malformed(
                        f"{file.name} cannot be read to its end",
                        f"{file}, {place}",
                        f"it is truncated or damaged, and what follows is lost: {error}",
                        "copy or download the file again",
                        num_records=None,
                    )
                )
                return
            if not line:
                return
            number += 1
            encoding = "utf-8-sig" if offset_bytes == 0 else "utf-8"
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                wrong = offset_bytes + error.start
                malformed.append(
                    Malformed(
                        f"{file.name} holds bytes that are not UTF-8",
                        f"{file}, byte {wrong}" if start_bytes else f"{file}, {place}, byte {wrong}",
                        f"{error.reason}: {error.object[error.start : error.start + 1]!r}",
                        "convert the file: iconv -f latin1 -t utf-8 OLD > NEW (with its true encoding)",
                    )
                )
                text = line.decode(encoding, errors="replace")
            yield _Line(text, place, offset_bytes)
            offset_bytes += len(line)


def _range_bytes(groups: range | None) -> tuple[int, float]:
    """The bytes of the blocks: first, and after the last."""
    if groups is None:
        return 0, math.inf
    return groups.start * BLOCK_BYTES, groups.stop * BLOCK_BYTES


def _require_columns(file: Location, place: str, needed: Columns, present: list[str]) -> None:
    for column in needed:
        if column not in present:
            raise _lacks(file, place, column, present).error()


def _lacks(file: Location, place: str, column: str, present: list[str]) -> Malformed:
    what = f"there is no column '{column}' in {file.name}"
    return Malformed(what, f"{file}, {place}", nearest(column, present), COLUMN_REMEDY)


def read_jsonl(file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
    """One JSON object a line; blank lines are passed over."""
    start_bytes, stop_bytes = _range_bytes(groups)
    malformed: list[Malformed] = []
    for line in _lines(file, malformed, start_bytes, stop_bytes):
        if line.begin_bytes >= stop_bytes:
            return
        if malformed:
            yield malformed.pop()
        elif line.text.strip():
            yield _json_record(file, line.place, line.text, columns)
    yield from malformed


def _json_record(file: Location, place: str, line: str, columns: Columns) -> Record | Malformed:
    where, remedy = f"{file}, {place}", 'one JSON object a line, such as {"text": "..."}'
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        why = f"{error.msg} at character {error.pos + 1}: {line[:60].rstrip()!r}"
        return Malformed(f"a line is not JSON in {file.name}", where, why, remedy)
    except RecursionError:
        return Malformed(f"a line is not JSON in {file.name}", where, "it is nested too deeply", remedy)
    except ValueError as error:  # a number of thousands of digits
        return Malformed(f"a line cannot be read in {file.name}", where, str(error), remedy)
    if not isinstance(record, dict):
        why = f"it is of type {type(record).__name__}: {line[:60].rstrip()!r}"
        return Malformed(f"a line is not a JSON object in {file.name}", where, why, remedy)
    for column in columns:
        if column not in record:
            return _lacks(file, place, column, list(record))
    return place, record


def read_text(file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
    """Documents are separated by blank lines, as in BERT's own format; the text column's name does not matter."""
    if len(columns) > 1:
        raise InputError(
            f"there is no column '{columns[1]}' in {file.name}",
            where=str(file),
            why="a text file has no columns",
            remedy="leave out id_column and language_column",
        )
    start_bytes, stop_bytes = _range_bytes(groups)
    malformed: list[Malformed] = []
    begin, document = "", list[str]()

    def record() -> Iterator[Record | Malformed]:
        if malformed:
            yield _gravest(malformed)
        elif document:  # without its line end: text added to the file later must not change its id
            yield begin, {columns[0]: "".join(document).rstrip("\r\n")}

    # A document is of the range in which the blank line before it begins: the first lines may be of one before.
    is_own = start_bytes == 0
    for line in _lines(file, malformed, start_bytes, stop_bytes):
        if not line.text.strip():
            if is_own:
                yield from record()
            malformed.clear()
            document.clear()
            if line.begin_bytes >= stop_bytes:
                return
            is_own = True
        elif is_own:
            begin = begin if document else line.place
            document.append(line.text)
        elif line.begin_bytes >= stop_bytes:
            return
    if is_own:
        yield from record()


def read_delimited(file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
    """Comma- or tab-separated values with a header line, quoted with ``"`` where needed."""
    malformed: list[Malformed] = []
    texts = (line.text for line in _lines(file, malformed))
    rows = csv.reader(texts, delimiter="\t" if ".tsv" in file.name else ",", strict=True)
    header: list[str] | None = None
    while True:
        begin = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:  # the next row is read afresh
            is_end = inspect.getgeneratorstate(texts) == inspect.GEN_CLOSED
            lost = ", and what follows is lost" if is_end else ""
            malformed.append(
                Malformed(
                    f"a quote is not closed in {file.name}" if is_end else f"a row is malformed in {file.name}",
                    f"{file}, line {begin if is_end else rows.line_num}",
                    f"from line {begin}: {error}{lost}",
                    'double the quotes inside quoted text: "say ""yes"""',
                    num_records=None if is_end else rows.line_num - begin + 1,
                )
            )
            row = []
        if header is None:
            if malformed:
                raise _gravest(malformed).error()
            header = row or []
            _require_columns(file, "line 1", columns, header)
        elif malformed:
            yield _gravest(malformed)
            malformed.clear()
        elif row and len(row) != len(header):
            yield Malformed(
                f"a row has {len(row)} fields, the header {len(header)}, in {file.name}",
                f"{file}, line {rows.line_num}",
                f"{row[0][:60]!r} is its first field",
                'quote text that holds the separator or a line end: "..."',
                num_records=rows.line_num - begin + 1,  # a quote may have swallowed them
            )
        elif row:
            yield f"line {rows.line_num}", dict(zip(header, row, strict=True))
        if row is None:
            return


def read_parquet(file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
    """The rows of the given row groups, or of all."""
    source = file.filesystem.open_input_file(file.path)
    # Buffered before it is asked for, a row group would be held whole: pyarrow writes a million rows in one.
    with pq.ParquetFile(source, buffer_size=READ_BYTES, pre_buffer=False) as table:
        _require_columns(file, "schema", columns, table.schema_arrow.names)
        wanted = groups if groups is not None else range(table.num_row_groups)
        row = sum(table.metadata.row_group(group).num_rows for group in range(wanted.start))
        batches = table.iter_batches(
            batch_size=ROWS_PER_BATCH, row_groups=list(wanted), columns=list(dict.fromkeys(columns))
        )
        for batch in batches:
            yield from _rows(file, batch, row)
            row += batch.num_rows


def read_arrow(file: Location, columns: Columns, groups: range | None = None) -> Iterator[Record | Malformed]:
    """The rows of Arrow's IPC formats: a file, of which batches can be read apart, or a stream."""
    with file.filesystem.open_input_file(file.path) as source:
        if _is_arrow_file(source):
            table = pa.ipc.open_file(source)
            wanted = groups if groups is not None else range(table.num_record_batches)
            batches: Iterator[tuple[int, Any]] = ((number, table.get_batch(number)) for number in wanted)
        else:
            table = pa.ipc.open_stream(source)
            batches = enumerate(table)
        _require_columns(file, "schema", columns, table.schema.names)
        for number, batch in batches:
            own = batch.select(list(dict.fromkeys(columns)))
            for first in range(0, own.num_rows, ROWS_PER_BATCH):
                yield from _rows(file, own.slice(first, ROWS_PER_BATCH), first, f"batch {number + 1}, ")


def _is_arrow_file(source: Any) -> bool:
    magic = _MAGICS["arrow"]
    found = bool(source.read(len(magic)) == magic)
    source.seek(0)
    return found


def _rows(file: Location, batch: Any, num_before: int, within: str = "") -> Iterator[Record | Malformed]:
    """The rows of a table's batch, the first of which has ``num_before`` rows before it."""
    try:
        for number, row in enumerate(batch.to_pylist(), num_before + 1):
            yield f"{within}row {number}", row
    except UnicodeDecodeError:  # found before any row came
        for number in range(batch.num_rows):
            place = f"{within}row {num_before + number + 1}"
            try:
                yield place, batch.slice(number, 1).to_pylist()[0]
            except UnicodeDecodeError as error:
                yield Malformed(
                    f"{file.name} holds bytes that are not UTF-8",
                    f"{file}, {place}",
                    f"{error.reason}: {error.object[error.start : error.start + 1]!r}",
                    "write the table anew from text in its true encoding",
                )


def _row_group_bytes(file: Location) -> list[int]:
    """The size of each row group of a parquet file, uncompressed."""
    with pq.ParquetFile(file.filesystem.open_input_file(file.path)) as table:
        return [table.metadata.row_group(group).total_byte_size for group in range(table.num_row_groups)]


def _arrow_batch_bytes(file: Location) -> list[int]:
    """Batches of an arrow file, taken to be alike in size; none of a stream."""
    with file.filesystem.open_input_file(file.path) as source:
        if not _is_arrow_file(source):
            return []
        num_batches = pa.ipc.open_file(source).num_record_batches
        return [source.size() // num_batches] * num_batches if num_batches else []


def _block_bytes(file: Location) -> list[int]:
    """The size of each block of a plain file."""
    size_bytes = file.filesystem.get_file_info(file.path).size
    return [min(BLOCK_BYTES, size_bytes - first) for first in range(0, size_bytes, BLOCK_BYTES)]


class Format(NamedTuple):
    """What a suffix stands for."""

    read: Reader
    kinds: tuple[str, ...] = ("plain text",)
    """By their first bytes."""
    group_bytes: Callable[[Location], list[int]] | None = None
    """The sizes of the parts that can be read apart, where the format has such."""


_TEXTS: dict[str, Reader] = {".jsonl": read_jsonl, ".txt": read_text, ".csv": read_delimited, ".tsv": read_delimited}

FORMATS: dict[str, Format] = {
    **{
        suffix + compressed: Format(read, (kind,))
        for suffix, read in _TEXTS.items()
        for compressed, kind in (("", "plain text"), (".gz", "gzip"), (".zst", "zstd"))
    },
    ".jsonl": Format(read_jsonl, group_bytes=_block_bytes),
    ".txt": Format(read_text, group_bytes=_block_bytes),
    ".parquet": Format(read_parquet, ("parquet",), _row_group_bytes),
    ".arrow": Format(read_arrow, ("arrow", "an arrow stream"), _arrow_batch_bytes),
}
"""Suffix of a file's name -> how such files are read. No suffix may be the end of another."""
