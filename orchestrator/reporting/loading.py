"""What a command says before it has loaded what could say it better: plain lines, made with the standard library."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STILL_SECONDS = 8.0
"""Between two lines."""


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Say at once what is done, and go on saying so: on a new machine, first imports take a while."""
    done, began = threading.Event(), time.monotonic()
    print(f"h2h: {what} ...", file=sys.stderr, flush=True)

    def repeat() -> None:
        while not done.wait(STILL_SECONDS):
            seconds = time.monotonic() - began
            print(f"h2h: still {what} ({seconds:.0f} s) ...", file=sys.stderr, flush=True)

    threading.Thread(target=repeat, daemon=True).start()
    try:
        yield
    finally:
        done.set()
