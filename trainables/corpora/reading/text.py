"""Readers of text files: JSON lines, and plain text."""

import json
from collections.abc import Iterator
from io import StringIO

from trainables.corpora.reading.lines import Line, block_bytes, lines, range_bytes, text_suffixes
from trainables.corpora.reading.reader import MOST_RECORD_BYTES, Columns, Malformed, Reader, Record, lacks, shown
from trainables.storage import Location

_MOST_VALUES = 1 << 23
"""Lists, objects and quotes in a line: parsed, each takes a hundred bytes. No text has so many for its length."""


class JsonLinesReader(Reader):
    """One JSON object a line; blank lines are passed over. A range holds the lines that begin in it."""

    name = "jsonl"
    suffixes = text_suffixes(".jsonl", ".ndjson")

    def part_bytes(self, file: Location) -> list[int]:
        return block_bytes(file)

    def read(self, file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
        start_bytes, stop_bytes = range_bytes(parts)
        for line in lines(file, start_bytes, stop_bytes):
            if line.begin_bytes >= stop_bytes:
                return
            if line.problem is not None:
                yield line.problem
            elif line.text.strip():
                yield _parsed(file, line, columns)


def _parsed(file: Location, line: Line, columns: Columns) -> Record | Malformed:
    where, remedy = f"{file}, {line.place}", 'one JSON object a line, such as {"text": "..."}'
    if len(line.text) > _MOST_VALUES and sum(map(line.text.count, '[{"')) > _MOST_VALUES:
        why = f"it holds more than {_MOST_VALUES} lists, objects and quotes"
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


class TextReader(Reader):
    """Documents are separated by blank lines, as in BERT's own format; the text column's name does not matter.

    A range holds the documents whose blank line before begins in it: its first lines may be of one before.
    """

    name = "text"
    suffixes = text_suffixes(".txt")
    has_columns = False

    def part_bytes(self, file: Location) -> list[int]:
        return block_bytes(file)

    def read(self, file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
        start_bytes, stop_bytes = range_bytes(parts)
        begin: Line | None = None
        text, problem = StringIO(), None
        is_own = start_bytes == 0
        for line in lines(file, start_bytes, stop_bytes):
            if line.problem is None and (line.text.isspace() or not line.text):
                if begin is not None:
                    yield problem or _record(begin, text, columns)
                    begin, text, problem = None, StringIO(), None
                is_own = True
                if line.begin_bytes >= stop_bytes:
                    return
            elif is_own:
                begin = begin or line
                text.write(line.text)
                # Of all that is wrong with a document the first stays, unless the rest of the file is lost.
                if line.problem is not None and (problem is None or line.problem.num_records is None):
                    problem = line.problem
                if line.begin_bytes - begin.begin_bytes > MOST_RECORD_BYTES:
                    yield _too_long(file, begin)
                    return
            elif line.begin_bytes >= stop_bytes:
                return
        if begin is not None:
            yield problem or _record(begin, text, columns)


def _record(begin: Line, text: StringIO, columns: Columns) -> Record:
    """The document, without its line end: text added to the file later must not change its id."""
    return Record(begin.place, {columns[0]: text.getvalue().rstrip("\r\n")}, begin.begin_bytes)


def _too_long(file: Location, begin: Line) -> Malformed:
    what = f"a document of {file.name} is longer than {MOST_RECORD_BYTES >> 20} MiB, and what follows is lost"
    why = "a document is held in memory, and ends at a blank line"
    remedy = "if each line is a document: sed G OLD > NEW puts a blank line after each (of a text that is not "
    remedy += "compressed); otherwise put blank lines between the documents"
    return Malformed(what, f"{file}, {begin.place}", why, remedy, num_records=None)
