"""Where things lie: one way to name a folder or file on this machine or on an object store."""

import errno
import json
import os
import string
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.fs as pafs

from trainables.errors import InputError
from trainables.object_store import SCHEMES, ChangedError, Patience, StoredObject, Version, stored_object


def local_path(path: str | os.PathLike[str]) -> Path:
    """A path on this machine, absolute, with ``~`` expanded. Raises InputError where there is no such user."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"there is no such home folder: {path}", why=str(error)) from error


def is_here(name: str) -> bool:
    """Whether a file or folder of that name is on this machine; of others it may be one on the hub."""
    try:
        return local_path(name).exists()
    except (OSError, ValueError):  # no file can have such a name
        return False


GCS_SECONDS = 60  # pyarrow would ask a store that does not answer for a quarter of an hour
_FSSPEC_SCHEMES = ("hf://", "fsspec+")  # handed on by pyarrow to fsspec, which takes the path as it is written


def uri_of(scheme: str, path: str) -> str:
    """A filesystem's path as a URI, escaped. ``scheme`` has its ``://``; it is empty for this machine."""
    return scheme + (path if not scheme or scheme.startswith(_FSSPEC_SCHEMES) else quote(path, safe="/=:,@"))


class FullDiskError(InputError):
    """There is no space left: what was begun can go on when there is."""


