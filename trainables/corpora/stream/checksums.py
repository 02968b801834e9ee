"""Checksums of shards: each is verified when this machine first reads it, and not again while it stays the same.

What this machine wrote itself counts as verified; who wants to know for certain has it read afresh.
"""

import hashlib
import os
import tempfile
from pathlib import Path

from trainables.corpora.stream.manifest import Shard
from trainables.errors import InputError
from trainables.hashing import checksum, new_checksum
from trainables.storage import Location, space_for


def cache_folder() -> Path:
    """Where this machine keeps copies of object stores' shards, and what it has verified; one for each user."""
    return Path(tempfile.gettempdir()) / f"headtohead-cache-{os.getuid()}"


def is_intact(file: Path, expected: str, *, afresh: bool = False) -> bool:
    """Whether a file on this machine is there and has the checksum.

    That it has is remembered by path, size and time of modification: a trial's start reads no shard twice. ``afresh``
    reads it whatever is remembered: a disk's fault changes neither size nor time.
    """
    if not file.is_file():
        return False
    memory = _memory(file, expected)
    if memory.exists() and not afresh:
        return True
    with file.open("rb") as stream:
        intact = hashlib.file_digest(stream, new_checksum).hexdigest() == expected
    if intact:
        _keep(memory)
    else:
        memory.unlink(missing_ok=True)
    return intact


def remember(file: Path, content_checksum: str) -> None:
    """A file on this machine was just written, whole, with this content: it need not be read to know that."""
    _keep(_memory(file, content_checksum))


def _memory(file: Path, expected: str) -> Path:
    """The empty file that says that a file, as it is now, has the checksum."""
    status = file.stat()
    identity = f"{file.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0{expected}"
    return cache_folder() / "verified" / checksum(identity.encode())


def _keep(memory: Path) -> None:
    try:
        with space_for(memory):
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.touch()
    except OSError as error:
        raise InputError(
            "what was verified cannot be remembered",
            where=str(memory.parent),
            why=str(error),
            remedy=f"remove {cache_folder()}, or name a folder of your own: TMPDIR=FOLDER",
        ) from error


def is_shard_intact(folder: Location, shard: Shard, *, afresh: bool = False) -> bool:
    """Whether a shard of the corpus in ``folder`` is there and has its checksum. One of an object store is read."""
    file = folder / shard.file
    if file.local is not None:
        return is_intact(file.local, shard.checksum, afresh=afresh)
    return file.exists() and checksum(file.read_bytes()) == shard.checksum
