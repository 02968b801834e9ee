"""Sources: where a language's text comes from, and its documents one by one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.fs as pafs
from pydantic import Field, model_validator

from trainables.config import Config
from trainables.corpora.readers import COLUMN_REMEDY, READERS, read_records, row_group_bytes, suffix_of
from trainables.errors import InputError, nearest
from trainables.storage import Location

if TYPE_CHECKING:
    from datasets import IterableDataset

HEAD_RECORDS = 100
"""How many records of each file are looked at before anything starts."""

_HEAD_CHARACTERS = 1 << 20
_OPEN_FILES = 16

_KIND_OPTIONS = {
    "files": ("text_column", "id_column"),
    "dataset": ("config", "split", "revision", "text_column", "id_column"),
    "grammar": ("documents", "seed"),
}


class SourceConfig(Config):
    """Text of one language, from exactly one of ``files``, ``dataset`` and ``grammar``."""

    language: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    """The language's code, such as ``en``: letters, digits, ``-``, ``_``. Sources of one are joined."""

    files: str | tuple[str, ...] | None = None
    """Paths or URIs (``s3://``, ``gs://``) of files, with ``*``, ``?`` and ``**`` as wildcards."""

    dataset: str | None = None
    """A Hugging Face data set: its name on the hub, or a local folder."""

    config: str | None = None
    """The data set's configuration."""

    split: str = "train"
    """The data set's split."""

    revision: str | None = None
    """The data set's revision on the hub: a commit, branch or tag."""

    grammar: str | None = None
    """The name of an embedded language, whose text is generated."""

    documents: int = Field(default=1000, ge=1)
    """How many documents the grammar generates."""

    seed: int = Field(default=0, ge=0)
    """The seed of the grammar's documents."""

    text_column: str = "text"
    """The column that holds a document's text."""

    id_column: str | None = None
    """The column that holds a document's id; without it the id is a hash of language and text."""

    @model_validator(mode="after")
    def _one_kind_with_its_options(self) -> SourceConfig:
        kinds = [kind for kind in _KIND_OPTIONS if getattr(self, kind) not in (None, "", ())]
        if len(kinds) != 1:
            raise ValueError(
                f"set exactly one of files, dataset and grammar, not {' and '.join(kinds) or 'none'}"
            )
        options = dict.fromkeys(option for options in _KIND_OPTIONS.values() for option in options)
        for option in options:
            changed = getattr(self, option) != type(self).model_fields[option].default
            if changed and option not in _KIND_OPTIONS[kinds[0]]:
                owners = [kind for kind in _KIND_OPTIONS if option in _KIND_OPTIONS[kind]]
                raise ValueError(
                    f"{option} is an option of {' and '.join(owners)}; this source is a {kinds[0]} source"
                )
        return self

    @property
    def kind(self) -> str:
        """``files``, ``dataset`` or ``grammar``."""
        return next(kind for kind in _KIND_OPTIONS if getattr(self, kind))


class Document(NamedTuple):
    """One text."""

    text: str
    language: str
    document_id: str


class Portion(NamedTuple):
    """Read in one go: a file, or a range of a large one, of a data set or of a grammar's documents."""

    name: str
    """The file's path or URI, the data set's or the grammar's name."""

    size_bytes: int
    """As stored; estimated for a grammar, 0 where unknown."""

    start: int = 0
    """The first row group (parquet), shard (data set) or document (grammar)."""

    stop: int | None = None
    """The end of the range; None: to the end."""


def expand(source: SourceConfig, where: str = "source") -> list[Portion]:
    """The portions of a source in a fixed order: files by name, a data set's shards, one for a grammar.

    Args:
        source: the source.
        where: how to call the source in an error.

    Raises:
        InputError: no file matches, there is no such data set or grammar.
    """
    if source.grammar is not None:
        _check_grammar(source.grammar, where)
        return [Portion(source.grammar, source.documents * GRAMMAR_DOCUMENT_BYTES, 0, source.documents)]
    if source.dataset is not None:
        dataset = _open_dataset(source, where)
        size_bytes = (dataset.info.dataset_size or 0) // dataset.num_shards
        return [Portion(source.dataset, size_bytes, shard, shard + 1) for shard in range(dataset.num_shards)]
    patterns = (source.files,) if isinstance(source.files, str) else source.files or ()
    found = {file.name: file for pattern in patterns for file in _matching_files(pattern, f"{where}.files")}
    return [found[name] for name in sorted(found)]


