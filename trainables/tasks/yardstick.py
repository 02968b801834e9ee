"""Tasks as a yardstick: the mean over tasks of what a model gets right beyond chance. Letters: I examples, U units."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from trainables.evaluation.yardstick import Items, Yardstick

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.evaluation.passes import Taking
    from trainables.tasks.config import Split
    from trainables.tasks.examples import Example
    from trainables.tasks.model import LanguageModel
    from trainables.tasks.prepared import Tasks

Found = TypeVar("Found")


class Once(Protocol):
    """Finds what does not depend on how a model scores the vocabulary, and keeps it."""

    def __call__(self, key: Hashable, found: Callable[[], Found]) -> Found:
        """What is kept under the key; else found now."""
        ...


class TaskSuite(Yardstick):
    """Of each task and language (right - chance) / (1 - chance): 0 is what an answer without a look gets, 1 is all
    right. The mean over a task's languages, then over tasks.

    While searching it is taken on the tasks' dev splits, when confirming on their test splits.
    """

    name: ClassVar[str] = "tasks"
    description: ClassVar[str] = "what of downstream tasks is right beyond chance, in the mean over tasks"
    chance: ClassVar[float | None] = 0.0

    def items(self, taking: Taking) -> Mapping[str, Items]:
        """By ``task/language``; an item is an example with its translations."""
        from trainables.tasks.model import LanguageModel
        from trainables.tasks.prepared import Tasks

        assert not taking.learner.training
        held_out = taking.held_out
        assert held_out.tasks is not None, "a study that takes it has prepared its tasks"
        return suite_items(
            LanguageModel.of_taking(taking),
            Tasks(held_out.tasks),
            "dev" if held_out.split == "validation" else "test",
            held_out.config.most_task_items(final=held_out.final),
            taking.once,
        )


def suite_items(model: LanguageModel, tasks: Tasks, split: Split, most: int, once: Once) -> dict[str, Items]:
    """By ``task/language`` what a model gets right beyond chance, of so many examples each. Kinds that learn are
    probed: what is fitted does not depend on the scorer."""
    from trainables.tasks.kinds import KINDS
    from trainables.tasks.probes import probe_task

    found: dict[str, Items] = {}
    for name, entry in tasks.manifest.tasks.items():
        kind = KINDS.find(entry.kind)()
        examples = {language: tasks.first(name, split, language, most) for language in tasks.languages(name)}
        if kind.learns:
            probed = once(name, lambda: probe_task(model, tasks, name, split, examples))  # noqa: B023
            right = {language: own.right_I for language, own in probed.items()}
        else:
            right = {language: kind.answers(model, own) for language, own in examples.items()}
        for language, own in examples.items():
            found[f"{name}/{language}"] = beyond_chance(name, entry.chance[language], own, right[language])
    return found


def beyond_chance(task: str, chance: float, examples: Sequence[Example], right_I: NDArray[np.float64]) -> Items:
    """Items whose ratio is (right - chance) / (1 - chance). An example weighs what it has to answer: a sentence its
    words, any other one. Those of one unit are an item."""
    import numpy as np

    number_I = np.array([_number(task, example.unit) for example in examples])
    weight_I = np.array([max(1.0, float(len(example.labels))) for example in examples])
    value_I = weight_I * (right_I - chance) / (1 - chance) if chance < 1 else 0 * weight_I
    item_U, place_I = np.unique(number_I, return_inverse=True)
    value_U, weight_U = (np.bincount(place_I, own_I, len(item_U)).astype(np.float64) for own_I in (value_I, weight_I))
    return Items(item_U, value_U, weight_U, is_common=True)


def _number(task: str, unit: str) -> int:
    """The same of a unit in all languages of a task, and of no other task's."""
    from trainables.hashing import checksum

    return int(checksum(f"{task}\0{unit}".encode())[:15], 16)
