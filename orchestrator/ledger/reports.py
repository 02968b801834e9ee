"""What a trial has reported, in memory: ten thousand trials of a search stay in some tens of megabytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from orchestrator.ledger.records import MeasureRecord, parse_record, to_line
from trainables.training.state import Spent


class Reports(Sequence[MeasureRecord]):
    """The reports of a trial that no later attempt rolled back, by step.

    A record takes five kilobytes. Those of a trial at rest are packed as the ledger's lines, compressed, and read again
    whenever they are asked for; what decisions ask of all trials is kept beside.
    """

    __slots__ = ("_like", "_packed", "_records", "_size", "progress", "scores", "spent")

    def __init__(self, records: Iterable[MeasureRecord] = ()) -> None:
        self._records: list[MeasureRecord] | None = []
        self._packed, self._like, self._size = b"", b"", 0
        self.progress = 0.0
        """Share of the budget that is spent, by the last one."""
        self.spent: Spent = {}
        """By budget unit, by the last one; {} before there is any."""
        self.scores: tuple[tuple[str, float], ...] = ()
        """Of each yardstick that was taken the last overall value."""
        for record in records:
            self.append(record)

    def append(self, record: MeasureRecord) -> None:
        """Add the trial's next one."""
        records = self._unpacked()
        records.append(record)
        self._records, self._packed, self._size = records, b"", len(records)
        self.progress, self.spent = record.progress, record.spent
        if record.yardsticks:
            taken = {name: score.overall for name, score in record.yardsticks.items()}
            self.scores = tuple((dict(self.scores) | taken).items())

    def kept(self, keeps: Callable[[MeasureRecord], bool]) -> Reports:
        """The reports that are to be kept, and no others."""
        return Reports(filter(keeps, self))

    def pack(self, like: bytes = b"") -> None:
        """The trial rests. ``like``: what its lines resemble, of which they take nothing twice."""
        if self._records:
            packer = zlib.compressobj(1, zdict=like)
            self._packed = packer.compress(b"".join(map(to_line, self._records))) + packer.flush()
            self._like = like
        self._records = None

    def _unpacked(self) -> list[MeasureRecord]:
        if self._records is not None:
            return self._records
        unpacked = zlib.decompressobj(zdict=self._like).decompress(self._packed) if self._packed else b""
        return [record for line in unpacked.splitlines() if isinstance(record := parse_record(line), MeasureRecord)]

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> MeasureRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[MeasureRecord]: ...

    def __getitem__(self, index: int | slice) -> MeasureRecord | list[MeasureRecord]:
        return self._unpacked()[index]

    def __iter__(self) -> Iterator[MeasureRecord]:
        return iter(self._unpacked())

    def __reversed__(self) -> Iterator[MeasureRecord]:
        return reversed(self._unpacked())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Reports({self._unpacked()!r})"
