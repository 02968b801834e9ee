"""Examples of a task, as they are prepared: what its kind made of the rows of its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Example(NamedTuple):
    """One item. What texts and labels are, its kind says."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    unit: str
    """What it has in common with its translations, and they with no other."""
    group: str = ""
    """The part of the task that it is of; empty where it has no parts."""


def evenly(examples: Sequence[Example], most: int) -> list[int]:
    """Numbers of at most so many examples: as many of each group, the first of each; ascending."""
    if len(examples) <= most:
        return list(range(len(examples)))
    by_group: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        by_group.setdefault(example.group, []).append(number)
    turns = sorted((place, number) for own in by_group.values() for place, number in enumerate(own))
    return sorted(number for _, number in turns[:most])
