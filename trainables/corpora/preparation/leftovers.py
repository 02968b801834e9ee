"""What preparations that never came to their end have left: unfinished files of killed processes, and whole folders."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress

import pyarrow.fs as pafs

from trainables.corpora.stream.packed import MANIFEST_NAME
from trainables.storage import Location

ABANDONED_SECONDS = 7 * 86_400.0
"""A corpus without a manifest to which nothing was written for so long is nobody's: given again, its preparation would
begin anew."""
UNFINISHED_SECONDS = 3_600.0
"""A temporary file that is older is of a process that is gone: to write one takes seconds."""
_FINGERPRINT = re.compile("[0-9a-f]{16}")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}")  # as `Location.write_bytes` names them; an object store has none


def remove_leftovers(store: Location, prepared: str) -> int:
    """Remove from a store of corpora what nobody goes on with, now that the one named ``prepared`` is whole: its
    unfinished files, and other preparations that were abandoned. Returns how many those are.

    The records of its parts stay: by them a damaged shard is made again. So does what is not this user's to remove.
    """
    now, abandoned = time.time(), 0
    for file in _files(store / prepared) if store.local is not None else ():
        if _TEMPORARY.fullmatch(file.base_name) and now - _written(file) > UNFINISHED_SECONDS:
            with suppress(FileNotFoundError, PermissionError):
                store.filesystem.delete_file(file.path)
    for name in store.names():
        if name == prepared or not _FINGERPRINT.fullmatch(name) or (store / name / MANIFEST_NAME).exists():
            continue
        last = max(map(_written, _files(store / name)), default=now)
        if now - last > ABANDONED_SECONDS:
            with suppress(FileNotFoundError, PermissionError):
                (store / name).delete()
                abandoned += 1
    return abandoned


def _written(file: pafs.FileInfo) -> float:
    """When, in seconds since the epoch."""
    return float(file.mtime_ns) / 1e9


def _files(folder: Location) -> Iterator[pafs.FileInfo]:
    selector = pafs.FileSelector(folder.path, recursive=True, allow_not_found=True)
    return (found for found in folder.filesystem.get_file_info(selector) if found.type == pafs.FileType.File)
