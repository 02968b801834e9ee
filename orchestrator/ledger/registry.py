"""The studies that were begun in a storage: a file each, beside their folders, which stays when a folder goes.

A study that was picked from many is seen to be one of many. The files' names have digests of question and text: studies
that are alike are counted by the names alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue, ValidationError

from orchestrator.ledger.records import Earlier, StudyRecord
from trainables.config import Config, Name, Number
from trainables.hashing import checksum
from trainables.storage import Location

REGISTRY = "_begun"  # no study is called so
_MOST_NAMES = 5


class _Entry(Config):
    name: Name
    time: Number  # of the ledger's first record, seconds since the epoch
    protocol_digest: str


class _Key(NamedTuple):
    """What a file's name says of a study."""

    ledger: str  # of its ledger's first record
    question: str
    text: str

    def alike(self, other: _Key) -> bool:
        return bool(self.question and self.question == other.question) or self.text == other.text


def _digest(*content: JsonValue) -> str:
    return checksum(json.dumps(content, sort_keys=True).encode())[:16]


def _key(name: str, time: float, protocol: Mapping[str, JsonValue], protocol_digest: str) -> _Key:
    question = " ".join(str(protocol.get("question") or "").lower().split())
    text = _digest(protocol.get("corpora"), protocol.get("tokenizer"))
    return _Key(_digest(name, time, protocol_digest), _digest(question) if question else "", text)


def _key_of(first: StudyRecord) -> _Key:
    return _key(first.name, first.time, first.protocol, first.protocol_digest)


def _entries(storage: Location) -> dict[_Key, str]:
    """The files' names, by what they say."""
    parts = {name: name.removesuffix(".json").split(".") for name in (storage / REGISTRY).names()}
    return {_Key(*found): name for name, found in parts.items() if name.endswith(".json") and len(found) == 3}


def register(storage: Location, first: StudyRecord) -> None:
    """Write a study's file, by its ledger's first record; nothing where there is one."""
    key = _key_of(first)
    if key not in _entries(storage):
        entry = _Entry(name=first.name, time=first.time, protocol_digest=first.protocol_digest)
        (storage / REGISTRY / f"{'.'.join(key)}.json").write_json(entry.model_dump())


def others(storage: Location, of: StudyRecord) -> tuple[Earlier, bool]:
    """The studies in the storage but for the one itself, and whether that is among those registered."""
    own = _key_of(of)
    entries = _entries(storage)
    registered = entries.pop(own, None) is not None
    alike = sorted(_name(storage / REGISTRY / file) for key, file in entries.items() if key.alike(own))
    return Earlier(studies=len(entries), alike=tuple(alike)), registered


def _name(entry: Location) -> str:
    try:
        return _Entry.model_validate_json(entry.read_bytes()).name
    except ValidationError:  # whoever wrote it, it counts
        return "unknown"


def standing(first: StudyRecord | None) -> str:
    """Which study of its storage one was when it began; empty where that was not recorded."""
    if first is None or first.earlier is None:
        return ""
    return f"study {first.earlier.studies + 1:,} of its storage; before it {alike_in_words(first.earlier)}"


def alike_in_words(found: Earlier) -> str:
    """How many have the same question or text, and their names."""
    if not found.alike:
        return "none had the same question or text"
    names = ", ".join(found.alike[:_MOST_NAMES]) + (", ..." if len(found.alike) > _MOST_NAMES else "")
    return f"{len(found.alike):,} had the same question or text: {names}"
