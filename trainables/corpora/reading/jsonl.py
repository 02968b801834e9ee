"""JSON lines: one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainables.corpora.reading.lines import Line, block_bytes, lines, range_bytes, text_suffixes
from trainables.corpora.reading.reader import Columns, Malformed, Reader, Record, lacks, shown
from trainables.storage import Location

MOST_VALUES = 1 << 23
"""Lists, objects and quotes in a line: parsed, each takes a hundred bytes. No text has so many for its length."""


class JsonLinesReader(Reader):
    """One JSON object a line; blank lines are passed over. A range holds the lines that begin in it."""

    name = "jsonl"
    suffixes = text_suffixes(".jsonl", ".ndjson")

    def part_bytes(self, file: Location) -> list[int]:
        """Blocks of a plain file."""
        return block_bytes(file)

    def read(self, file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
        """The lines' objects."""
        start_bytes, stop_bytes = range_bytes(parts)
        for line in lines(file, start_bytes, stop_bytes):
            if line.begin_bytes >= stop_bytes:
                return
            if line.problem is not None:
                yield line.problem
            elif line.text.strip():
                yield _record(file, line, columns)


def _record(file: Location, line: Line, columns: Columns) -> Record | Malformed:
    where, remedy = f"{file}, {line.place}", 'one JSON object a line, such as {"text": "..."}'
    if len(line.text) > MOST_VALUES and sum(map(line.text.count, '[{"')) > MOST_VALUES:
        why = f"it holds more than {MOST_VALUES} lists, objects and quotes"
        return Malformed(f"a line is more data than text in {file.name}", where, why, remedy)
    try:
        record = json.loads(line.text)
    except json.JSONDecodeError as error:
        why = f"{error.msg} at character {error.pos + 1}: {shown(line.text[:60].rstrip())}"
        return Malformed(f"a line is not JSON in {file.name}", where, why, remedy)
    except RecursionError:
        return Malformed(f"a line is not JSON in {file.name}", where, "it is nested too deeply", remedy)
    except ValueError as error:  # a number of thousands of digits
        return Malformed(f"a line cannot be read in {file.name}", where, str(error), remedy)
    if not isinstance(record, dict):
        why = f"it is of type {type(record).__name__}: {shown(line.text[:60].rstrip())}"
        return Malformed(f"a line is not a JSON object in {file.name}", where, why, remedy)
    for column in columns:
        if column not in record:
            return lacks(file.name, where, column, list(record))
    return Record(line.place, record)
