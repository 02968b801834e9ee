"""The end of a ledger on an object store, which cannot append: the open segment is written again whole, now and then.

A write succeeds only if the segment is as this writer last left it, and a writer begins by writing it. So one that was
thought dead, and from which another took over, learns that when it writes; nothing that it holds comes into the ledger.
A thread of its own writes, so that nothing waits for the store, and tries again for some minutes where there is no
answer.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress

from orchestrator import formatting
from orchestrator.ledger.layout import segment_name, segments_of
from orchestrator.ledger.lease import Lease, taken_over
from trainables.errors import InputError
from trainables.object_store import ChangedError, Patience, Version
from trainables.storage import Location

SEGMENT_BYTES = 1 << 20  # a segment is closed at this size, which bounds what is written again
FLUSH_SECONDS = 2.0  # the least between two writes, unless somebody waits


class RemoteLog:
    """Writes lines behind those of a ledger's segments. Raises InputError if another process writes them.

    Args:
        folder: the ledger's.
        lease: this process's right to write there; it is renewed, and lost with it.
    """

    def __init__(self, folder: Location, lease: Lease) -> None:
        self._folder, self._lease = folder, lease
        self._number, self._content = 1, b""
        self._version: Version | None = self._shut_out_others()
        self._pending: list[bytes] = []
        self._problem: Exception | None = None
        self._changed = threading.Condition()
        self._hurry = self._closing = self._ended = False
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    @property
    def _segment(self) -> Location:
        return self._folder / segment_name(self._number)

    def _shut_out_others(self) -> Version:
        """Write the open segment, with half a line of this writer's own behind its last, which readers pass over."""
        while True:
            self._number = max(segments_of(self._folder).values(), default=1)
            self._content, seen = self._read()
            if len(self._content) >= SEGMENT_BYTES:  # whoever led before would write the next
                self._number += 1
                self._content, seen = self._read()
            self._lease.renew_if_due()  # this process may have slept since it took it
            with suppress(ChangedError):  # by whoever led before, until its own lease ends it
                return self._segment.replace(self._content + uuid.uuid4().hex.encode(), seen, Patience.seconds)

    def _read(self) -> tuple[bytes, Version | None]:
        """The whole lines of the segment, and which writing of it that is; nothing where there is none."""
        try:
            content, seen = self._segment.read_version()
        except FileNotFoundError:
            return b"", None
        return content[: content.rfind(b"\n") + 1], seen

    def check(self) -> None:
        """Raises InputError where nothing can be written any more, and whatever else ended the thread that writes."""
        if self._problem is not None:
            raise self._problem

    def append(self, line: bytes) -> None:
        """Write a line within moments. Raises what :meth:`check` does."""
        with self._changed:
            self.check()
            self._pending.append(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written. Raises what :meth:`check` does."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._pending or self._ended)
            self._hurry = False
            self.check()

    def close(self) -> None:
        """Write what is there still, unless that cannot be any more, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        last = -FLUSH_SECONDS
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: bool(self._pending) or self._closing, self._lease.seconds_left())
                    ready = last + FLUSH_SECONDS - time.monotonic()
                    if self._pending and ready > 0:
                        self._changed.wait_for(lambda: self._hurry or self._closing, ready)
                    lines = list(self._pending)
                    if not lines and self._closing:
                        self._lease.release()
                        return
                if lines:
                    last = time.monotonic()
                    self._write(b"".join(lines))
                    with self._changed:
                        del self._pending[: len(lines)]
                        self._changed.notify_all()
                self._lease.renew_if_due()
        except Exception as error:  # noqa: BLE001 (a thread's end: else what is appended is lost without a word)
            with self._changed:
                self._problem = error
        finally:
            self._lease.leave()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _write(self, lines: bytes) -> None:
        if len(self._content) >= SEGMENT_BYTES:
            self._number, self._content, self._version = self._number + 1, b"", None
        content = self._content + lines
        began = time.monotonic()
        try:
            self._version = self._segment.replace(content, self._version, Patience.FOR_STUDIES)
        except ChangedError as error:
            raise taken_over(self._folder) from error
        except OSError as error:
            raise lost_storage(self._segment, self._folder.parent, error, time.monotonic() - began) from error
        self._content = content


def lost_storage(file: Location, study: Location, error: OSError, waited: float) -> InputError:
    """What ends the study in a folder whose storage refuses it, or did not answer for so many seconds."""
    refused = type(error) is not OSError
    silent = f"the storage has not answered for {formatting.duration(waited)}"
    return InputError(
        "the storage refuses to be written to" if refused else silent,
        where=str(file),
        why=str(error),
        remedy=f"{'put that right' if refused else 'when it answers again'}, then go on:  h2h resume "
        f"{study}; all but the last moments is saved",
    )
