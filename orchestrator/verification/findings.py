"""What a verification found."""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from orchestrator.analysis.answer import leaves, same
from trainables.config import Config


class Mismatch(Config):
    """A number that is not what the ledger says."""

    where: str
    recorded: JsonValue
    derived: JsonValue


class VerificationReport(Config):
    """What a verification found, as one value."""

    format: Literal["headtohead.verification/1"] = "headtohead.verification/1"
    sound: bool
    """Whether nothing is damaged, and all is as recorded."""
    records: int
    """Whole ones."""
    damaged: tuple[str, ...]
    """Places of lines that are no records, and why."""
    checks: dict[str, int]
    """How many values were derived again, by what they are."""
    mismatches: tuple[Mismatch, ...]
    notes: tuple[str, ...]
    """What a person must know of it."""
    head: str
    """Of the ledger."""


@dataclass
class Verification:
    """What was checked and what came of it."""

    records: int = 0  # whole ones
    damaged: list[str] = field(default_factory=list)  # places of lines that are none, and why
    checks: dict[str, int] = field(default_factory=dict)  # how many numbers, by what they are
    mismatches: list[Mismatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a person must know of it
    head: str = ""  # of the ledger

    def check(self, kind: str, where: str, recorded: JsonValue, derived: JsonValue) -> None:
        """Compare two JSON values."""
        for path, one, other in leaves(recorded, derived, where):
            self.checks[kind] = self.checks.get(kind, 0) + 1
            if not same(one, other):
                self.mismatches.append(Mismatch(where=path, recorded=one, derived=other))

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged, and all is as recorded."""
        return not (self.damaged or self.mismatches)

    @property
    def report(self) -> VerificationReport:
        """As one value."""
        return VerificationReport(
            sound=self.sound,
            records=self.records,
            damaged=tuple(self.damaged),
            checks=self.checks,
            mismatches=tuple(self.mismatches),
            notes=tuple(self.notes),
            head=self.head,
        )

    def in_words(self) -> str:
        """A line for each kind of check and each mismatch, or for each damaged line; and what all came to."""
        if self.damaged:
            whole = f"{self.records:,} records are whole, {len(self.damaged):,} are not: nothing is derived from them"
            return "\n".join([*(f"damaged: {line}" for line in self.damaged), whole])
        lines = [f"{count:>8,}  {kind}" for kind, count in self.checks.items()]
        lines += [f"mismatch: {m.where}: recorded {m.recorded}, the ledger says {m.derived}" for m in self.mismatches]
        lines += [f"note: {note}" for note in self.notes]
        ending = f"{len(self.mismatches)} mismatches" if self.mismatches else "all as recorded"
        total = sum(self.checks.values())
        whole = f"{self.records:,} records are whole; {total:,} values derived again: {ending}"
        return "\n".join([*lines, whole, f"head {self.head}"])
