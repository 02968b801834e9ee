"""Hugging Face data sets: by name on the hub, from a folder of data files, or as save_to_disk wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from trainables.errors import InputError, nearest
from trainables.storage import storage_errors

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

    from trainables.corpora.reading.documents import SourceConfig

SHARD_BYTES = 8 << 20
"""A data set on this machine's disk is cut in shards of about this size, each of which can be read apart."""


_COMMIT = re.compile("[0-9a-f]{40}")


def pinned(source: SourceConfig, where: str) -> SourceConfig:
    """The source with the commit that its revision on the hub now is: later readings see the same text.

    Raises:
        InputError: there is no such data set or revision, or the hub cannot be reached.
    """
    if source.dataset is None or Path(source.dataset).expanduser().exists():
        return source
    if _COMMIT.fullmatch(source.revision or ""):
        return source
    from huggingface_hub import HfApi

    with _explained(source, where):
        commit = HfApi().dataset_info(source.dataset, revision=source.revision).sha
    return source.model_copy(update={"revision": commit})


class Split(NamedTuple):
    """A split of a data set, in shards each of which can be read apart."""

    rows: Dataset | IterableDataset
    """Of all shards."""

    num_shards: int

    size_bytes: int
    """Of all shards; :data:`SHARD_BYTES` for each where it is not known."""


def open_data_set(source: SourceConfig, where: str) -> Split:
    """The source's split, in shards.

    Streamed, each shard is one of the data set's files, and no worker copies more than it reads. Otherwise the
    whole split is downloaded to the cache of ``datasets`` first, once on each machine.

    Raises:
        InputError: there is no such data set, configuration, split or revision.
    """
    import datasets

    assert source.dataset is not None
    folder = Path(source.dataset).expanduser()
    with _explained(source, where):
        if (folder / "dataset_dict.json").exists() or (folder / "state.json").exists():
            found = datasets.load_from_disk(folder)
            if isinstance(found, datasets.DatasetDict):
                if source.split not in found:
                    raise ValueError(f"it has no split '{source.split}'; {nearest(source.split, found)}")
                found = found[source.split]
        else:
            found = datasets.load_dataset(
                str(folder) if folder.exists() else source.dataset,
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


def rows(source: SourceConfig, shard: int, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of one shard, each with its place as a person would say it.

    Raises:
        InputError: the data set cannot be opened, or not be read to its end.
    """
    whole = open_data_set(source, where)
    with _explained(source, where):
        for number, row in enumerate(whole.rows.shard(whole.num_shards, shard, contiguous=True), 1):
            yield f"{source.dataset}, split {source.split}, shard {shard}, row {number}", row


@contextmanager
def _explained(source: SourceConfig, where: str) -> Iterator[None]:
    """Turns what the library and the network raise into an InputError; one of ours passes."""
    import datasets

    try:
        yield
    except InputError:
        raise
    except (ValueError, pa.ArrowException, datasets.exceptions.DatasetsError, *storage_errors()) as error:
        kind = "folder" if Path(str(source.dataset)).expanduser().is_dir() else "data set"
        raise InputError(
            f"the {kind} {source.dataset} cannot be read as a Hugging Face data set",
            where=f"{where}.dataset",
            why=str(error).strip(),
            remedy="a name on the hub, a folder written by save_to_disk, or a folder of data files; "
            "check config, split and revision, and that the hub can be reached",
        ) from error
