"""How often each token comes in the training split of a prepared corpus, language by language. Letter: V vocabulary."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.sealed import Sealed
from trainables.corpora.stream.manifest import Manifest, Shard, damaged
from trainables.hashing import checksum
from trainables.storage import Location

TOKEN_COUNTS_NAME = "token_counts.json"

Job = Callable[[Callable[[str], str], Sequence[str]], Iterable[str]]
"""Makes a task's result of each item, in whatever order."""


class TokenCounts(Sealed):
    """The file beside a corpus's manifest."""

    text: str  # digest of the shards that were counted
    languages: dict[str, bytes]  # of each the counts, (V,), as 64-bit integers, little-endian

    def of(self, language: str) -> NDArray[np.int64]:
        """The counts of one language, (V,)."""
        return np.frombuffer(self.languages[language], dtype="<i8").astype(np.int64)


def token_counts(manifest: Manifest, folder: Location, job: Job | None = None) -> TokenCounts:
    """The counts of the corpus in a folder: those in their file, else counted from the shards, by a job or one by one.

    With a job they are written into the file, should it lack them. Raises InputError for a damaged shard.
    """
    file, text = folder / TOKEN_COUNTS_NAME, _digest(manifest)
    there = TokenCounts.read(file)
    if there is not None and there.text == text:
        return there
    task = partial(_count, folder=folder.uri, vocabulary_size=manifest.vocabulary_size)
    counts = {language: np.zeros(manifest.vocabulary_size, dtype="<i8") for language in manifest.languages}
    train = manifest.splits["train"].items()
    items = [json.dumps([language, shard.model_dump_json()]) for language, own in train for shard in own.shards]
    for result in job(task, items) if job else map(task, items):
        language, found = json.loads(result)
        counts[language] += np.frombuffer(base64.b64decode(found), dtype="<i8")
    languages = {language: count_V.tobytes() for language, count_V in counts.items()}
    record = TokenCounts(text=text, languages=languages).sealed()
    if job is not None:
        file.write_bytes(record.model_dump_json().encode())
    return record


def _digest(manifest: Manifest) -> str:
    shards = [shard.checksum for own in manifest.splits["train"].values() for shard in own.shards]
    return checksum(" ".join(shards).encode())


def _count(item: str, *, folder: str, vocabulary_size: int) -> str:
    """One shard's language and counts, in base64."""
    language, described = json.loads(item)
    shard = Shard.model_validate_json(described)
    file = Location(folder) / shard.file
    content = file.read_bytes() if file.exists() else b""
    if checksum(content) != shard.checksum:
        raise damaged(file)
    count_V = np.bincount(np.load(io.BytesIO(content)).ravel(), minlength=vocabulary_size)
    return json.dumps([language, base64.b64encode(count_V.astype("<i8").tobytes()).decode()])
