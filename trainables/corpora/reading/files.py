"""Files: the reader of each is found by its suffix, and what goes wrong with it is said."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from trainables.config import Registry
from trainables.corpora.reading.lines import COMPRESSIONS, DAMAGED_STREAM, Line, compression_of, lines
from trainables.corpora.reading.reader import Columns, Malformed, Reader, Record
from trainables.corpora.reading.tables import ParquetReader
from trainables.corpora.reading.text import JsonLinesReader, TextReader
from trainables.errors import InputError, nearest, refusal, storage_errors
from trainables.storage import Location

READERS: Registry[Reader] = Registry(
    "reader",
    "headtohead.readers",
    Reader,  # type: ignore[type-abstract]
    (JsonLinesReader, ParquetReader, TextReader),
)
"""This package's, and those that other packages bring."""

_DAMAGED = re.compile(
    f"{DAMAGED_STREAM.pattern}|thrift|corrupt|decompress|end of stream|expected to be able to read", re.IGNORECASE
)
"""What pyarrow says, in errors of the kind that a failing network has, of a table whose pages are damaged."""

_COMPRESSED_MAGICS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_DATA_SET_SUFFIXES = (".csv", ".tsv", ".arrow", ".json")  # of files that ``datasets`` reads
_HEAD_BYTES = 1 << 12


@cache
def readers() -> dict[str, Reader]:
    """The reader of each suffix. InputError: two have the same, or the package that brings one cannot be used."""
    found: dict[str, Reader] = {}
    for reader in (kind() for kind in READERS):
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


def read_records(file: Location, columns: Columns, parts: range | None = None) -> Iterator[Record | Malformed]:
    """The records of a file, in its order, by the reader for its suffix; none of an empty file.

    Raises InputError: the suffix is unknown, the file is of another format than its name says, lacks one of the
    columns, cannot be read, or is a table and damaged.
    """
    reader = _reader(file)
    if len(columns) > 1 and not reader.has_columns:
        raise InputError(
            f"there is no column '{columns[1]}' in {file.name}",
            where=str(file),
            why="a text file has no columns",
            remedy="leave out id_column and language_column",
        )
    with _explained(file):
        if _is_as_named(file, reader):
            yield from reader.read(file, columns, parts)


def sound_lines(file: Location) -> Iterator[Line]:
    """The lines of a text file of any suffix. Raises InputError: it cannot be read, or a line is damaged."""
    with _explained(file):
        if _is_as_named(file):
            for line in lines(file):
                if line.problem is not None:
                    raise line.problem.error()
                yield line


def part_bytes(file: Location) -> list[int]:
    """The size of each part of a file that can be read apart; empty where it is read whole."""
    reader = _reader(file)
    with _explained(file):
        return reader.part_bytes(file)


def has_columns(file: Location) -> bool:
    """Whether the file's records have columns by name."""
    return _reader(file).has_columns


def column_names(file: Location) -> Columns:
    """The columns of a Parquet file; none of others, whose records each have their own."""
    if not isinstance(_reader(file), ParquetReader):
        return ()
    with _explained(file), pq.ParquetFile(file.filesystem.open_input_file(file.path)) as table:
        return tuple(table.schema_arrow.names)


def _reader(file: Location) -> Reader:
    suffix = suffix_of(file.name)
    if suffix is None:
        with _explained(file):
            raise _unknown_format(file)
    return readers()[suffix]


def _is_as_named(file: Location, reader: Reader | None = None) -> bool:
    """Whether there is anything in the file; an error where its first bytes say another format than its name, which is
    text where it has no reader."""
    magics = _COMPRESSED_MAGICS | {one.name: one.magic for one in readers().values() if one.magic}
    with file.filesystem.open_input_file(file.path) as stream:
        head = bytes(stream.read(max(map(len, magics.values()))))
    expected = compression_of(file.name) or (reader.name if reader and reader.magic else "plain text")
    found = next((kind for kind, magic in magics.items() if head.startswith(magic)), "plain text")
    if head and found != expected:
        unknown = f"neither {' nor '.join(magics)}"
        raise InputError(
            f"{file.name} is of another format than its name says",
            where=str(file),
            why=f"by its first bytes it is {unknown if found == 'plain text' else found}; "
            f"a {suffix_of(file.name) or file.name[file.name.find('.', 1) :]} file is {expected}",
            remedy="rename the file to its true format",
        )
    return bool(head)


@contextmanager
def _explained(file: Location) -> Iterator[None]:
    """Turns what a damaged file, the network or a permission raises into an InputError; one of ours passes."""
    try:
        yield
    except (pa.ArrowException, *storage_errors()) as error:
        if isinstance(error, pa.ArrowException) or _DAMAGED.search(str(error)):
            what, why = f"{file.name} cannot be read to its end", f"it is truncated or damaged: {error}"
            raise InputError(what, where=str(file), why=why, remedy="copy or download the file again") from error
        raise refusal(error, f"{file.name} could not be read", str(file)) from error


def _unknown_format(file: Location) -> InputError:
    """That no reader has the file's suffix, and what to do about it."""
    name = file.name.lower()
    for compressed in COMPRESSIONS:
        name = name.removesuffix(compressed)
    suffix = next((suffix for suffix in _DATA_SET_SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        own = file.name[file.name.find(".", 1) :] if "." in file.name[1:] else file.name
        why = f"the suffix says which reader to use; {nearest(own, readers())}"
        remedy = "convert the file, or rename it if only its suffix is wrong"
        return InputError(f"unknown file format: {file.name}", where=str(file), why=why, remedy=remedy)
    what = f"{suffix} files are read as a data set, not as files: {file.name}"
    return InputError(what, where=str(file), why=f"'files' reads {', '.join(readers())}", remedy=_remedy(file, suffix))


def _remedy(file: Location, suffix: str) -> str:
    if file.local is None:
        return "copy its folder to this machine, and name it as a data set: {language: ..., dataset: FOLDER}"
    if suffix == ".csv":
        with file.filesystem.open_input_stream(file.path, compression=compression_of(file.name)) as stream:
            header = bytes(stream.read(_HEAD_BYTES)).partition(b"\n")[0]
        if header.count(b";") > header.count(b","):
            return semicolons(str(file.parent))
    whole_folder = f"name its folder as a data set: {{language: ..., dataset: {file.parent}}}"
    if compression_of(file.name) == "zstd":
        whole_folder = f"zstd -d {file}, and {whole_folder}"
    if file.name != file.name.lower():
        whole_folder = f"rename it to {file.name.lower()}, and {whole_folder}"
    if suffix == ".json":
        return f"if each line is an object, rename the file to .jsonl; if it is one array, {whole_folder}"
    return whole_folder


def semicolons(folder: str) -> str:
    """What to do about a folder's csv files that have semicolons between their fields."""
    convert = "pandas.read_csv(f, sep=';').to_json(f.with_suffix('.jsonl'), orient='records', lines=True)"
    command = f"import pandas, pathlib; [{convert} for f in pathlib.Path('{folder}').glob('*.csv*')]"
    return f'its fields end at semicolons. python -c "{command}" and files: {folder}/*.jsonl'
