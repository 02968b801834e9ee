"""A study that runs, live in the output of a notebook's cell."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from orchestrator.config.folder import STUDY_FILE
from orchestrator.reporting.listening import Stage
from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from orchestrator.reporting.serve.feed import Feed

LOOK_SECONDS = 1.0
"""Between two looks at the ledger."""


def in_notebook() -> bool:
    """Whether this process is a notebook's, which shows HTML."""
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return hasattr(shell, "kernel")


class LiveDisplay:
    """A study in the output of a notebook's cell, as its live page shows it, until it is closed. Elsewhere nothing."""

    def __init__(self, folder: Location) -> None:
        self.stage = Stage()
        self._folder, self._ended = folder, threading.Event()
        self._shown = ""
        self._handle: Any = None
        self._thread: threading.Thread | None = None
        if in_notebook():
            from IPython.display import HTML, display

            # Ray and others ask for widgets, for progress bars of their own that are not shown.
            warnings.filterwarnings("ignore", message="IProgress not found")
            logging.getLogger("ray.widgets").setLevel(logging.WARNING)
            self._html = HTML
            self._handle = display(HTML(""), display_id=True)
            self._thread = threading.Thread(target=self._follow, name="display", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self) -> None:
        from orchestrator.reporting.serve.feed import Feed

        feed, ended = Feed(self._folder), False
        while not ended:
            ended = self._ended.wait(LOOK_SECONDS)
            with suppress(InputError, OSError):  # the study itself says so
                self._show(self._drawn(feed))

    def _drawn(self, feed: Feed) -> str:
        from orchestrator.reporting.page.page import render

        if not (self._folder / STUDY_FILE).exists():
            return render("titled.html", title=self._folder.name, question="", said=f"{self.stage.text} ...")
        feed.read()
        view = feed.view()
        running = any(trial.runs for trial in feed.history.trials.values())
        said = "" if running or feed.resting or not self.stage.text else f"{self.stage.text} ..."
        title = render("titled.html", title=self._folder.name, question="", said=said)
        return title + view.now + view.answer

    def _show(self, body: str) -> None:
        from orchestrator.reporting.notebook import framed

        if body != self._shown:
            self._shown = body
            self._handle.update(self._html(framed(body)))
