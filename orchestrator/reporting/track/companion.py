"""A study's own export: a process beside it, so that nothing that a tracker does or lacks can touch the study.

The process ends when its input does: when the study lets go of it, and when the study's process is gone, however it
went.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import cast

from orchestrator.config.trackers import TrackerName
from trainables.errors import InputError, printable
from trainables.storage import Location

LAST_SECONDS = 120.0
"""For so long a study that has ended waits for what is handed on last."""
_LONGEST = 300  # characters shown of why a tracker gave up
_NICE = 10


class Companion:
    """The process for one tracker; ``warn`` is told if it ends before it is let go of."""

    def __init__(self, folder: Location, name: TrackerName, warn: Callable[[str], None]) -> None:
        self._folder, self._name, self._warn = folder, name, warn
        self._told = TemporaryFile()  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, folder.uri, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._told,
            start_new_session=True,  # Ctrl-C is for the study
        )
        self._watch = threading.Thread(target=self._wait, daemon=True, name=f"tracker {name}")
        self._watch.start()

    def _wait(self) -> None:
        if code := self._process.wait():
            self._told.seek(0)
            lines = self._told.read().decode(errors="replace").strip().splitlines()
            why = printable(" ".join(lines[-4:]) or f"it ended with {code}")
            self._tell(why[:_LONGEST])

    def _tell(self, why: str) -> None:
        with suppress(InputError):  # the study itself says that nothing can be written any more
            self._warn(
                f"the tracker {self._name} gets no more of this study, which goes on: {why}; what is missing:  "
                f"h2h track {self._folder} --to {self._name}"
            )

    def let_go(self) -> None:
        """Let it hand on the rest, and end."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Until it has ended; then end it."""
        self._watch.join(seconds)
        if self._watch.is_alive():
            self._process.kill()
            self._watch.join()


@contextmanager
def companions(folder: Location, names: Sequence[TrackerName], warn: Callable[[str], None]) -> Iterator[None]:
    """While inside, what the study writes is handed on to its trackers."""
    started = []
    for name in names:
        try:
            started.append(Companion(folder, name, warn))
        except OSError as error:  # no memory, no processes
            warn(f"the tracker {name} gets nothing of this study, which goes on: {error}")
    try:
        yield
    finally:
        for companion in started:
            companion.let_go()
        for companion in started:
            companion.wait(LAST_SECONDS)


def _released(seconds: float) -> bool:
    """Whether the study let go of this process within so many seconds, or is gone."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable)


def main(words: Sequence[str]) -> int:
    """Follow the study in a folder for a tracker."""
    from orchestrator.reporting.track.exporting import follow
    from orchestrator.reporting.track.tracker import TrackerError

    folder, name = words
    os.nice(_NICE)
    try:
        follow(Location(folder), cast(TrackerName, name), until=_released)
    except (InputError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
