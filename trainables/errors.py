"""The one error a user's mistake becomes, wherever it is found."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys or cannot write: control characters, direction marks, halves of surrogate pairs."""


def printable(text: str) -> str:
    """The text as a terminal may see it: what it would obey is escaped. Lines and tabs stay."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class InputError(ValueError):
    """A user's mistake: the command line prints it without a traceback and exits with 2.

    Args:
        what: what is wrong, in one line.
        where: the file and key (``study.yaml: search.rungs``), or the file and line.
        why: why it cannot be accepted, where that is not obvious.
        remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", remedy: str = "") -> None:
        # Some of it is quoted from files that somebody else wrote.
        self.what, self.where, self.why, self.remedy = map(printable, (what, where, why, remedy))
        super().__init__(self.what, self.where, self.why, self.remedy)  # so that the error survives pickling

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.what, self.where, self.why, self.remedy))

    def within(self, file: str) -> InputError:
        """The same error with its key placed in the study's ``file``; one that names a file of its own stays."""
        if not self.where or "/" in self.where:
            return self
        return InputError(self.what, where=f"{file}: {self.where}", why=self.why, remedy=self.remedy)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {label}: {text}" for label, text in self._details() if text]
        return "\n".join(lines)

    def _details(self) -> list[tuple[str, str]]:
        return [("where", self.where), ("why", self.why), ("remedy", self.remedy)]


def _rebuild(what: str, where: str, why: str, remedy: str) -> InputError:
    return InputError(what, where=where, why=why, remedy=remedy)


def nearest(name: str, valid: Iterable[str]) -> str:
    """``did you mean 'x'? Valid: ...`` for a misspelt ``name`` among the ``valid`` ones.

    Names are not near by their suffix alone.
    """
    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    stems = [word.partition(".")[0] for word in (name, *close)]
    hint = f"did you mean '{close[0]}'? " if close and get_close_matches(stems[0], stems[1:]) else ""
    return f"{hint}Valid: {', '.join(names) or 'none'}"
