"""One process at a time leads a study: on an object store it holds a lease, a file that it writes again and again.

The lease keeps a second process from beginning. A process that goes on after it lost its lease does no harm: each write
to the ledger is refused unless the ledger is as that process left it, and who takes over changes it before reading it
(:mod:`orchestrator.ledger.remote_log`). No clock is compared with another machine's.
"""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from pydantic import ValidationError

from orchestrator.ledger.layout import LEASE_FILE
from trainables.config import Config
from trainables.errors import InputError
from trainables.object_store import ChangedError, Version
from trainables.storage import Location, space_for

_held: set[str] = set()  # the tokens of the leases that this process has

HELD_SECONDS = 30.0  # one that was not renewed for so long is lost
RENEWAL_SECONDS = 8.0
_POLL_SECONDS = 1.0


class Holder(Config):
    """Who leads a study."""

    host: str
    process: int
    machine: str
    """By which a process of the same number is known to be the same: the boot and the namespace of processes."""
    since: float
    """Seconds since the epoch."""
    token: str
    renewed: int = 0
    """So many times."""
    released: bool = False

    @classmethod
    def here(cls) -> Holder:
        """This process."""
        return cls(
            host=platform.node(), process=os.getpid(), machine=_machine(), since=time.time(), token=uuid.uuid4().hex
        )

    @property
    def has_ended(self) -> bool:
        """Whether it is known that it leads no more: it said so, or is gone from this machine."""
        if self.released or not self.machine or self.machine != _machine():
            return self.released
        if self.process == os.getpid():
            return self.token not in _held
        return not Path(f"/proc/{self.process}").exists()

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.process} on {self.host}, since {since}"


class Lease:
    """This process's lease on a study's ledger. Raises InputError if another process holds it; whether one that cannot
    be asked still does is waited for, and ``say`` told."""

    def __init__(self, ledger: Location, say: Callable[[str], None]) -> None:
        self._file, self._holder = ledger / LEASE_FILE, Holder.here()
        seen = self._wait_for_others(say)
        with ExitStack() as undo:
            _held.add(self._holder.token)  # first: who reads what is written finds it held
            undo.callback(self.leave)
            try:
                self._version = self._file.replace(_content(self._holder), seen)
            except ChangedError as error:
                raise taken_over(self._file.parent) from error
            undo.pop_all()
        self._renewed = time.monotonic()

    def _wait_for_others(self, say: Callable[[str], None]) -> Version | None:
        """Until nobody leads; which writing of the file is to be replaced."""
        seen = self._read()
        deadline = time.monotonic() + HELD_SECONDS
        while seen is not None:
            holder, version = seen
            if holder is None or holder.has_ended:
                return version
            left = deadline - time.monotonic()
            if left <= 0:
                return version
            say(f"waiting {left:.0f} s to see whether {holder} still runs this study")
            time.sleep(min(_POLL_SECONDS, left))
            now = self._read()
            if now is not None and now[1] != version and not (now[0] is not None and now[0].has_ended):
                raise taken_over(self._file.parent)
            seen = now
        return None

    def _read(self) -> tuple[Holder | None, Version] | None:
        """Who holds it, as far as that can be read; None where there is no file."""
        try:
            content, version = self._file.read_version()
        except FileNotFoundError:
            return None
        try:
            return Holder.model_validate_json(content), version
        except ValidationError:
            return None, version

    def seconds_left(self) -> float:
        """Until it is to be renewed."""
        return max(0.0, self._renewed + RENEWAL_SECONDS - time.monotonic())

    def renew_if_due(self) -> None:
        """Write it again where it is time. Raises InputError where another process took it; a store that does not
        answer is asked again the next time: the ledger's own writes tell when that is too long."""
        if self.seconds_left() > 0:
            return
        self._renewed = time.monotonic()
        with suppress(OSError):
            self._write(self._holder.model_copy(update={"renewed": self._holder.renewed + 1}))

    def leave(self) -> None:
        """This process leads no more, whether it can say so or not."""
        _held.discard(self._holder.token)

    def release(self) -> None:
        """Say that this process leads no more."""
        self.leave()
        with suppress(OSError, InputError):  # another process leads by now
            self._write(self._holder.model_copy(update={"released": True}))

    def _write(self, holder: Holder) -> None:
        try:
            self._version = self._file.replace(_content(holder), self._version)
        except ChangedError as error:
            raise taken_over(self._file.parent) from error
        self._holder = holder  # only now: a try whose answer was lost is made again as it was


def _content(holder: Holder) -> bytes:
    return holder.model_dump_json().encode()


def note_holder(file: Path, locked: int) -> None:
    """Write into the file that is locked who leads the study: for who is refused, the lock itself names nobody. By the
    lock's own descriptor: on SMB the file cannot be written by another (flock(2), "CIFS details")."""
    with space_for(file):
        os.ftruncate(locked, 0)
        os.pwrite(locked, _content(Holder.here()), 0)


def taken_over(ledger: Location) -> InputError:
    """That another process leads the study, with who it is as far as that is known."""
    holder = _holder_of(ledger)
    return InputError(
        "another process runs this study",
        where=str(ledger),
        why=f"a ledger has one writer{'' if holder is None else f': {holder}'}",
        remedy="look at it with h2h watch, or stop that process first",
    )


def _holder_of(ledger: Location) -> Holder | None:
    try:
        return Holder.model_validate_json((ledger / LEASE_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _machine() -> str:
    """Empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
