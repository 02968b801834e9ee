"""The chain: each line of a ledger begins with the digest of all that lies before it, in whatever segment.

So no line can be changed, taken out or put in without changing what every later one begins with, and last of all the
head, the digest of the whole ledger. Lines from before there was a chain do not begin so; they count in the head.
"""

import re
from typing import NamedTuple

from trainables.hashing import checksum

HEAD_OF_NOTHING = "0" * 32
_LINK = re.compile(rb'\{"before":"([0-9a-f]{32})",(?=")')


class Linked(NamedTuple):
    """A line, apart."""

    before: str | None  # the head that it says it follows; None of a line without a chain
    record: bytes


def link(head: str, record: bytes) -> bytes:
    """A record's line, which follows what has that head."""
    return b'{"before":"%b",' % head.encode() + record.removeprefix(b"{")


def unlink(line: bytes) -> Linked:
    """What :func:`link` put together."""
    found = _LINK.match(line)
    return Linked(None, line) if found is None else Linked(found[1].decode(), b"{" + line[found.end() :])


def head_after(head: str, line: bytes) -> str:
    """The head of what had one, and a line more, which has no newline."""
    return checksum(head.encode() + line)
