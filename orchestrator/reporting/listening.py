"""Reading a ledger beside what is drawn: a storage that does not answer ends nothing, and a person is told."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from textwrap import shorten
from typing import TypeVar

from orchestrator.ledger.records import Record
from orchestrator.ledger.segments import LedgerReader
from orchestrator.reporting.log_lines import clock
from trainables.object_store import REQUEST_SECONDS, Patience

_Read = TypeVar("_Read")

ANSWER_SECONDS = 3.0  # a storage that has not answered for so long is said not to
WHY_WIDTH = 120  # columns; clients tell all that they tried


class Stage:
    """What is done before there is anything in the ledger, or beside it: set by the study, read by the dashboard."""

    def __init__(self, what: str = "", *, until_begun: bool = False) -> None:
        self.what, self.how_far = what, ""
        self._until_begun = until_begun

    def say(self, what: str, how_far: str = "") -> None:
        """Take in what is done now."""
        self.what, self.how_far = what, how_far

    def begun(self) -> None:
        """The study has begun: what was waited for is over."""
        if self._until_begun:
            self.say("")

    @property
    def text(self) -> str:
        """Both, in a line."""
        return " ".join(filter(None, [self.what, self.how_far]))


class Silence:
    """A storage that does not answer for a while ends nothing; a person is told."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._why = ""

    def heard(self, read: Callable[[], list[_Read]]) -> list[_Read]:
        """What there is to read; nothing while there is no answer. Raises OSError where it is refused."""
        try:
            found = read()
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            self._since, self._why = self._since or time.time(), str(error)
            return []
        self._since = None
        return found

    def __str__(self) -> str:
        if self._since is None:
            return ""
        return f"the storage has not answered since {clock(self._since)}, and is asked again: {self._why}"


class Listening:
    """Asks for what is new in a ledger, in a thread of its own: where a server takes a question and says nothing, that
    takes half a minute.

    Args:
        reader: of the ledger.
        patience: seconds for which the study that this process leads waits for its storage; None: it leads none.
    """

    def __init__(self, reader: LedgerReader, patience: float | None = None) -> None:
        self._reader, self._patience = reader, patience
        self._pool = ThreadPoolExecutor(1, "listening", initializer=_be_brief)
        self._answer: Future[list[Record]] | None = None
        self._asked = 0.0
        self._since: float | None = None
        self._why = ""

    def heard(self, seconds: float = ANSWER_SECONDS) -> list[Record]:
        """What there is to read; nothing while there is no answer. Waits so many ``seconds`` for it. Raises OSError
        where it is refused, InputError where the ledger is damaged."""
        if self._answer is None:
            self._asked, self._answer = time.time(), self._pool.submit(self._reader.poll)
        wait([self._answer], seconds)
        if not self._answer.done():
            self._since = self._since or self._asked
            return []
        answer, self._answer = self._answer, None
        try:
            found = answer.result()
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            self._since, self._why = self._since or self._asked, f": {shorten(str(error), WHY_WIDTH)}"
            return []
        self._since, self._why = None, ""
        return found

    def last(self) -> list[Record]:
        """What there is to read by now, unless there is no answer within moments."""
        under_way = self.heard(REQUEST_SECONDS) if self._answer is not None else []
        return under_way if self._answer is not None else under_way + self.heard(REQUEST_SECONDS)

    def now(self) -> float:
        """The time, seconds since the epoch."""
        return time.time()

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def silence(self) -> str:
        """That the storage does not answer, and what comes of that; empty while it does."""
        if self._since is None:
            return ""
        goes_on = "and is asked again"
        if self._patience is not None:
            until = clock(self._since + self._patience)
            goes_on = f"and is waited for until {until} at least; then the study stops, and h2h resume goes on with it"
        return f"the storage has not answered since {clock(self._since)}, {goes_on}{self._why}"


def _be_brief() -> None:
    Patience.of_this_thread.set(REQUEST_SECONDS)
