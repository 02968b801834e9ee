"""What a tracker is, and which there are."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple, Protocol, cast

from orchestrator.config.trackers import TrackerName
from orchestrator.reporting.track.projection import Run
from trainables.errors import InputError
from trainables.storage import Location


class TrackerError(Exception):
    """A tracker did not take what was given to it."""


class Tracker(Protocol):
    """A place that runs are shown in."""

    place: str
    """Where, for a person, with what shows it."""

    def put(self, run: Run) -> bool:
        """Make it show the run as it is now, and no other way: write what it lacks, replace what is not so any more.
        Whether there was anything to do. A run that it has as it is stays untouched, also when this is cut off and done
        again. Raises what :attr:`Library.failures` names."""


class _Opening(Protocol):
    def __call__(self, study: Location, at: str | None) -> Tracker: ...


class Library(NamedTuple):
    """A tracker's module here, and what it needs."""

    name: TrackerName
    open: _Opening
    """With the study's folder, and where to write: None is where the library itself has it."""
    failures: tuple[type[Exception], ...]
    """What it raises where it cannot take something."""


def library_of(name: TrackerName) -> Library:
    """A tracker by its name, which is its library's too. Raises InputError where that is not installed."""
    found = find_spec(name)
    if found is None or found.origin is None:  # a mere folder, such as the one that W&B writes to
        raise InputError(
            f"the library of the tracker {name} is not installed",
            where=f"--to {name}",
            remedy=f"pip install {name}   or all trackers:   pip install 'headtohead[trackers]'",
        )
    module: ModuleType = import_module(f"orchestrator.reporting.track.{name}")
    return Library(name, cast(_Opening, module.open_tracker), module.FAILURES)
