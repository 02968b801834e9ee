"""The end of a ledger on this machine: a file of this session's own, to which lines are appended."""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from orchestrator.ledger.layout import LEASE_FILE, segment_name, segments_of
from orchestrator.ledger.lease import note_holder, taken_over
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location, space_for


def lock(folder: Path) -> int:
    """Keep other processes out of a ledger, until the descriptor that it gives is closed. Raises InputError if another
    one has it, or the file system has no locks.

    A file, open for writing: of a folder's lock NFS and Lustre tell no other machine (flock(2), "NFS details")."""
    with space_for(folder / LEASE_FILE):
        exclusive = os.open(folder / LEASE_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(exclusive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # which of them: fcntl(2), "EACCES or EAGAIN"
        os.close(exclusive)
        raise taken_over(Location(folder)) from error
    except OSError as error:
        os.close(exclusive)
        raise InputError(
            "the study's folder cannot be locked",
            where=str(folder / LEASE_FILE),
            why=f"{error.strerror}; without a lock two processes could run the study at once",
            remedy="storage on a file system with locks (Lustre: mounted with the option flock), or an object store",
        ) from error
    return exclusive


def _put_on_disk(folder: Path) -> None:
    """The names in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LocalLog:
    """Writes lines into a new segment. A lock keeps others out, for as long as this process lives. Raises what
    :func:`lock` does, and FullDiskError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            self._exclusive = lock(folder)
            undo.callback(os.close, self._exclusive)
            note_holder(folder / LEASE_FILE, self._exclusive)
            self._path = folder / segment_name(max(segments_of(Location(folder)).values(), default=0) + 1)
            with space_for(self._path):
                self._file = undo.enter_context(self._path.open("xb", buffering=0))
                _put_on_disk(folder)
            undo.pop_all()

    def append(self, line: bytes) -> None:
        """Write a line. Raises FullDiskError; then nothing of it is there."""
        before = self._file.tell()
        try:
            with space_for(self._path):
                while line:  # on a disk that is nearly full a part of it is written
                    line = line[self._file.write(line) :]
        except FullDiskError:
            # When there is space again the next record must not be joined to half a line.
            self._file.truncate(before)
            self._file.seek(before)
            raise

    def flush(self) -> None:
        """What is appended outlives this process at once; now a power cut too."""
        with space_for(self._path):
            os.fsync(self._file.fileno())

    def check(self) -> None:
        """Nothing: what cannot be written is told when it is appended."""

    def close(self) -> None:
        """Put it on the disk, and let others write."""
        if not self._file.closed:
            with ExitStack() as last:
                last.callback(os.close, self._exclusive)
                last.enter_context(self._file)
                os.fsync(self._file.fileno())
