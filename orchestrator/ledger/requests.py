"""What people want a running search to try, each in a file of its own beside the ledger, which has one writer.

Whoever asks writes a file with a name that no other has. The process that leads the study reads it, records it in the
ledger under that name, and removes it. One that was recorded and is still there, or is there again, is known by name.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator

from pydantic import ValidationError

from orchestrator.ledger.layout import REQUESTS
from search_spaces import Configuration
from trainables.config import Config, Name
from trainables.storage import Location

_NAME = re.compile(r"[0-9a-f-]{1,100}\.json")


class Request(Config):
    """A configuration for an arm's search."""

    arm: Name
    configuration: Configuration


class Requests:
    """Those of a study, by its folder. Methods raise OSError where the storage does not answer."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder / REQUESTS

    def put(self, request: Request) -> None:
        """Leave one to be taken up."""
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}.json"  # by name they are in their order
        (self._folder / name).write_new(request.model_dump_json().encode())

    def waiting(self) -> Iterator[tuple[str, Request | None]]:
        """Their names and what they ask for, in their order; None of a file that is no request."""
        for name in filter(_NAME.fullmatch, self._folder.names()):
            try:
                yield name, Request.model_validate_json((self._folder / name).read_bytes())
            except FileNotFoundError:  # removed meanwhile
                continue
            except ValidationError:
                yield name, None

    def remove(self, name: str) -> None:
        """One that was taken up."""
        (self._folder / name).delete()
