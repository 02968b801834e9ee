"""The keys of a person who watches: trials scroll, and ``q`` ends it."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from typing import Self

_NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "k": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "j": "down",
    "\x1b[5~": "page up",
    "b": "page up",
    "\x1b[6~": "page down",
    " ": "page down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "g": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "G": "end",
    "q": "quit",
}
_LONGEST = 64  # bytes read at once


class Scroll:
    """Where a list that is longer than its place on the screen is scrolled to."""

    def __init__(self, has_keys: bool = False) -> None:
        self.hint = ", arrow keys scroll" if has_keys else ", h2h watch scrolls"
        self.moved = False
        self._first, self._room, self._length = 0, 1, 0

    def show(self, room: int, length: int) -> int:
        """The first to be shown of so many, with ``room`` for some of them."""
        self._room, self._length, self.moved = room, length, False
        self._first = max(0, min(self._first, length - room))
        return self._first

    def press(self, key: str) -> None:
        """Take a key in."""
        steps = {"up": -1, "down": 1, "page up": -self._room, "page down": self._room}
        ends = {"home": 0, "end": self._length}
        if key in steps or key in ends:
            self._first, self.moved = max(0, ends.get(key, self._first + steps.get(key, 0))), True


class Keys:
    """The keys of the terminal that this process reads from, as they are pressed. Ctrl-C is what it always is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def here(cls) -> Self | None:
        """None where nobody can press any: no terminal, or one of which another process is in the foreground."""
        try:
            descriptor = sys.stdin.fileno()
            return cls(descriptor) if os.tcgetpgrp(descriptor) == os.getpgrp() else None
        except (OSError, ValueError, AttributeError):
            return None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def scrolled(self, scroll: Scroll, seconds: float) -> bool:
        """Wait so long for a key, and scroll by those that come; whether it is the one that ends."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0 and not scroll.moved:
            if not select.select([self._descriptor], [], [], rest)[0]:
                return False
            pressed = os.read(self._descriptor, _LONGEST)
            if not pressed:  # the terminal is gone
                return True
            for key in _keys(pressed.decode(errors="replace")):
                if key == "quit":
                    return True
                scroll.press(key)
        return False


def _keys(text: str) -> list[str]:
    """The names of the keys that are known, of what a terminal sent."""
    found, place = [], 0
    while place < len(text):
        sent = next((sent for sent in _NAMES if text.startswith(sent, place)), text[place])
        found += [_NAMES[sent]] if sent in _NAMES else []
        place += len(sent)
    return found
