"""The terminal that a command speaks to, which may be closed, or be a pipe that nobody reads any more."""

from __future__ import annotations

from rich.console import Console


class StudyConsole(Console):
    """One that goes on in silence when what reads it has had enough: a study does not end by that."""

    def on_broken_pipe(self) -> None:
        """Rich would end the program."""
        self.quiet = True
