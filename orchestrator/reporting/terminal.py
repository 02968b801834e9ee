"""The terminal that a dashboard is drawn on."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager

_LOCAL_MODES = 3
"""Where in ``termios``' list the local modes are."""


@contextmanager
def no_echo_of_keys(descriptor: int = 0) -> Iterator[None]:
    """Inside, the terminal does not write ``^C`` where Ctrl-C is pressed: it would shift what is drawn by a line.

    Args:
        descriptor: of the terminal; nothing is done to what is none, or is another process's foreground.
    """
    if not _is_ours(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    changed = [*before]
    changed[_LOCAL_MODES] &= ~termios.ECHOCTL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        if _is_ours(descriptor):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _is_ours(descriptor: int) -> bool:
    """Whether it is a terminal whose modes this process may set: one in the background is stopped for it."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # no terminal, or another session's
        return False
