"""What became of a source's records: nothing is passed over uncounted."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import NamedTuple, Self

from trainables.corpora.reading.lines import with_line
from trainables.corpora.reading.reader import Malformed
from trainables.errors import InputError, printable

MOST_EXAMPLES = 3  # malformed records that are named; all are counted
_MOST_LEFT_OUT = 0.5
"""Of a source's records: where more are malformed it is not what its settings say, and no share is advised."""


class Document(NamedTuple):
    """One text."""

    text: str
    language: str
    document_id: str
    group: str
    """Documents of one group are on one side of the split: those of a book, of a file, or the document alone."""


class Passed(Enum):
    """What gives no document, and is nevertheless counted: by the name of the count."""

    EMPTY = "empty"
    OTHER_LANGUAGE = "other_languages"
    EMPTY_FILE = "empty_files"
    ONE_DOCUMENT = "one_document_files"


@dataclass
class Tally:
    """Counts of the records of a source, or of a part of one."""

    documents: int = 0  # with text; all duplicates among them
    duplicates: int = 0  # documents left out because an earlier one has the same text
    near_duplicates: int = 0  # held-out documents left out because much of them stands in the training text
    empty: int = 0  # records without text
    other_languages: int = 0  # records of other languages than the source's
    malformed: int = 0  # what should be records and is none
    cut_short: int = 0
    """Malformed ones with which the rest of their file is lost: how many records that is nobody knows."""
    empty_files: int = 0  # files without a record
    one_document_files: int = 0  # text files of many lines without a blank one between them: each is one document
    examples: list[Malformed] = field(default_factory=list)
    """The first malformed ones, before them those with which the rest of a file is lost."""

    @property
    def records(self) -> int:
        """All that were read: which language a malformed one was of nobody knows."""
        return self.documents + self.empty + self.other_languages + self.malformed

    def count(self, item: Document | Malformed | Passed) -> None:
        """Count one record, or what there is to say of a file."""
        if isinstance(item, Document):
            self.documents += 1
        elif isinstance(item, Malformed):
            self.malformed += item.num_records or 1
            self.cut_short += item.num_records is None
            self.examples = _first([*self.examples, item])
        else:
            setattr(self, item.value, getattr(self, item.value) + 1)

    def with_lines(self) -> Self:
        """The same; the examples are named by their lines where they can be."""
        return replace(self, examples=[with_line(one) for one in self.examples])

    def warnings(self, where: str) -> list[str]:
        """A line on the malformed records, how many and the first ones; and one on each remark on files."""
        found = []
        if self.malformed:
            listing = "; ".join(f"{one.where}: {one.what}: {one.why}" for one in self.examples)
            more = "; ..." if self.malformed > len(self.examples) else ""
            lost = f", and the rest of {self.cut_short} files" if self.cut_short else ""
            records = f"{self.malformed} of {self.records} records are malformed and left out{lost}"
            found.append(printable(f"{where}: {records}: {listing}{more}"))
        if self.empty_files:
            found.append(f"{where}: empty files, passed over: {self.empty_files}")
        if self.one_document_files:
            remark = f"text files of many lines that are one document each: {self.one_document_files}"
            found.append(f"{where}: {remark}. Documents end at blank lines; if each line is one: sed G OLD > NEW")
        return found

    def require_sound(self, malformed_share: float, where: str, least_share: float = 0.0) -> None:
        """Refuse, by an InputError, too many malformed records, or a file of which an unknown part is lost. The study
        tolerates ``malformed_share``; 1: that the rest of a file is lost, too. Unless that is 0, ``least_share`` is
        tolerated at any rate: of a file's head alone."""
        tolerated = max(malformed_share, least_share) if malformed_share else 0.0
        is_tolerable = self.malformed <= tolerated * self.records + 1e-6  # a decimal fraction is rounded
        if is_tolerable and (not self.cut_short or malformed_share == 1):
            return
        first, *others = self.examples
        if self.cut_short:
            more = f", and the rest of {self.cut_short - 1} more files" if self.cut_short > 1 else ""
            raise InputError(
                first.what + more,
                where=first.where,
                why=f"{first.why}. How many records of {where} that is nobody knows, so no share below 1 tolerates it",
                remedy=f"{first.remedy}; or leave out whatever cannot be read: --set corpora.malformed_share=1",
            )
        share = self.malformed / self.records
        listing = "".join(f"; {one.where}: {one.why}" for one in others)
        leave_out = f"; or leave such records out: --set corpora.malformed_share={math.ceil(1000 * share) / 1000:g}"
        raise InputError(
            first.what + (f", and {self.malformed - 1} more malformed records" if self.malformed > 1 else ""),
            where=first.where,
            why=f"{first.why}{listing}. {self.malformed} of {self.records} records of {where} are malformed, "
            f"{share:.3%}; corpora.malformed_share tolerates {malformed_share:.3%}",
            remedy=first.remedy + (leave_out if share <= _MOST_LEFT_OUT else ""),
        )


def total(tallies: Iterable[Tally]) -> Tally:
    """The counts of several parts together, with the first examples."""
    sums = Tally()
    for tally in tallies:
        for count in fields(Tally):
            setattr(sums, count.name, getattr(sums, count.name) + getattr(tally, count.name))
    sums.examples = _first(sums.examples)
    return sums


def _first(examples: list[Malformed]) -> list[Malformed]:
    """As many as are named, the gravest before the others."""
    return sorted(examples, key=lambda one: one.num_records is not None)[:MOST_EXAMPLES]
