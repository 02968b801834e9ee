"""How much of the held-out text stands in the training text too, and the held-out documents that are left out for it.

A first round of independent tasks sketches the held-out documents of each part: the smallest hashes of their n-grams
(Broder 1997, "On the resemblance and containment of documents"). The sketches of all parts are one index. A second
round looks up each part's training documents in it. Which of a sketch's hashes were found, in whatever training
documents, is the overlap: exact where a sketch has all n-grams, and of a sample of k of them within 0.5 / sqrt(k), one
standard error. So memory is that of the index, and the order of documents, parts and tasks changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation.duplicates import duplicates_of
from trainables.corpora.preparation.ngrams import batches
from trainables.corpora.preparation.packing import part_digest
from trainables.corpora.preparation.parts import Part
from trainables.corpora.preparation.splits import split_of
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.tally import Document
from trainables.corpora.sealed import Sealed
from trainables.corpora.stream.manifest import HELD_OUT, SPLITS, Overlap, Split
from trainables.corpora.stream.token_counts import Job
from trainables.hashing import checksum
from trainables.storage import Location

MOST_HASHES = 1 << 24
"""Of the index: all n-grams of up to some 100 MB of held-out text. With more, the sketches are smaller."""
FEWEST_HASHES = 64  # of a document: at least so many n-grams, or all, are in its sketch
MOST_LEFT_OUT = 0.5
"""Of a language's documents in a split. Where more would go its text repeats itself by nature, as templates do, and
what is left would be the odd ones: then none goes."""
_TABLE_BITS = 24  # of the table that most hashes that are not in the index are told by

_DOCUMENT = np.dtype([("position", "<u4"), ("split", "u1"), ("ngrams", "<u4"), ("hashes", "<u4")])


class _Sketches(Sealed):
    """Of a part's held-out documents."""

    digest: str  # of the part
    documents: bytes  # rows of `_DOCUMENT`
    hashes: bytes  # each document's smallest, ascending, after those of the one before


class _Found(Sealed):
    """Which hashes of the index are in a part's training documents."""

    digest: str  # of the part and of the index
    places: bytes  # in the index, ascending


class Overlaps(NamedTuple):
    """Of a corpus."""

    splits: dict[Split, dict[str, Overlap]]
    near_duplicates: list[list[int]]
    """By part which of its documents are left out, by their place among those with text."""


Tell = Callable[[str, int, int], None]
"""Is told of a stage, its tasks done so far and all of them."""


