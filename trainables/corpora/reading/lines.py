"""The lines of a text file, plain or compressed, whole or from the middle."""

import io
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from trainables.corpora.reading.reader import MOST_RECORD_BYTES, READ_BYTES, Malformed
from trainables.errors import InputError
from trainables.storage import Location

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # suffix of a compressed file -> pyarrow's name of the compression
LINES_BYTES = 1 << 16
"""How much text is decompressed at a time: of a file that is cut short so much is lost before the cut."""
BLOCK_BYTES = 1 << 20  # a large plain file is cut in ranges of so many bytes: whole records, wherever they begin
MOST_SKIPPED_BYTES = 1 << 30  # the end of a line that is too long is looked for so far
DAMAGED_STREAM = re.compile("compressed stream|zlib|zstd", re.IGNORECASE)
"""What pyarrow says of a compressed stream that is cut short or damaged; a failing network says other things."""
_BYTE_ALONE = re.compile(r"(?P<file>.+?)(?P<line>, line \d+)?, byte (?P<byte>\d+)", re.DOTALL)
"""Where a record begins that lies in the middle of a file."""
_BYTE_ORDER_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_ZERO_BYTES = {"x000": "UTF-32LE", "000x": "UTF-32BE", "x0x0": "UTF-16LE", "0x0x": "UTF-16BE"}
"""Which bytes of every four are zero where ASCII text has no byte order mark."""


class Line(NamedTuple):
    """A line of a text file."""

    text: str  # decoded, with its line end
    begin_bytes: int
    number: int | None  # None in the middle of a file, where counting would cost reading all before
    problem: Malformed | None = None  # what is wrong with it: the record that it belongs to is to be left out

    @property
    def place(self) -> str:
        """Its number, or the byte it begins at."""
        return f"byte {self.begin_bytes}" if self.number is None else f"line {self.number}"


def text_suffixes(*plain: str) -> tuple[str, ...]:
    """The suffixes of plain files and of compressed ones."""
    return tuple(suffix + compressed for suffix in plain for compressed in ("", *COMPRESSIONS))


def compression_of(name: str) -> str | None:
    """pyarrow's name of a file's compression, by its suffix."""
    return next((kind for suffix, kind in COMPRESSIONS.items() if name.lower().endswith(suffix)), None)


def block_bytes(file: Location) -> list[int]:
    """The size of each block of a plain file: its parts; none of a compressed one."""
    if compression_of(file.name):
        return []
    size_bytes = file.filesystem.get_file_info(file.path).size
    return [min(BLOCK_BYTES, size_bytes - first) for first in range(0, size_bytes, BLOCK_BYTES)]


def range_bytes(parts: range | None) -> tuple[int, float]:
    """The bytes of the blocks: first, and after the last."""
    return (0, math.inf) if parts is None else (parts.start * BLOCK_BYTES, parts.stop * BLOCK_BYTES)


def lines(file: Location, start_bytes: int = 0, stop_bytes: float = math.inf) -> Iterator[Line]:
    """The lines that begin at ``start_bytes`` or after it; a byte order mark is dropped.

    They go on after ``stop_bytes``, as a record may; if none begins before it there are none. Raises InputError: the
    file is UTF-16 or UTF-32.
    """
    compression = compression_of(file.name)
    if start_bytes:
        opened = file.filesystem.open_input_file(file.path)
        opened.seek(start_bytes - 1)
    else:
        opened = file.filesystem.open_input_stream(file.path, compression=compression, buffer_size=READ_BYTES)
    with opened:
        stream = io.BufferedReader(opened, READ_BYTES if start_bytes else LINES_BYTES)
        number, offset_bytes = (None if start_bytes else 0), 0
        if start_bytes:  # the line in which the byte before lies began earlier
            offset_bytes = start_bytes - 1 + len(stream.readline(int(stop_bytes) - start_bytes + 1))
            if offset_bytes >= stop_bytes:
                return
        while True:
            number = None if number is None else number + 1
            try:
                content = stream.readline(MOST_RECORD_BYTES)
                too_long = len(content) == MOST_RECORD_BYTES and content[-1:] != b"\n"
                skipped_bytes = _skip_line(stream) if too_long else 0
            except OSError as error:
                if compression is None or not DAMAGED_STREAM.search(str(error)):
                    raise
                yield _cut_short(file, Line("", offset_bytes, number), error)
                return
            if not content:
                return
            if offset_bytes == 0:
                _require_bytes(file, content)
            if too_long:
                yield _too_long(file, Line("", offset_bytes, number), skipped_bytes is None)
            else:
                try:
                    text = content.decode()
                    yield Line(text if offset_bytes else text.removeprefix("\ufeff"), offset_bytes, number)
                except UnicodeDecodeError as error:
                    text = content.decode(errors="replace")
                    yield _not_utf8(file, Line(text, offset_bytes, number), error)
            if skipped_bytes is None:
                return
            offset_bytes += len(content) + skipped_bytes


