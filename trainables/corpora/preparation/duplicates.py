"""Exact duplicates: which documents have the text of an earlier one, over all parts and languages of a corpus.

Two rounds of independent tasks. Each task of the first hashes one part's documents and writes the hashes sorted into
buckets; each of the second reads some buckets of all parts, so that equal texts meet in one task, and writes down
all but the first of them. A task holds one part's hashes, or those of its buckets: about
:data:`TASK_DOCUMENTS` documents of 24 bytes, however large the corpus is (up to a billion documents).
"""

import json
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.config import Config
from trainables.corpora.preparation.packing import part_digest
from trainables.corpora.preparation.parts import Part
from trainables.corpora.preparation.ray_job import run_job
from trainables.corpora.reading.documents import read_documents
from trainables.hashing import new_checksum
from trainables.storage import Location

NUM_BUCKETS = 256  # by the first byte of the hash
TASK_DOCUMENTS = 4 << 20  # a task of the second round looks at about so many

_HASH = np.dtype([("high", ">u8"), ("low", ">u8"), ("part", "<u4"), ("position", "<u4")])
_FOUND = np.dtype("<u4")
_HEAD_BYTES = 32


class Tasks(Config):
    """How the second round was cut. Written when all is found."""

    bounds: tuple[int, ...]  # the first bucket of each task, and after the last
    parts: int  # of the corpus


def find_duplicates(parts: list[Part], folder: Location) -> Iterator[tuple[str, int, int]]:
    """Find them and write them down in ``folder``; yields the stage, its tasks done so far and all of them.

    Hashes that are there, whole, from a run that was cut off are not made again.
    """
    items = [json.dumps([number, part.model_dump_json()]) for number, part in enumerate(parts)]
    num_documents = 0
    yield "duplicates", 0, len(items)
    for done, result in enumerate(run_job(partial(_hash_part, folder=folder.uri), items), 1):
        num_documents += int(result)
        yield "duplicates", done, len(items)
    num_tasks = min(NUM_BUCKETS, max(1, -(-num_documents // TASK_DOCUMENTS)))
    bounds = [NUM_BUCKETS * task // num_tasks for task in range(num_tasks + 1)]
    ranges = [json.dumps(bounds[task : task + 2]) for task in range(num_tasks)]
    compare = partial(_compare_buckets, num_parts=len(parts), folder=folder.uri)
    for done, _ in enumerate(run_job(compare, ranges), 1):
        yield "comparison", done, num_tasks
    (folder / "tasks.json").write_json(Tasks(bounds=tuple(bounds), parts=len(parts)).model_dump())


def duplicates_of(number: int, folder: Location) -> frozenset[int]:
    """Which of the part's documents to leave out, by their place among those with text."""
    tasks = Tasks.model_validate_json((folder / "tasks.json").read_bytes())
    files = (folder / f"found/{first:03d}" for first in tasks.bounds[:-1])
    found = [_read_buckets(file, _FOUND, number, number + 1, tasks.parts, 0) for file in files]
    return frozenset(np.concatenate(found).tolist())


def _hash_part(item: str, folder: str) -> str:
    """The number of documents; their hashes go to a file, after the digests of the part and of the hashes.

    A hash that is not its document's would make another one a duplicate, or none.
    """
    number, part_content = json.loads(item)
    part, file = Part.model_validate_json(part_content), Location(folder) / f"hashes/{number:06d}"
    digest = bytes.fromhex(part_digest(part))
    made = file.read_bytes() if file.exists() else b""
    if made[:_HEAD_BYTES] == digest + new_checksum(made[_HEAD_BYTES:]).digest():
        return str((len(made) - _HEAD_BYTES - 8 * (NUM_BUCKETS + 1)) // _HASH.itemsize)
    documents = (document for portion in part.portions for document in read_documents(portion, part.source))
    rows = bytearray()
    for position, document in enumerate(documents):
        rows += new_checksum(document.text.encode()).digest() + struct.pack("<II", number, position)
    hashes = np.frombuffer(rows, dtype=_HASH)
    content = _in_buckets(hashes, (hashes["high"] >> np.uint64(56)).astype(np.int64), NUM_BUCKETS)
    file.write_bytes(digest + new_checksum(content).digest() + content)
    return str(len(hashes))


def _compare_buckets(item: str, num_parts: int, folder: str) -> str:
    first, last = json.loads(item)
    files = (Location(folder) / f"hashes/{number:06d}" for number in range(num_parts))
    hashes = np.concatenate([_read_buckets(file, _HASH, first, last, NUM_BUCKETS, _HEAD_BYTES) for file in files])
    hashes = hashes[np.lexsort((hashes["position"], hashes["part"], hashes["low"], hashes["high"]))]
    again = (hashes["high"][1:] == hashes["high"][:-1]) & (hashes["low"][1:] == hashes["low"][:-1])
    found = hashes[1:][again]
    content = _in_buckets(found["position"], found["part"].astype(np.int64), num_parts)
    (Location(folder) / f"found/{first:03d}").write_bytes(content)
    return ""


def _in_buckets(rows: NDArray[Any], bucket: NDArray[np.int64], num_buckets: int) -> bytes:
    """The rows by bucket, after the places where the buckets begin."""
    begin = np.zeros(num_buckets + 1, dtype="<u8")
    begin[1:] = np.cumsum(np.bincount(bucket, minlength=num_buckets))
    return begin.tobytes() + rows[np.argsort(bucket, kind="stable")].tobytes()


def _read_buckets(
    file: Location, dtype: np.dtype[Any], first: int, last: int, num_buckets: int, head_bytes: int
) -> NDArray[Any]:
    """The rows of the buckets from ``first`` to before ``last``; nothing else of the file is read."""
    with file.filesystem.open_input_file(file.path) as stream:
        places = (stream.read_at(8, head_bytes + 8 * bucket) for bucket in (first, last))
        begin, end = (struct.unpack("<Q", place)[0] for place in places)
        rows_begin = head_bytes + 8 * (num_buckets + 1)
        content = stream.read_at((end - begin) * dtype.itemsize, rows_begin + begin * dtype.itemsize)
    return np.frombuffer(content, dtype=dtype)
