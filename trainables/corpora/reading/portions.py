"""Portions: what of a source is read in one go."""

import posixpath
from typing import NamedTuple

from trainables.corpora.config import SourceConfig
from trainables.corpora.grammar import require_language
from trainables.corpora.reading.files import part_bytes
from trainables.corpora.reading.hugging_face import open_data_set
from trainables.corpora.reading.wildcards import matching_files
from trainables.storage import Location

GRAMMAR_DOCUMENT_BYTES = 512  # about how long a generated document is
PART_BYTES = 8 << 20
"""A task reads at least about so much: small files are joined up to it, large ones cut where their format allows."""
MOST_PART_BYTES = 64 << 20  # parts of much text are larger, up to so much: about as many tokens as a shard has
FEW_PARTS = 2048
"""With more parts they are larger instead: each has shards of its own, and a block of the stream is from them all."""
MOST_AT_ONCE = 32  # files, or ranges of large ones, that are read in turn, or looked at to guess what the others hold


class Portion(NamedTuple):
    """Read in one go: a file, or a range of a large one, of a data set or of a grammar's documents."""

    name: str  # the file's path or URI, the data set's or the grammar's name
    size_bytes: int  # as stored; estimated for a grammar and for a data set that does not say
    start: int = 0  # the first part (as its reader counts them), shard (data set) or document (grammar)
    stop: int | None = None  # the end of the range; None: to the end
    file: str = ""  # a file's path in its source: the same wherever the source's folder lies


def expand(source: SourceConfig, where: str = "source") -> list[Portion]:
    """The portions of a source in a fixed order: files by name, a data set's shards, one for a grammar.

    Raises InputError: no file matches, there is no such data set or grammar.
    """
    if source.grammar is not None:
        require_language(source.grammar, f"{where}.grammar")
        return [Portion(source.grammar, source.documents * GRAMMAR_DOCUMENT_BYTES, 0, source.documents)]
    if source.dataset is not None:
        _, num_shards, size_bytes = open_data_set(source, where)
        return [Portion(source.dataset, size_bytes // num_shards, shard, shard + 1) for shard in range(num_shards)]
    patterns = (source.files,) if isinstance(source.files, str) else source.files or ()
    matches = (match for pattern in patterns for match in matching_files(pattern, f"{where}.files"))
    found = {name: (size_bytes, file) for name, size_bytes, file in matches}
    if len({file for _, file in found.values()}) < len(found):  # several patterns' files of one name
        folder = posixpath.commonpath(found)
        found = {name: (size_bytes, name[len(folder) + 1 :]) for name, (size_bytes, _) in found.items()}
    return [Portion(name, size_bytes, file=file) for name, (size_bytes, file) in sorted(found.items())]


def part_size(total_bytes: int = 0) -> int:
    """How much text is read in one go, of so much in all."""
    return max(PART_BYTES, min(total_bytes // FEW_PARTS, MOST_PART_BYTES))


def divide(portion: Portion, size_bytes: int) -> list[Portion]:
    """Cut a portion in ranges of about ``size_bytes``, where its kind can be read from the middle."""
    if portion.size_bytes <= size_bytes:
        return [portion]
    if portion.stop is not None:
        length = portion.stop - portion.start
        sizes_bytes = [portion.size_bytes // length] * length
        starts = list(range(portion.start, portion.stop, max(1, length * size_bytes // portion.size_bytes)))
    elif sizes_bytes := part_bytes(Location(portion.name)):
        starts, room_bytes = [], 0
        for part, own_bytes in enumerate(sizes_bytes):
            if own_bytes > room_bytes:
                starts.append(part)
                room_bytes = size_bytes
            room_bytes -= own_bytes
    else:
        return [portion]
    stops = [*starts[1:], portion.start + len(sizes_bytes)]
    return [
        portion._replace(
            size_bytes=sum(sizes_bytes[start - portion.start : stop - portion.start]), start=start, stop=stop
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


def spread(portions: list[Portion]) -> list[Portion]:
    """Some ranges, spread evenly over the portions."""
    pieces = [piece for portion in portions for piece in divide(portion, part_size())]
    return pieces[:: -(-len(pieces) // MOST_AT_ONCE)]
