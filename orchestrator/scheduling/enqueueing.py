"""A configuration of one's own in a search: how it is asked for, and how the search takes it up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from orchestrator import formatting
from orchestrator.config.chosen import chosen_configuration
from orchestrator.config.files import open_frozen
from orchestrator.config.folder import LEDGER
from orchestrator.ledger.history import History, read_history
from orchestrator.ledger.records import AttemptOutcome, EnqueuedRecord, MeasureRecord
from orchestrator.ledger.requests import Inbox, Request, put
from orchestrator.ledger.trials import TrialHistory
from orchestrator.scheduling.trials import PlannedTrial
from search_spaces import Configuration
from trainables.config import Config
from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from orchestrator.config.study import StudySpec
    from orchestrator.scheduling.search import SearchPhase


class Enqueued(Config):
    """A configuration that an arm's search is to try."""

    format: Literal["headtohead.enqueued/1"] = "headtohead.enqueued/1"
    arm: str
    configuration: Configuration
    filled: tuple[str, ...]
    """Settings that were not given: they are as in the arm's first configuration."""
    taken_up: Literal["searching", "resumed", "extended"]
    """When: at the next report of a trial, if the study runs; when it is resumed; when its search is extended."""
    command: str
    """What to type where the study does not run."""

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={formatting.exact(value)}" for name, value in self.configuration.items())
        when = {
            "searching": f"if the study runs it takes this up with the next report of a trial; else:  {self.command}",
            "resumed": f"the study was stopped; it takes this up by:  {self.command}",
            "extended": f"the search has ended; when the study is finished, this takes it up:  {self.command}",
        }
        filled = f"as in the arm's first configuration: {', '.join(self.filled)}\n" if self.filled else ""
        return f"{self.arm} is to try {settings}\n{filled}{when[self.taken_up]}"


def enqueue(folder: Location, arm: str, given: Mapping[str, object]) -> Enqueued:
    """Ask the search of the study in a folder to try a configuration. Raises InputError: the study has not begun or
    searches nothing, or the configuration is none of the arm's search space."""
    spec, history = open_frozen(folder), read_history(folder / LEDGER)
    if not spec.search.budget_per_arm:
        raise InputError(
            "the study searches nothing",
            where=f"{folder}: search.budget_per_arm",
            why="its arms are confirmed as they are written",
            remedy="a study of its own with the settings in arms.NAME.options or arms.NAME.training",
        )
    configuration = chosen_configuration(spec, arm, given)
    put(folder, Request(arm=arm, configuration=configuration))
    filled = tuple(name for name in configuration if name not in given)
    if history.phases.get("search") == "end":
        more = f"h2h extend {folder} --set search.budget_per_arm={spec.search.budget_per_arm + 1:.12g}"
        return Enqueued(arm=arm, configuration=configuration, filled=filled, taken_up="extended", command=more)
    when: Literal["searching", "resumed"] = "resumed" if history.stop == "end" else "searching"
    return Enqueued(arm=arm, configuration=configuration, filled=filled, taken_up=when, command=f"h2h resume {folder}")


class TakesUpRequests:
    """A search that also tries what people ask for while it goes on: each is the next new trial of its arm.

    What was asked for is recorded, and then the search goes through its ledger again: so it is the same search whether
    it was cut off after that record or not.

    Args:
        search: it.
        inbox: of its study.
        spec: of the study.
        history: which knows at once what is written.
        write: to the ledger.
        say: tells a person of a request that is refused.
    """

    def __init__(
        self,
        search: SearchPhase,
        inbox: Inbox,
        spec: StudySpec,
        history: History,
        write: Callable[[EnqueuedRecord], None],
        say: Callable[[str], None],
    ) -> None:
        self._search, self._inbox, self._spec, self._history = search, inbox, spec, history
        self._write, self._say = write, say
        self.decisions, self.ended_early = search.decisions, search.ended_early

    def next(self) -> PlannedTrial | None:
        """The next trial; None while there is none to start now."""
        self._take_up()
        return self._search.next()

    def exhausted(self) -> bool:
        """Whether nothing is left to start."""
        self._take_up()
        return self._search.exhausted()

    def prunes(self, trial: TrialHistory, measure: MeasureRecord) -> bool:
        """Whether a trial ends at this report."""
        self._take_up()
        return self._search.prunes(trial, measure)

    def ended(self, trial: TrialHistory, outcome: AttemptOutcome) -> None:
        """An attempt has ended."""
        self._take_up()
        self._search.ended(trial, outcome)

    def _take_up(self) -> None:
        before = len(self._history.requests)
        for name, request in self._inbox.take():
            if name not in self._history.requests:
                self._record(name, request)
            self._inbox.settle(name)
        if len(self._history.requests) > before:
            self._search.go_through()

    def _record(self, name: str, request: Request | None) -> None:
        try:
            if request is None:
                raise InputError("it is no request", remedy="h2h enqueue writes them")
            configuration = chosen_configuration(self._spec, request.arm, request.configuration)
        except InputError as error:
            self._say(f"what {name} asks to try is refused: {error.what}")
            return
        first = len(self._spec.arms[request.arm].search_space.first)
        number = max(first, self._history.next_number(request.arm))
        self._write(EnqueuedRecord(arm=request.arm, number=number, configuration=configuration, request=name))
