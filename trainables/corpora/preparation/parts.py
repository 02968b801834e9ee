"""Parts: the tasks of a preparation, and the record of what each made."""

from collections import Counter

from trainables.config import Config
from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.reading.portions import Portion, divide, expand, part_size
from trainables.corpora.reading.tally import Tally
from trainables.corpora.sealed import Sealed
from trainables.corpora.stream.manifest import LanguageCounts, Split


class Part(Config):
    """What one task prepares: portions of one source."""

    number: int  # among the language's parts
    source_number: int  # of the source, in the study's order
    source: SourceConfig  # where the portions are from
    portions: tuple[Portion, ...]  # read one after another

    @property
    def name(self) -> str:
        """No other part has it."""
        return f"{self.source.language}-{self.number:05d}"

    @property
    def record_file(self) -> str:
        """Where its record lies in the corpus's folder."""
        return f"parts/{self.name}.json"

    @property
    def size_bytes(self) -> int:
        """Of its text, as it is stored; estimated for a grammar and for a data set that does not say."""
        return sum(portion.size_bytes for portion in self.portions)

    @property
    def where(self) -> str:
        """How to call the source in an error."""
        return f"corpora.sources[{self.source_number}]"


class PartRecord(Sealed):
    """What one task made. Written after its shards: where it is, the part is whole and not made again."""

    digest: str  # of the part
    splits: dict[Split, LanguageCounts]  # counts by split
    groups: dict[Split, bytes]  # of the held-out splits' documents, shard by shard, as 64-bit integers, little-endian
    tail_groups: dict[Split, bytes]
    tails: dict[Split, bytes]
    """Each split's last tokens, fewer than a sequence, in the shards' dtype: packed when all parts are there."""
    tally: Tally  # what became of the records


def cut(corpora: CorporaConfig) -> list[Part]:
    """The tasks: consecutive portions of one source, up to :func:`part_size` or a single larger one."""
    portions = [expand(source, f"corpora.sources[{number}]") for number, source in enumerate(corpora.sources)]
    part_bytes = part_size(sum(portion.size_bytes for own in portions for portion in own))
    numbers: Counter[str] = Counter()
    parts = []
    for source_number, source in enumerate(corpora.sources):
        groups, room_bytes = list[list[Portion]](), 0
        for piece in (piece for portion in portions[source_number] for piece in divide(portion, part_bytes)):
            if not groups or piece.size_bytes > room_bytes:
                groups.append([])
                room_bytes = part_bytes
            groups[-1].append(piece)
            room_bytes -= piece.size_bytes
        for group in groups or [[]]:
            number = numbers[source.language]
            parts.append(Part(number=number, source_number=source_number, source=source, portions=tuple(group)))
            numbers[source.language] += 1
    return parts
