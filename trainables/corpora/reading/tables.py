"""Tables: Parquet files, and the rows of Arrow tables, whatever bytes they hold."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainables.corpora.reading.reader import MOST_RECORD_BYTES, READ_BYTES, Columns, Malformed, Reader, Record, lacks
from trainables.errors import InputError
from trainables.storage import Location

_BATCH_ROWS = 64  # decoded at a time, at the most: a writer's dictionary may hold a text of a MiB for each
_BATCH_BYTES = 1 << 24  # decoded at a time, on average
_MOST_EXPANSION = 1000  # no text is compressed so well: pages of `_BATCH_BYTES` that are would fill the memory
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
"""What a column of strings is read as where some are not UTF-8."""


class ParquetReader(Reader):
    """The rows of the given row groups, or of all."""

    name = "parquet"
    suffixes = (".parquet",)
    magic = b"PAR1"

    def part_bytes(self, file: Location) -> list[int]:
        with pq.ParquetFile(file.filesystem.open_input_file(file.path)) as table:
            return [table.metadata.row_group(group).total_byte_size for group in range(table.num_row_groups)]

    def read(self, file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
        source = file.filesystem.open_input_file(file.path)
        # Buffered before it is asked for, a row group would be held whole: pyarrow writes a million rows in one.
        with pq.ParquetFile(source, buffer_size=READ_BYTES, pre_buffer=False) as table:
            present = table.schema_arrow.names
            for column in columns:
                if column not in present:
                    raise lacks(file.name, f"{file}, schema", column, present).error()
            groups = parts if parts is not None else range(table.num_row_groups)
            row = sum(table.metadata.row_group(group).num_rows for group in range(groups.start))
            wanted = list(dict.fromkeys(columns))
            for group in groups:
                batch_rows = _batch_rows(file, table.metadata.row_group(group), wanted)
                for batch in table.iter_batches(batch_rows, [group], wanted):
                    yield from table_rows(batch, file.name, f"{file}, ", row)
                    row += batch.num_rows


def _batch_rows(file: Location, group: Any, columns: list[str]) -> int:
    """How many rows of a row group to decode at a time."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    own = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns]
    for chunk in own:
        if chunk.total_uncompressed_size > max(_BATCH_BYTES, _MOST_EXPANSION * chunk.total_compressed_size):
            raise InputError(
                f"{file.name} is too large when it is decompressed",
                where=f"{file}, column {chunk.path_in_schema}",
                why=f"{chunk.total_compressed_size} bytes hold {chunk.total_uncompressed_size}: one text of "
                f"more than {MOST_RECORD_BYTES >> 20} MiB, or the same text many times",
                remedy="cut that document into several; write the table anew with a dictionary for texts that repeat",
            )
    size_bytes = sum(int(chunk.total_uncompressed_size) for chunk in own)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * int(group.num_rows) // max(1, size_bytes)))


def table_rows(batch: Any, name: str, where: str, num_before: int) -> Iterator[Record | Malformed]:
    """The rows of a record batch, after ``num_before`` others, of the file or data set ``name``, whose path is
    ``where``. ArrowInvalid: it is damaged in more than its text. Nothing of it is looked at before pyarrow has
    validated it: an offset that points outside would end the process."""
    try:
        batch.validate(full=True)
        rows = iter(batch.to_pylist())
    except (ValueError, OverflowError):  # text that is not UTF-8, a date beyond Python's
        rows = _one_by_one(batch)
    may_be_too_long = batch.nbytes > MOST_RECORD_BYTES
    for number, row in enumerate(rows, num_before + 1):
        place = f"row {number}"
        if isinstance(row, Exception):
            yield _unreadable(row, name, f"{where}{place}")
        elif may_be_too_long and any(
            isinstance(value, str | bytes) and len(value) > MOST_RECORD_BYTES for value in row.values()
        ):
            what = f"a value of {name} is longer than {MOST_RECORD_BYTES >> 20} MiB"
            remedy = "cut that document into several, each a row of its own"
            yield Malformed(what, f"{where}{place}", "a record is held in memory", remedy)
        else:
            yield Record(place, row)


def _one_by_one(batch: Any) -> Iterator[Mapping[str, Any] | Exception]:
    """Each row, or why it cannot be read."""
    columns = [(name, *_validated(column)) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    for number in range(batch.num_rows):
        try:
            values = ((name, column[number].as_py(), is_text) for name, column, is_text in columns)
            yield {name: value.decode() if is_text and value is not None else value for name, value, is_text in values}
        except (ValueError, OverflowError) as error:
            yield error


def _validated(column: Any) -> tuple[Any, bool]:
    """The column, as bytes where it is text, and whether it is."""
    if pa.types.is_dictionary(column.type):
        values, is_text = _validated(column.dictionary)
        return values.take(column.indices), is_text
    is_text = column.type in _BYTES
    column = column.view(_BYTES[column.type]) if is_text else column
    column.validate(full=True)
    return column, is_text


def _unreadable(error: Exception, name: str, where: str) -> Malformed:
    if not isinstance(error, UnicodeDecodeError):
        return Malformed(f"a value of {name} cannot be read", where, str(error), "write the table anew without it")
    why = f"{error.reason}: {error.object[error.start : error.start + 1]!r}"
    remedy = "write the table anew from text in its true encoding"
    return Malformed(f"{name} holds bytes that are not UTF-8", where, why, remedy)
