"""Rows of Arrow tables, whatever bytes the tables hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from trainables.corpora.reading.reader import MOST_RECORD_BYTES, Malformed, Record

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
"""What a column of strings is read as where some are not UTF-8."""


def table_rows(batch: Any, name: str, where: str, num_before: int) -> Iterator[Record | Malformed]:
    """The rows of a record batch. Nothing of it is looked at before pyarrow has validated it: an offset that points
    outside would end the process.

    Args:
        name: of the file or the data set.
        where: its path, to be followed by the row.
        num_before: the rows before this batch.

    Raises:
        pyarrow.ArrowInvalid: the batch is damaged in more than its text.
    """
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
    return Malformed(
        f"{name} holds bytes that are not UTF-8",
        where,
        f"{error.reason}: {error.object[error.start : error.start + 1]!r}",
        "write the table anew from text in its true encoding",
    )
