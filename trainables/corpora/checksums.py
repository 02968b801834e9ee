"""Checksums of shards: each is verified when this machine first reads it, and not again while it stays the same."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path

from trainables.corpora.manifest import Shard
from trainables.storage import Location, space_for

_blake2b = partial(hashlib.blake2b, digest_size=16)


def checksum(content: bytes) -> str:
    """Of a shard's file, hexadecimal."""
    return _blake2b(content).hexdigest()


def cache_folder() -> Path:
    """Where this machine keeps copies of object stores' shards, and what it has verified; one for each user."""
    return Path(tempfile.gettempdir()) / f"headtohead-cache-{os.getuid()}"


def is_intact(file: Path, expected: str) -> bool:
    """Whether a file on this machine is there and has the checksum.

    That it has is remembered by path, size and time of modification: a trial's start reads no shard twice.
    """
    if not file.is_file():
        return False
    status = file.stat()
    identity = f"{file.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0{expected}"
    remembered = cache_folder() / "verified" / checksum(identity.encode())
    if remembered.exists():
        return True
    with file.open("rb") as stream:
        if hashlib.file_digest(stream, _blake2b).hexdigest() != expected:
            return False
    with space_for(remembered):
        remembered.parent.mkdir(parents=True, exist_ok=True)
        remembered.touch()
    return True


def is_shard_intact(folder: Location, shard: Shard) -> bool:
    """Whether a shard of the corpus in ``folder`` is there and has its checksum; one of an object store is read."""
    file = folder / shard.file
    if file.local is not None:
        return is_intact(file.local, shard.checksum)
    return file.exists() and checksum(file.read_bytes()) == shard.checksum
