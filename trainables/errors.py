"""The one error a user's mistake becomes, wherever it is found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial

LONGEST_PART = 2000  # characters shown of each part of an error: what it quotes may be of any length


class InputError(ValueError):
    """A user's mistake: the command line prints it without a traceback and exits with 2.

    Args:
        what: what is wrong, in one line.
        where: the file and key (``study.yaml: search.rungs``), or the file and line.
        why: why it cannot be accepted, where that is not obvious.
        remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", remedy: str = "") -> None:
        super().__init__(what, where, why, remedy)  # all in args, so that the error survives pickling
        self.what, self.where, self.why, self.remedy = what, where, why, remedy

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), where=self.where, why=self.why, remedy=self.remedy), (self.what,)

    def at(self, where: str) -> InputError:
        """The same error in another place."""
        return InputError(self.what, where=where, why=self.why, remedy=self.remedy)

    def __str__(self) -> str:
        details = [("", self.what), ("  where: ", self.where), ("  why: ", self.why), ("  remedy: ", self.remedy)]
        shown = [(label, printable(text)) for label, text in details if text or not label]
        return "\n".join(label + text[:LONGEST_PART] + "..." * (len(text) > LONGEST_PART) for label, text in shown)


def storage_errors() -> tuple[type[Exception], ...]:
    """What reading and listing raise where a file, the network or a permission is missing."""
    from huggingface_hub.errors import HfHubHTTPError  # a second to import, and only a failure needs it

    # One of its bases is the error of the HTTP library in use, which differs between the hub library's versions.
    return (OSError, *HfHubHTTPError.__bases__)


def refusal(error: Exception, what: str = "", where: str = "") -> InputError:
    """One of :func:`storage_errors` in words."""
    what = what or f"cannot read or write {getattr(error, 'filename', None) or 'a file or folder'}"
    why = (getattr(error, "strerror", None) or str(error)).strip() or type(error).__name__
    remedy = "see that it is there and yours to use, that there is space, and that the network answers; then try again"
    return InputError(what, where=where, why=why, remedy=remedy)


def printable(text: str) -> str:
    """The text with control characters, which a terminal would obey, escaped, but for line ends and tabs."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1] for character in text
    )


def nearest(name: str, valid: Iterable[str]) -> str:
    """``did you mean 'x'? Valid: ...`` for a misspelt name. Names are not near by their suffix alone."""
    names = sorted(set(valid))
    return f"{near(name, names)}Valid: {', '.join(names) or 'none'}"


def near(name: str, valid: Sequence[str]) -> str:
    """``did you mean 'x'? `` for a misspelt name, or nothing: where the valid ones are named already."""
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    stems = [word.partition(".")[0] for word in (name, *close)]
    return f"did you mean '{close[0]}'? " if close and get_close_matches(stems[0], stems[1:]) else ""
