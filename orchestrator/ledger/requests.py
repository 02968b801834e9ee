"""What people want a running search to try, each in a file of its own beside the ledger, which has one writer.

Whoever asks writes a file with a name that no other has. The process that leads the study reads it, records it in the
ledger under that name, and removes it once the record is durable. One that was recorded and is still there is known by
its name.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from pydantic import ValidationError

from orchestrator.ledger.layout import REQUESTS
from search_spaces import Configuration
from trainables.config import Config, Name
from trainables.errors import InputError
from trainables.object_store import Patience
from trainables.storage import Location

_Content = TypeVar("_Content")
_NAME = re.compile(r"[0-9a-f][0-9a-f-]{0,99}\.json")


class Request(Config):
    """A configuration for an arm's search."""

    arm: Name
    configuration: Configuration


def put(folder: Location, request: Request) -> None:
    """Leave a request for whoever leads the study in a folder. Raises OSError where the storage does not answer."""
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex}.json"  # by name they are in their order
    (folder / REQUESTS / name).write_new(request.model_dump_json().encode())


class Inbox:
    """Requests on their way into the ledger. One thread looks for them, so that nothing else waits for the storage;
    another takes them and records them.

    Args:
        folder: of the study.
        flush: waits until what was recorded is durable.
    """

    def __init__(self, folder: Location, flush: Callable[[], None]) -> None:
        self._folder, self._flush = folder / REQUESTS, flush
        self._found: SimpleQueue[tuple[str, Request | None]] = SimpleQueue()
        self._known: set[str] = set()  # names that were read
        self._settled: SimpleQueue[str] = SimpleQueue()

    def look(self) -> None:
        """Read what is new, and remove what was settled. A store that does not answer is asked again the next time."""
        patience = Patience.of_this_thread.set(0.0)
        try:
            with suppress(OSError, InputError):  # nothing can be written any more: the study's own next record says so
                self._remove_settled()
            with suppress(OSError):
                for name in filter(_NAME.fullmatch, self._folder.names()):
                    if name not in self._known:
                        self._read(name)
        finally:
            Patience.of_this_thread.reset(patience)

    def _read(self, name: str) -> None:
        with suppress(OSError):  # one that cannot be read, as a folder, keeps none after it waiting
            data = (self._folder / name).read_bytes()
            self._known.add(name)
            self._found.put((name, _parsed(data)))

    def _remove_settled(self) -> None:
        settled = _taken(self._settled)
        if not settled:
            return
        try:
            self._flush()
            while settled:
                (self._folder / settled[-1]).delete()
                settled.pop()
        finally:
            for name in settled:  # the next time
                self._settled.put(name)

    def take(self) -> list[tuple[str, Request | None]]:
        """The names of requests that were found since, in their order, and what they ask for: None of a file that is
        no request. Each is to be settled."""
        return sorted(_taken(self._found), key=lambda found: found[0])

    def settle(self, name: str) -> None:
        """A request was recorded, or refused."""
        self._settled.put(name)


def _parsed(data: bytes) -> Request | None:
    try:
        return Request.model_validate_json(data)
    except ValidationError:
        return None


def _taken(queue: SimpleQueue[_Content]) -> list[_Content]:
    """All that a queue has now."""
    found: list[_Content] = []
    with suppress(Empty):
        while True:
            found.append(queue.get_nowait())
    return found
