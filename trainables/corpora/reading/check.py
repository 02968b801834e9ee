"""A look at the head of every source, so that a mistake shows before anything starts."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

from trainables.corpora.config import SourceConfig
from trainables.corpora.reading.documents import open_portion, read_items
from trainables.corpora.reading.portions import Portion, expand, spread
from trainables.corpora.reading.reader import Record, shown
from trainables.corpora.reading.tally import Document, Tally, total
from trainables.errors import InputError

HEAD_RECORDS = 100  # how many records of each file are looked at before anything starts
_HEAD_MALFORMED_SHARE = 0.1
"""Tolerated of a head: among so few records a share is a guess, and the preparation counts them all."""
_HEAD_CHARACTERS = 1 << 20
_REMOTE_FILES = 16
_MOST_LANGUAGES = 20


def check_sources(sources: Sequence[SourceConfig], malformed_share: float = 0.0) -> None:
    """Look at the head of every file, data set and grammar. InputError: the first thing wrong, and its place or key."""
    for number, source in enumerate(sources):
        where = f"corpora.sources[{number}]"
        portions = expand(source, where)
        if source.files is None:
            portions = portions[:1]
        # On an object store each file is a round trip; of this machine's one head at a time is held in memory.
        num_readers = _REMOTE_FILES if any("://" in portion.name for portion in portions) else 1
        with ThreadPoolExecutor(num_readers) as pool:
            heads = list(pool.map(partial(read_head, source=source, where=where), portions))
        head = total(tally for tally, _ in heads)
        whole = all(is_whole for _, is_whole in heads)
        head.require_sound(malformed_share, where, 0.0 if whole else _HEAD_MALFORMED_SHARE)
        if 0 < len(portions) == head.empty_files:
            first, only = portions[0].name, len(portions) == 1
            what = f"{first.rpartition('/')[2]} is empty" if only else "all files are empty"
            raise InputError(what, where=first if only else f"{where}.files", remedy="name files that hold text")
        if not head.documents and not head.other_languages:
            why = f"the column '{source.text_column}' is empty in the first {HEAD_RECORDS} records"
            remedy = "name the column that holds the documents' text: text_column"
            raise InputError("no document with text", where=f"{where}.{source.kind}", why=why, remedy=remedy)


def read_head(portion: Portion, source: SourceConfig, where: str = "source") -> tuple[Tally, bool]:
    """What the first records of a portion are, and whether they are all."""
    tally, num_characters = Tally(), 0
    for item in read_items(portion, source, where):
        tally.count(item)
        num_characters += len(item.text) if isinstance(item, Document) else 0
        if tally.records >= HEAD_RECORDS or num_characters > _HEAD_CHARACTERS:
            return tally, False
    return tally, source.files is not None


def languages_present(source: SourceConfig, where: str) -> str:
    """Which values the language column has at the heads of some ranges, the most frequent first; for an error."""
    values: Counter[str] = Counter()
    for piece in spread(expand(source, where)):
        _, records = open_portion(piece, source, where)
        for record in islice(records, HEAD_RECORDS):
            if isinstance(record, Record):
                values[shown(record.columns[str(source.language_column)])] += 1
    listing = ", ".join(value for value, _ in values.most_common(_MOST_LANGUAGES))
    return f"the column '{source.language_column}' holds {listing}" + (", ..." if len(values) > _MOST_LANGUAGES else "")
