"""Hugging Face data sets: by name on the hub, from a folder of data files, or as save_to_disk wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from trainables.corpora.config import SourceConfig
from trainables.corpora.reading.files import semicolons
from trainables.corpora.reading.reader import Malformed, Record, lacks
from trainables.corpora.reading.tables import table_rows
from trainables.errors import InputError, nearest, storage_errors
from trainables.storage import is_here, local_path

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

SHARD_BYTES = 8 << 20
"""A data set on this machine's disk is cut in shards of about this size, each of which can be read apart."""
_BATCH_ROWS = 64  # read at a time
_COMMIT = re.compile("[0-9a-f]{40}")


def local_folder(source: SourceConfig) -> Path | None:
    """The folder of a data set on this machine."""
    folder = local_path(source.dataset or "")
    return folder if is_here(str(folder)) and folder.is_dir() else None


def pinned(source: SourceConfig, where: str) -> SourceConfig:
    """The source with the commit that its revision on the hub now is: later readings see the same text."""
    if source.dataset is None or _COMMIT.fullmatch(source.revision or ""):
        return source
    with _explained(source, where):
        if local_folder(source):
            return source
        from huggingface_hub import HfApi

        commit = HfApi().dataset_info(source.dataset, revision=source.revision).sha
    return source.model_copy(update={"revision": commit})


class Split(NamedTuple):
    """A split of a data set, in shards each of which can be read apart."""

    rows: Dataset | IterableDataset  # of all shards
    num_shards: int
    size_bytes: int  # of all shards; `SHARD_BYTES` for each where it is not known


def open_data_set(source: SourceConfig, where: str) -> Split:
    """The source's split, in shards. Raises InputError: there is no such data set, configuration, split or revision.

    Streamed, each shard is one of the data set's files, and no worker copies more than it reads. Otherwise the
    whole split is downloaded to the cache of ``datasets`` first, once on each machine.
    """
    import datasets

    with _explained(source, where, LookupError, TypeError, AttributeError):  # of records that are damaged
        folder = local_folder(source)
        if folder and ((folder / "dataset_dict.json").exists() or (folder / "state.json").exists()):
            found = datasets.load_from_disk(folder)
            if isinstance(found, datasets.DatasetDict):
                if source.split not in found:
                    raise ValueError(f"it has no split '{source.split}'; {nearest(source.split, found)}")
                found = found[source.split]
        else:
            found = datasets.load_dataset(
                str(folder) if folder else source.dataset,
                source.config,
                split=source.split,
                revision=source.revision,
                streaming=source.streaming,
            )
        if isinstance(found, datasets.Dataset):
            num_shards = max(1, min(len(found), found.data.nbytes // SHARD_BYTES))
            return Split(found, num_shards, found.data.nbytes)
        recorded = (found.info.splits or {}).get(source.split)
        known_bytes = recorded.num_bytes if recorded else 0
        return Split(found, found.num_shards, known_bytes or found.num_shards * SHARD_BYTES)


def rows(source: SourceConfig, shard: int, where: str, name: str) -> Iterator[Record | Malformed]:
    """The rows of one shard, which an error calls ``name``. InputError: no such data set or column, or damaged rows."""
    whole, data_set = open_data_set(source, where), f"the data set {source.dataset}"
    with _explained(source, where):
        part: Any = whole.rows.shard(whole.num_shards, shard, contiguous=True).with_format("arrow")
        row, columns = 0, list(dict.fromkeys(source.columns))
        for table in part.iter(batch_size=_BATCH_ROWS):
            present = table.column_names
            for column in columns:
                if column not in present:
                    problem = lacks(data_set, f"{where}.dataset", column, present)
                    if len(present) == 1 and ";" in present[0]:
                        problem = problem._replace(remedy=semicolons(str(source.dataset)))
                    raise problem.error()
            for batch in table.select(columns).to_batches():
                yield from table_rows(batch, data_set, f"{name}, ", row)
                row += batch.num_rows


@contextmanager
def _explained(source: SourceConfig, where: str, *more: type[Exception]) -> Iterator[None]:
    """Turns what the library and the network raise, and ``more``, into an InputError; one of ours passes."""
    import datasets

    try:
        yield
    except InputError:
        raise
    except (ValueError, pa.ArrowException, datasets.exceptions.DatasetsError, *storage_errors(), *more) as error:
        kind = "folder" if local_folder(source) else "data set"
        raise InputError(
            f"the {kind} {source.dataset} cannot be read as a Hugging Face data set",
            where=f"{where}.dataset",
            why=str(error).strip(),
            remedy="a name on the hub, a folder written by save_to_disk, or a folder of data files; "
            "check config, split and revision, and that the hub can be reached",
        ) from error
