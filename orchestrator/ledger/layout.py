"""The files in a ledger's folder."""

from trainables.storage import Location

LEASE_FILE = "lease.json"
"""Who writes it, or did last."""

REQUESTS = "enqueued"
"""The folder beside the ledger's in which other processes leave what the search is to try."""


def segment_name(number: int) -> str:
    """Of a segment, from 1."""
    return f"{number:06d}.jsonl"


def segments_of(folder: Location) -> dict[str, int]:
    """The segments that are there, with their numbers, in their order."""
    stems = {name: name.removesuffix(".jsonl") for name in folder.names() if name.endswith(".jsonl")}
    return {name: int(stem) for name, stem in stems.items() if stem.isascii() and stem.isdecimal()}