GRAMMAR_DOCUMENT_BYTES = 512
"""About how long a generated document is."""


def divide(portion: Portion, size_bytes: int) -> list[Portion]:
    """Cut a portion in ranges of about ``size_bytes``, where its kind can be read from the middle."""
    if portion.size_bytes <= size_bytes:
        return [portion]
    if portion.stop is not None:
        step = max(1, (portion.stop - portion.start) * size_bytes // portion.size_bytes)
        sizes_bytes = [portion.size_bytes // (portion.stop - portion.start)] * (portion.stop - portion.start)
        starts = list(range(portion.start, portion.stop, step))
    elif portion.name.endswith(".parquet"):
        sizes_bytes = row_group_bytes(Location(portion.name))
        starts, room_bytes = [], 0
        for group, group_bytes in enumerate(sizes_bytes):
            if group_bytes > room_bytes:
                starts.append(group)
                room_bytes = size_bytes
            room_bytes -= group_bytes
    else:
        return [portion]
    stops = [*starts[1:], portion.start + len(sizes_bytes)]
    return [
        Portion(portion.name, sum(sizes_bytes[start - portion.start : stop - portion.start]), start, stop)
        for start, stop in zip(starts, stops, strict=True)
    ]


def read_documents(portion: Portion, source: SourceConfig, where: str = "source") -> Iterator[Document]:
    """The documents of a portion, in order, streamed; those without text are passed over.

    Raises:
        InputError: the portion cannot be read, or a record is malformed; names the file and the line or row.
    """
    for document in _read(portion, source, where):
        if document is not None:
            yield document


def _read(portion: Portion, source: SourceConfig, where: str) -> Iterator[Document | None]:
    """One item a record; None for one without text."""
    if source.grammar is not None:
        from trainables.corpora.grammar import documents

        generated = documents(source.grammar, source.documents, source.seed)
        for document_id, text in itertools.islice(generated, portion.start, portion.stop):
            yield Document(text, source.language, document_id)
        return
    columns = (source.text_column,) if source.id_column is None else (source.text_column, source.id_column)
    if source.dataset is not None:
        dataset = _open_dataset(source, where)
        rows = dataset.shard(num_shards=dataset.num_shards, index=portion.start)
        for number, row in enumerate(rows, 1):
            place = f"{source.dataset}, split {source.split}, shard {portion.start}, row {number}"
            for column in columns:
                if column not in row:
                    raise InputError(
                        f"there is no column '{column}' in the data set {source.dataset}",
                        where=f"{where}.dataset",
                        why=nearest(column, row),
                        remedy=COLUMN_REMEDY,
                    )
            yield _document(row[source.text_column], row.get(source.id_column or ""), source, place)
        return
    file = Location(portion.name)
    row_groups = None if portion.stop is None else range(portion.start, portion.stop)
    for place, record in read_records(file, columns, row_groups):
        yield _document(
            record[source.text_column], record.get(source.id_column or ""), source, f"{file}, {place}"
        )


def _document(text: object, document_id: object, source: SourceConfig, place: str) -> Document | None:
    if text is None or text == "" or (isinstance(text, str) and text.isspace()):
        return None
    if not isinstance(text, str):
        raise InputError(
            f"the column '{source.text_column}' holds no text but a value of type {type(text).__name__}",
            where=place,
            remedy="name the column that holds the documents' text: text_column",
        )
    if source.id_column is None:
        document_id = blake2b(f"{source.language}\0{text}".encode(), digest_size=16).hexdigest()
    elif document_id is None or document_id == "":
        raise InputError(
            f"a document without an id in the column '{source.id_column}'",
            where=place,
            why="the id decides whether a document is trained on or held out",
            remedy="fill the column, or leave out id_column to have ids made from the text",
        )
    return Document(text, source.language, str(document_id))


def check_sources(sources: Sequence[SourceConfig]) -> None:
    """Look at the head of every file, data set and grammar, so that a mistake shows before anything starts.

    Raises:
        InputError: the first thing wrong, with the file and line or the key (``corpora.sources[2].files``).
    """
    for number, source in enumerate(sources):
        where = f"corpora.sources[{number}]"
        portions = expand(source, where)
        if source.files is None:
            portions = portions[:1]

        def num_documents(portion: Portion, source: SourceConfig = source, where: str = where) -> int:
            return _documents_in_head(portion, source, where)

        with ThreadPoolExecutor(
            max_workers=_OPEN_FILES
        ) as pool:  # on an object store each file is a round trip
            if not sum(pool.map(num_documents, portions)):
                raise InputError(
                    "no document with text",
                    where=f"{where}.{source.kind}",
                    why=f"the column '{source.text_column}' is empty in the first {HEAD_RECORDS} records",
                    remedy="name the column that holds the documents' text: text_column",
                )


def _documents_in_head(portion: Portion, source: SourceConfig, where: str) -> int:
    num_documents = num_characters = 0
    for document in itertools.islice(_read(portion, source, where), HEAD_RECORDS):
        if document is not None:
            num_documents += 1
            num_characters += len(document.text)
        if num_characters > _HEAD_CHARACTERS:
            break
    return num_documents


def _check_grammar(name: str, where: str) -> None:
    from trainables.corpora.grammar import LANGUAGES

    if name not in LANGUAGES:
        raise InputError(
            f"there is no embedded language '{name}'",
            where=f"{where}.grammar",
            why=nearest(name, LANGUAGES),
            remedy="choose one of them, or give files or a dataset",
        )


def _open_dataset(source: SourceConfig, where: str) -> IterableDataset:
    """The split, streamed: no worker copies more of a data set than it reads."""
    import datasets

    assert source.dataset is not None
    folder = Path(source.dataset).expanduser()
    try:
        if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
            saved = datasets.load_from_disk(folder)
            if isinstance(saved, datasets.DatasetDict):
                if source.split not in saved:
                    raise ValueError(f"it has no split '{source.split}'; {nearest(source.split, saved)}")
                saved = saved[source.split]
            return saved.to_iterable_dataset()
        name = str(folder) if folder.exists() else source.dataset
        return datasets.load_dataset(
            name, source.config, split=source.split, revision=source.revision, streaming=True
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        kind = "folder" if folder.is_dir() else "data set"
        raise InputError(
            f"the {kind} {source.dataset} cannot be read as a Hugging Face data set",
            where=f"{where}.dataset",
            why=str(error).strip(),
            remedy="a name on the hub, a folder written by save_to_disk, or a folder of data files; "
            "check config, split and revision",
        ) from error


def _matching_files(pattern: str, where: str) -> list[Portion]:
    """The files that match; raises InputError where none does."""
    scheme, separator, _ = pattern.partition("://")
    prefix = scheme + separator if separator else ""
    pattern = pattern if separator else str(Path(pattern).expanduser().absolute())
    before_wildcard = re.split(r"[*?]", pattern, maxsplit=1)[0]
    folder = Location(before_wildcard.rpartition("/")[0] or "/")
    relative = pattern[len(before_wildcard.rpartition("/")[0]) + 1 :]
    selector = pafs.FileSelector(
        folder.path, recursive="/" in relative or "**" in relative, allow_not_found=True
    )
    entries = folder.filesystem.get_file_info(selector)
    base = folder.path.rstrip("/") + "/"
    names = {entry.path.removeprefix(base): entry for entry in entries}
    expression = re.compile(_expression(relative))
    matches = [entry for name, entry in names.items() if expression.fullmatch(name)]
    files = [entry for entry in matches if entry.type == pafs.FileType.File]
    if files:
        root = prefix if prefix and prefix != "file://" else ""
        return [Portion(f"{root}{entry.path}", entry.size or 0) for entry in files]
    if matches:
        raise InputError(
            f"{pattern} is a folder",
            where=where,
            remedy=f"name its files with a pattern such as {pattern}/*{next(iter(READERS))}",
        )
    present = [name for name, entry in names.items() if entry.type == pafs.FileType.File and suffix_of(name)]
    raise InputError(
        f"no file matches {pattern}",
        where=where,
        why=f"in {folder}: {nearest(relative, present)}"
        if entries
        else f"there is no folder {folder}, or it is empty",
        remedy=f"a path is relative to the current folder, {Path.cwd()}; wildcards are *, ? and **",
    )


def _expression(pattern: str) -> str:
    """The wildcard pattern as a regular expression: ``*`` and ``?`` stop at ``/``, ``**/`` does not."""
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return "".join(wildcards.get(part) or re.escape(part) for part in parts)
