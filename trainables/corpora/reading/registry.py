"""The readers: this package's, and those that other packages bring."""

from __future__ import annotations

from functools import cache

from trainables.config import Registry
from trainables.corpora.reading.jsonl import JsonLinesReader
from trainables.corpora.reading.parquet import ParquetReader
from trainables.corpora.reading.reader import Reader
from trainables.corpora.reading.text import TextReader
from trainables.errors import InputError

READERS: Registry[Reader] = Registry(
    "reader",
    "headtohead.readers",
    Reader,  # type: ignore[type-abstract]
    (JsonLinesReader, ParquetReader, TextReader),
)


@cache
def readers() -> dict[str, Reader]:
    """The reader of each suffix.

    Raises:
        InputError: two readers have one suffix, or the package that brings one cannot be used.
    """
    found: dict[str, Reader] = {}
    for kind in READERS:
        reader = kind()
        for suffix in reader.suffixes:
            if suffix in found:
                raise InputError(
                    f"two readers have the suffix '{suffix}'",
                    where=f"the entry points in the group {READERS.group}",
                    why=f"they are '{found[suffix].name}' and '{reader.name}'",
                    remedy="uninstall the package that brings one of them",
                )
            found[suffix] = reader
    return found


def suffix_of(name: str) -> str | None:
    """The suffix with a reader that a file's name ends with, in small letters; the longest, or None."""
    return max((suffix for suffix in readers() if name.lower().endswith(suffix)), key=len, default=None)
