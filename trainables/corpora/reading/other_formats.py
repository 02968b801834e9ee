"""Formats that no reader has: how their files are read all the same, by ``datasets`` or after a conversion."""

from __future__ import annotations

from collections.abc import Iterable

from trainables.corpora.reading.lines import COMPRESSIONS, compression_of
from trainables.errors import InputError, nearest
from trainables.storage import Location

_DATA_SET_SUFFIXES = (".csv", ".tsv", ".arrow", ".json")
"""Of files that ``datasets`` reads."""
_HEAD_BYTES = 1 << 12


def unknown_format(file: Location, suffixes: Iterable[str]) -> InputError:
    """That no reader has the file's suffix, and what to do about it."""
    name = file.name.lower()
    for compressed in COMPRESSIONS:
        name = name.removesuffix(compressed)
    suffix = next((suffix for suffix in _DATA_SET_SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        own = file.name[file.name.find(".", 1) :] if "." in file.name[1:] else file.name
        why = f"the suffix says which reader to use; {nearest(own, suffixes)}"
        remedy = "convert the file, or rename it if only its suffix is wrong"
        return InputError(f"unknown file format: {file.name}", where=str(file), why=why, remedy=remedy)
    what = f"{suffix} files are read as a data set, not as files: {file.name}"
    return InputError(what, where=str(file), why=f"'files' reads {', '.join(suffixes)}", remedy=_remedy(file, suffix))


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
