"""Kinds of tasks, by name. A new one is a file, and a line here or an entry point of another package."""

from trainables.config import Registry
from trainables.tasks.kinds.blank import Blank
from trainables.tasks.kinds.choice import Choice
from trainables.tasks.kinds.classify import Classify
from trainables.tasks.kinds.cloze import Cloze
from trainables.tasks.kinds.kind import Kind
from trainables.tasks.kinds.minimal_pairs import MinimalPairs
from trainables.tasks.kinds.tag import Tag

KINDS: Registry[Kind] = Registry(
    "kind of task",
    "headtohead.tasks",
    Kind,  # type: ignore[type-abstract]
    (MinimalPairs, Cloze, Choice, Blank, Classify, Tag),
)

__all__ = ["KINDS", "Kind"]