@contextmanager
def space_for(file: Path) -> Iterator[None]:
    """Raises FullDiskError where writing to ``file`` inside finds the disk, or this user's share of it, full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FullDiskError(
            f"the disk is full: {file.name} could not be written",
            where=str(file),
            why=f"{error.strerror}; nothing that was whole before is lost",
            remedy="make space, and give the same command (a study: h2h resume) again: it goes on where it stopped",
        ) from error


class Location:
    """A file or folder, local or on an object store (``s3://``, ``gs://``, ``hf://``), joined with ``/``. A URI's query
    (``?region=``, ``?endpoint_override=``) is its store's. Raises InputError where the URI's scheme is unknown."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        self.uri = os.fspath(uri)
        if "://" not in self.uri:
            self.uri = str(local_path(self.uri).resolve())
        elif not self.uri.startswith(_FSSPEC_SCHEMES):  # pyarrow refuses spaces and letters beyond ASCII
            self.uri = quote(self.uri, safe=string.punctuation)
        has_query = "://" in self.uri and not self.uri.startswith(_FSSPEC_SCHEMES)
        self._place, mark, options = self.uri.partition("?") if has_query else (self.uri, "", "")
        self._query, opened = mark + options, self.uri
        scheme, _, rest = self._place.partition("://")
        if scheme in SCHEMES and not rest.partition("/")[0]:
            raise InputError(f"the location {uri} names no bucket", remedy=f"{scheme}://BUCKET/...")
        if opened.startswith(("gs://", "gcs://")) and "retry_limit_seconds" not in options:
            opened += f"{'&' if mark else '?'}retry_limit_seconds={GCS_SECONDS}"
        try:
            self.filesystem, self.path = pafs.FileSystem.from_uri(opened)
        except (ValueError, OSError) as error:
            raise InputError(
                f"cannot open the location {uri}",
                why=str(error),
                remedy="a local path, s3://BUCKET/..., gs://BUCKET/... or hf://datasets/OWNER/NAME/...",
            ) from error

    def __truediv__(self, name: str) -> "Location":
        return Location(f"{self._place.rstrip('/')}/{name}{self._query}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part of the path."""
        return str(self.path.rstrip("/").rsplit("/", 1)[-1])

    @property
    def parent(self) -> "Location":
        """The folder that it lies in."""
        return Location((self._place.rstrip("/").rpartition("/")[0] or "/") + self._query)

    @property
    def local(self) -> Path | None:
        """The path on this machine, or None on an object store."""
        return Path(self.path) if isinstance(self.filesystem, pafs.LocalFileSystem) else None

    @property
    def _object(self) -> StoredObject | None:
        """What it is on an object store; None elsewhere."""
        scheme, mark, place = self._place.partition("://")
        if not mark or scheme not in SCHEMES:
            return None
        region = self.filesystem.region if scheme == "s3" else None
        authority, query = place.partition("/")[0], self._query.removeprefix("?")
        return stored_object(scheme, authority, self.path.partition("/")[2].rstrip("/"), region, query)

    def exists(self) -> bool:
        """Whether it is a file that is there."""
        if (found := self._object) is not None:
            return found.exists()
        return bool(self.filesystem.get_file_info(self.path).type == pafs.FileType.File)

    def names(self) -> list[str]:
        """Names of the files and folders in this folder, sorted; empty where there is no folder."""
        if (found := self._object) is not None:
            return found.names()
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def size_bytes(self) -> int:
        """Of the file, or of all files in the folder and below; 0 where there is nothing."""
        own = self.filesystem.get_file_info(self.path)
        if own.type == pafs.FileType.File:
            return int(own.size)
        selector = pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
        return sum(info.size for info in self.filesystem.get_file_info(selector) if info.type == pafs.FileType.File)

    def read_bytes(self) -> bytes:
        """The whole file."""
        if (found := self._object) is not None:
            return found.read()[0]
        with self.filesystem.open_input_stream(self.path, compression=None) as stream:
            return bytes(stream.read())

    def write_bytes(self, data: bytes) -> None:
        """Write the whole file; a reader sees the old file or the new one, never a part. Raises FullDiskError.

        Object stores do that by themselves; locally it is a temporary file and a rename, both on the disk on return.
        """
        if (found := self._object) is not None:
            found.write(data)
            return
        if self.local is None:
            with self.filesystem.open_output_stream(self.path, compression=None) as stream:
                stream.write(data)
            return
        with self._temporary(self.local, data) as temporary:
            temporary.replace(self.local)

    def write_new(self, data: bytes) -> bool:
        """Write the whole file if there is none; whether there was none. Raises FullDiskError."""
        if self.local is None:
            try:
                self._require_object().replace(data, None, Patience.seconds)
            except ChangedError:
                return False
            return True
        with self._temporary(self.local, data) as temporary:
            try:
                self.local.hardlink_to(temporary)
            except FileExistsError:
                return False
        return True

    @contextmanager
    def _temporary(self, file: Path, data: bytes) -> Iterator[Path]:
        """A file beside it with the data, to be made that file; on the disk are then the data and the new name."""
        temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        with space_for(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as opened:
                    opened.write(data)
                    opened.flush()
                    os.fsync(opened.fileno())
                yield temporary
                # Names too are on the disk only then: what is written next may say that this file is there.
                descriptor = os.open(file.parent, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            finally:
                temporary.unlink(missing_ok=True)

    def read_version(self) -> tuple[bytes, Version]:
        """Of an object store: the whole file, and which writing of it that is."""
        return self._require_object().read()

    def replace(self, data: bytes, seen: Version | None, seconds: float = 0.0) -> Version:
        """Of an object store: write the file if it is as it was ``seen``, None: if there is none. Waits so many
        ``seconds`` for a store that does not answer. Raises ChangedError."""
        return self._require_object().replace(data, seen, seconds)

    def _require_object(self) -> StoredObject:
        if (found := self._object) is None:
            raise InputError(
                "a study cannot lie there",
                where=self.uri,
                why="it has to be written piece by piece",
                remedy="a folder of this machine, s3://BUCKET/... or gs://BUCKET/...",
            )
        return found

    def write_json(self, value: Any) -> None:
        """Write a JSON value, whole, as :meth:`write_bytes` does."""
        self.write_bytes((json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())

    def delete(self) -> None:
        """Remove the folder and all in it, or the file; nothing where there is none."""
        if (found := self._object) is not None:
            found.delete()
            return
        kind = self.filesystem.get_file_info(self.path).type
        if kind == pafs.FileType.Directory:
            self.filesystem.delete_dir(self.path)
        elif kind == pafs.FileType.File:
            self.filesystem.delete_file(self.path)

    def require_writable(self, *, trying: bool = True) -> None:
        """Prove, or raise InputError, that files can be made here, by one; not ``trying``: by the folder's rights."""
        try:
            if trying or self.local is None:
                probe = self / f".h2h-write-probe-{uuid.uuid4().hex}"
                probe.write_bytes(b"")
                probe.delete()
                return
            there = next(folder for folder in (self.local, *self.local.parents) if folder.exists())
            if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
                raise PermissionError(f"{there} is {'not yours to write to' if there.is_dir() else 'a file'}")
        except OSError as error:
            raise InputError(
                f"cannot write to the storage folder {self.uri}",
                where="storage",
                why=str(error),
                remedy="choose a folder you may write to: --set storage=FOLDER",
            ) from error
