"""What several ask for, and one finds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

Found = TypeVar("Found")


class Once:
    """Finds for the first who asks, and keeps it for the others."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}

    def __call__(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """What is kept under the key; else what is found now."""
        if key not in self._kept:
            self._kept[key] = find()
        return cast(Found, self._kept[key])
