"""Which documents are trained on, and which are held out: by their group alone, so that what belongs together is never
on both sides."""

import hashlib
from collections import Counter
from collections.abc import Iterator

from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.reading.documents import text_group
from trainables.corpora.reading.files import has_columns
from trainables.corpora.reading.portions import Portion, expand
from trainables.corpora.stream.manifest import SPLITS, Split
from trainables.errors import InputError
from trainables.storage import Location

FEWEST_GROUPS = 3  # of text files in each split: of fewer nobody can tell how much their text varies
STRETCHES_BYTES = (0, *(1 << power for power in range(16, 7, -1)))  # 0: a file whole


def group_number(group: str) -> int:
    """A group as a number of 64 bits."""
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big")


def split_of(group: str, validation_share: float, test_share: float) -> Split:
    """The split a group of documents belongs to: by its name alone, so that new text never moves old documents."""
    place = group_number(group) / 2**64
    if place < validation_share:
        return "validation"
    return "test" if place < validation_share + test_share else "train"


def grouped(corpora: CorporaConfig) -> CorporaConfig:
    """The same with ``group_bytes`` of each source of text files: what is not given is chosen by the files' names and
    sizes. Raises InputError where it is given and there are no text files, or a file is missing."""
    sources = [_grouped(source, corpora, f"corpora.sources[{n}]") for n, source in enumerate(corpora.sources)]
    return corpora.model_copy(update={"sources": tuple(sources)})


def _grouped(source: SourceConfig, corpora: CorporaConfig, where: str) -> SourceConfig:
    if source.files is None:
        return source
    portions = [portion for portion in expand(source, where) if not has_columns(Location(portion.name))]
    if source.group_bytes is not None:
        if not portions:
            what, why = "group_bytes is for text files", "documents of other files have ids, and may have a group"
            raise InputError(what, where=f"{where}.group_bytes", why=why, remedy="name a group_column")
        return source
    for stretch_bytes in STRETCHES_BYTES if portions else ():
        found, candidate = Counter[Split](), source.model_copy(update={"group_bytes": stretch_bytes})
        for group in _groups(candidate, portions):
            found[split_of(group, corpora.validation_share, corpora.test_share)] += 1
            if min(found[split] for split in SPLITS) >= FEWEST_GROUPS:
                return candidate
    return source.model_copy(update={"group_bytes": 1}) if portions else source


def _groups(source: SourceConfig, portions: list[Portion]) -> Iterator[str]:
    """The groups of the documents of text files, if one begins everywhere."""
    for portion in portions:
        for begin_bytes in range(0, max(1, portion.size_bytes), source.group_bytes or max(1, portion.size_bytes)):
            yield text_group(source, portion, begin_bytes)
