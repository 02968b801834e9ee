"""Parquet: a table in row groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from trainables.corpora.reading.reader import MOST_RECORD_BYTES, READ_BYTES, Columns, Malformed, Reader, Record, lacks
from trainables.corpora.reading.tables import table_rows
from trainables.errors import InputError
from trainables.storage import Location

BATCH_ROWS = 64
"""How many rows are decoded at a time, at the most: a writer's dictionary may hold a text of a MiB for each."""

BATCH_BYTES = 1 << 24
"""How much is decoded at a time, on average."""

MOST_EXPANSION = 1000
"""No text is compressed so well: pages of :data:`BATCH_BYTES` that are would fill the memory."""


class ParquetReader(Reader):
    """The rows of the given row groups, or of all."""

    name = "parquet"
    suffixes = (".parquet",)
    magic = b"PAR1"

    def part_bytes(self, file: Location) -> list[int]:
        """The size of each row group, uncompressed."""
        with pq.ParquetFile(file.filesystem.open_input_file(file.path)) as table:
            return [table.metadata.row_group(group).total_byte_size for group in range(table.num_row_groups)]

    def read(self, file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
        """The rows."""
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
        if chunk.total_uncompressed_size > max(BATCH_BYTES, MOST_EXPANSION * chunk.total_compressed_size):
            raise InputError(
                f"{file.name} is too large when it is decompressed",
                where=f"{file}, column {chunk.path_in_schema}",
                why=f"{chunk.total_compressed_size} bytes hold {chunk.total_uncompressed_size}: one text of "
                f"more than {MOST_RECORD_BYTES >> 20} MiB, or the same text many times",
                remedy="cut that document into several; write the table anew with a dictionary for texts that repeat",
            )
    size_bytes = sum(int(chunk.total_uncompressed_size) for chunk in own)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * int(group.num_rows) // max(1, size_bytes)))