def find_overlap(
    parts: Sequence[Part], corpora: CorporaConfig, folder: Location, duplicates: Location | None, job: Job, tell: Tell
) -> Overlaps:
    """Find it, by way of files in ``folder``: what is there, whole, from a run that was cut off is not made again.

    Documents that are left out as ``duplicates`` count on neither side.
    """
    items = [json.dumps([number, part.model_dump_json()]) for number, part in enumerate(parts)]
    work = _Work(corpora, folder.uri, duplicates.uri if duplicates else None)

    def told(stage: str, results: Iterable[str]) -> Iterator[str]:
        tell(stage, 0, len(parts))
        for done, result in enumerate(results, 1):
            yield result
            tell(stage, done, len(parts))

    sketch = partial(_sketch, work=work, most_hashes=MOST_HASHES // len(parts))
    files = sorted(told("sketches", job(sketch, items)))  # in the order of the parts, whichever ended first
    sketches = [_Sketches.model_validate_json(Location(file).read_bytes()) for file in files]
    hash_H = np.concatenate([np.frombuffer(own.hashes, "<u8") for own in sketches])
    index_P, place_H = np.unique(hash_H, return_inverse=True)
    (folder / "index").write_bytes(index_P.tobytes())
    found_P = np.zeros(len(index_P), dtype=bool)
    look_up = partial(_look_up, work=work, index=checksum(index_P.tobytes()))
    for file in told("overlap", job(look_up, items)):
        found = _Found.model_validate_json(Location(file).read_bytes())
        found_P[np.frombuffer(found.places, "<u4")] = True
    return _summed(parts, corpora, [np.frombuffer(own.documents, _DOCUMENT) for own in sketches], found_P[place_H])


class _Work(NamedTuple):
    """What the tasks of both rounds have in common."""

    corpora: CorporaConfig
    folder: str
    duplicates: str | None

    def left_out(self, number: int) -> frozenset[int]:
        return duplicates_of(number, Location(self.duplicates)) if self.duplicates else frozenset()

    def documents(
        self, part: Part, left_out: frozenset[int], *, held_out: bool
    ) -> Iterator[tuple[int, Split, Document]]:
        """Those of one side: place among the part's documents with text, split and document."""
        every = (document for portion in part.portions for document in read_documents(portion, part.source, part.where))
        for position, document in enumerate(every):
            split = split_of(document.group, self.corpora.validation_share, self.corpora.test_share)
            if (split != "train") is held_out and position not in left_out:
                yield position, split, document


def _sketch(item: str, *, work: _Work, most_hashes: int) -> str:
    """Sketch a part's held-out documents in about so many hashes; gives the record's file."""
    number, content = json.loads(item)
    part, left_out = Part.model_validate_json(content), work.left_out(number)
    file, digest = Location(work.folder) / f"sketches/{number:06d}.json", part_digest(part, left_out)
    if (made := _Sketches.read(file)) is not None and made.digest == digest:
        return file.uri
    places = list[tuple[int, int]]()

    def texts() -> Iterator[str]:
        for position, split, document in work.documents(part, left_out, held_out=True):
            places.append((position, SPLITS.index(split)))
            yield document.text

    found = [np.empty((0, 2), np.uint64)]
    for own in batches(texts()):
        found.append(np.unique(np.stack([own.text_G.astype(np.uint64), own.hash_G], axis=1), axis=0))
    text_H, hash_H = np.unique(np.concatenate(found), axis=0).T
    count_D = np.bincount(text_H.astype(np.int64), minlength=len(places))
    rank_H = np.arange(len(text_H)) - np.repeat(count_D.cumsum() - count_D, count_D)
    size = int(count_D.max(initial=0))
    while size > FEWEST_HASHES and np.minimum(count_D, size).sum() > most_hashes:
        size = max(FEWEST_HASHES, size // 2)
    documents = np.empty(len(places), _DOCUMENT)
    documents["position"], documents["split"] = np.array(places, dtype=np.int64).reshape(-1, 2).T
    documents["ngrams"], documents["hashes"] = count_D, np.minimum(count_D, size)
    hashes = np.ascontiguousarray(hash_H[rank_H < size], "<u8").tobytes()
    record = _Sketches(digest=digest, documents=documents.tobytes(), hashes=hashes).sealed()
    file.write_bytes(record.model_dump_json().encode())
    return file.uri


def _look_up(item: str, *, work: _Work, index: str) -> str:
    """Look up a part's training documents in the index of this checksum; gives the record's file."""
    number, content = json.loads(item)
    part, left_out = Part.model_validate_json(content), work.left_out(number)
    file = Location(work.folder) / f"found/{number:06d}.json"
    digest = f"{part_digest(part, left_out)} {index}"
    if (made := _Found.read(file)) is not None and made.digest == digest:
        return file.uri
    index_P, table = _index(work.folder, index)
    found_P = np.zeros(len(index_P), dtype=bool)
    texts = (document.text for _, _, document in work.documents(part, left_out, held_out=False))
    for own in batches(texts) if len(index_P) else ():
        hash_G = own.hash_G[table[own.hash_G >> np.uint64(64 - _TABLE_BITS)]]
        place_G = np.minimum(np.searchsorted(index_P, hash_G), len(index_P) - 1)
        found_P[place_G[index_P[place_G] == hash_G]] = True
    record = _Found(digest=digest, places=np.flatnonzero(found_P).astype("<u4").tobytes()).sealed()
    file.write_bytes(record.model_dump_json().encode())
    return file.uri


@lru_cache(maxsize=1)  # a process looks up several parts
def _index(folder: str, _: str) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The hashes, ascending, and which values their first bits have."""
    index_P = np.frombuffer((Location(folder) / "index").read_bytes(), "<u8").astype(np.uint64)
    table = np.zeros(1 << _TABLE_BITS, dtype=bool)
    table[index_P >> np.uint64(64 - _TABLE_BITS)] = True
    return index_P, table


def _summed(
    parts: Sequence[Part], corpora: CorporaConfig, documents: list[NDArray[np.void]], is_found_H: NDArray[np.bool_]
) -> Overlaps:
    """By the documents of all parts, and which of their hashes were found."""
    part_D = np.repeat(np.arange(len(parts)), [len(own) for own in documents])
    row_D = np.concatenate(documents)
    language_D = np.array([part.source.language for part in parts])[part_D]
    is_generated_D = np.array([part.source.grammar is not None for part in parts])[part_D]
    hashes_D = row_D["hashes"].astype(np.int64)
    hits_D = np.bincount(np.repeat(np.arange(len(row_D)), hashes_D), is_found_H, minlength=len(row_D))
    share_D, ngrams_D = hits_D / np.maximum(hashes_D, 1), row_D["ngrams"].astype(np.float64)
    is_over_D = share_D > corpora.maximum_overlap
    is_left_out_D = is_over_D & ~is_generated_D
    splits: dict[Split, dict[str, Overlap]] = {}
    for number, split in enumerate(HELD_OUT, SPLITS.index(HELD_OUT[0])):
        splits[split] = {}
        for language in sorted({part.source.language for part in parts}):
            own_D = (row_D["split"] == number) & (language_D == language)
            if is_left_out_D[own_D].sum() > MOST_LEFT_OUT * own_D.sum():
                is_left_out_D &= ~own_D
            stays_D = own_D & ~is_left_out_D
            before, after = (
                float((ngrams_D * share_D)[of].sum() / max(1.0, ngrams_D[of].sum())) for of in (own_D, stays_D)
            )
            splits[split][language] = Overlap(
                documents=int(own_D.sum()),
                left_out=int((own_D & is_left_out_D).sum()),
                kept=int((stays_D & is_over_D).sum()),
                before=before,
                after=after,
            )
    out = row_D["position"][is_left_out_D]
    near_duplicates = [out[part_D[is_left_out_D] == number].tolist() for number in range(len(parts))]
    return Overlaps(splits, near_duplicates)
