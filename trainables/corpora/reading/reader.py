"""What a reader of a file format gives, and what is asked of it."""

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from trainables.errors import InputError, nearest
from trainables.storage import Location

Columns = tuple[str, ...]
"""The columns that the caller needs, the text's first; a reader may leave out the others."""
READ_BYTES = 1 << 20
"""How much is read at a time."""
MOST_RECORD_BYTES = 1 << 26
"""A longer record is malformed. To read one takes ten times its size at the most."""
_SHOWN_COLUMNS = 50


class Record(NamedTuple):
    """One record of a file."""

    place: str
    """Where in its file it lies, as a person would say it."""
    columns: Mapping[str, object]
    begin_bytes: int | None = None
    """Where it begins in the (decompressed) text; None where a file's records need have nothing in common."""


class Malformed(NamedTuple):
    """What should be a record and is none. Not an exception: it is counted, and the reader goes on."""

    what: str
    where: str
    """The file and the line or row; the byte, where the line is not known (see :func:`lines.with_line`)."""
    why: str
    remedy: str
    num_records: int | None = 1
    """How many records may be lost with it; None: the rest of the file."""

    def error(self) -> InputError:
        """What is raised where such a record is not left out."""
        return InputError(self.what, where=self.where, why=self.why, remedy=self.remedy)


class Reader(ABC):
    """A file format. A class without state, made without arguments.

    The records of a file are the same, in the same order, in whatever parts it is read. Memory holds a batch of rows
    or a record of :data:`MOST_RECORD_BYTES`, never a file. ``tests/helpers/readers.py`` has the tests of a reader.
    """

    name: ClassVar[str]
    """The entry point's name."""
    suffixes: ClassVar[tuple[str, ...]]
    """Of the files' names, in small letters, with the dot. One of ``.gz`` or ``.zst`` is of compressed files."""
    magic: ClassVar[bytes] = b""
    """What each file begins with; nothing: text."""
    has_columns: ClassVar[bool] = True
    """Whether records have columns by name; otherwise they have the text alone."""

    def part_bytes(self, file: Location) -> list[int]:
        """The size of each part that can be read apart, in order; empty where the file is read whole."""
        return []

    @abstractmethod
    def read(self, file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
        """The records of a file that is not empty, in order.

        Args:
            columns: each is in every record.
            parts: of :meth:`part_bytes`, whose records alone are given; None: all.

        Raises:
            InputError: the whole file lacks a column, or cannot be read.
        """


def lacks(file: str, where: str, column: str, present: Sequence[str]) -> Malformed:
    """That a record, or a whole file, has not the column."""
    names = [name[:_SHOWN_COLUMNS] for name in present[:_SHOWN_COLUMNS]]
    remedy = "name the column of the documents' text with text_column, that of their ids with id_column"
    return Malformed(f"there is no column '{column}' in {file}", where, nearest(column, names), remedy)


def shown(value: object) -> str:
    """The beginning of a value, for a message."""
    return repr(value[:60]) if isinstance(value, str | bytes) else reprlib.repr(value)[:60]