def _skip_line(stream: io.BufferedReader) -> int | None:
    """How many bytes there are to the line's end; None: too many to look for it."""
    skipped_bytes = 0
    while skipped_bytes < MOST_SKIPPED_BYTES:
        rest = stream.readline(READ_BYTES)
        skipped_bytes += len(rest)
        if not rest or rest.endswith(b"\n"):
            return skipped_bytes
    return None


def _not_utf8(file: Location, line: Line, error: UnicodeDecodeError) -> Line:
    wrong = f"byte {line.begin_bytes + error.start}"
    where = f"{file}, {wrong}" if line.number is None else f"{file}, {line.place}, {wrong}"
    why = f"{error.reason}: {error.object[error.start : error.start + 1]!r}"
    remedy = "convert the file from its true encoding: iconv -f ENCODING -t UTF-8 OLD > NEW"
    return line._replace(problem=Malformed(f"{file.name} holds bytes that are not UTF-8", where, why, remedy))


def _cut_short(file: Location, line: Line, error: OSError) -> Line:
    what, remedy = f"{file.name} cannot be read to its end", "copy or download the file again"
    why = f"it is truncated or damaged, and what follows is lost: {error}"
    return line._replace(problem=Malformed(what, f"{file}, {line.place}", why, remedy, num_records=None))


def _too_long(file: Location, line: Line, is_endless: bool) -> Line:
    what = f"a line of {file.name} is longer than {MOST_RECORD_BYTES >> 20} MiB"
    why = "a record is held in memory" + (", and what follows is lost: its end was not found" if is_endless else "")
    remedy = "cut that document into several, each a record of its own"
    return line._replace(
        problem=Malformed(what, f"{file}, {line.place}", why, remedy, num_records=None if is_endless else 1)
    )


def _require_bytes(file: Location, head: bytes) -> None:
    """Refuse a text file in units of two or four bytes, by its mark or its zeros."""
    units = head[: min(len(head), 64) // 4 * 4]
    zeros = "".join("0" if set(units[place::4]) == {0} else "x" for place in range(4))
    marked = (name for mark, name in _BYTE_ORDER_MARKS.items() if head.startswith(mark))
    encoding = next(marked, _ZERO_BYTES.get(zeros) if len(units) >= 8 else None)
    if encoding is not None:
        raise InputError(
            f"{file.name} is {encoding} text",
            where=str(file),
            why=f"text is read as UTF-8; the file begins with {head[:8]!r}",
            remedy=f"convert it: iconv -f {encoding} -t UTF-8 OLD > NEW",
        )


def with_line(malformed: Malformed) -> Malformed:
    """The same with the number of its line, where only its byte was known and the file is on this machine.

    All of the file before the byte is read: for the few that a person is told of.
    """
    place = _BYTE_ALONE.fullmatch(malformed.where)
    if place is None or place["line"]:
        return malformed
    file, remaining_bytes, line = Location(place["file"]).local, int(place["byte"]), 1
    if file is None or not file.is_file():
        return malformed
    with file.open("rb") as stream:
        while remaining_bytes and (chunk := stream.read(min(READ_BYTES, remaining_bytes))):
            remaining_bytes -= len(chunk)
            line += chunk.count(b"\n")
    return malformed._replace(where=f"{place['file']}, line {line}, byte {place['byte']}")
