"""Tasks as a yardstick: the mean over tasks of what a model gets right beyond chance. Letters: I examples, U units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trainables.evaluation.once import Once
from trainables.evaluation.yardstick import Items, Score, Yardstick
from trainables.tasks.kinds import KINDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.evaluation.passes import Taking
    from trainables.tasks.config import Split
    from trainables.tasks.examples import Example
    from trainables.tasks.model import LanguageModel
    from trainables.tasks.prepared import Tasks
    from trainables.tasks.probes import Probed


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
        return suite_items(Asked.of_taking(taking))

    def measure(self, taking: Taking) -> Score:
        """That of the items, and the tasks' own metrics beside it."""
        return super().measure(taking).model_copy(update={"metrics": suite_metrics(Asked.of_taking(taking))})


class EmbeddingBag(Yardstick):
    """The control of probes: the same of tasks that are probed, read from the embedding's output alone, a bag of words
    without context."""

    name: ClassVar[str] = "embedding_bag"
    description: ClassVar[str] = "what of probed tasks the embeddings alone tell, beyond chance: a control"
    only_at_end: ClassVar[bool] = True
    chance: ClassVar[float | None] = 0.0

    def items(self, taking: Taking) -> Mapping[str, Items]:
        """By ``task/language``."""
        asked, found = Asked.of_taking(taking), dict[str, Items]()
        for name, entry in asked.tasks.manifest.tasks.items():
            if KINDS.find(entry.kind).learns:
                right = {language: own.bag_right_I for language, own in asked.probed(name).items()}
                found |= asked.items(name, right)
        return found


@dataclass(frozen=True)
class Asked:
    """A model, what it is asked, and what was found already."""

    model: LanguageModel
    tasks: Tasks
    split: Split
    most: Callable[[bool], int]
    """Examples of each task and language at most, by whether something is fitted to the task."""
    once: Once
    """For what does not depend on how the model scores the vocabulary."""

    @classmethod
    def of_taking(cls, taking: Taking) -> Asked:
        """By a study's yardstick."""
        from trainables.tasks.model import LanguageModel
        from trainables.tasks.prepared import Tasks

        assert not taking.learner.training
        held_out = taking.held_out
        assert held_out.tasks is not None, "a study that takes it has prepared its tasks"
        return cls(
            LanguageModel.of_taking(taking),
            Tasks(held_out.tasks),
            "dev" if held_out.split == "validation" else "test",
            lambda learned: held_out.config.most_task_items(final=held_out.final, learned=learned),
            taking.once,
        )

    def examples(self, name: str) -> dict[str, list[Example]]:
        """A task's, by language."""
        most = self.most(KINDS.find(self.tasks.manifest.tasks[name].kind).learns)

        def read() -> dict[str, list[Example]]:
            languages = self.tasks.languages(name)
            return {language: self.tasks.first(name, self.split, language, most) for language in languages}

        return self.once(("examples", name), read)

    def probed(self, name: str) -> Mapping[str, Probed]:
        """A task's probes, by language: what is fitted does not depend on the scorer."""
        from trainables.tasks.probes import probe_task

        return self.once(
            ("probes", name), lambda: probe_task(self.model, self.tasks, name, self.split, self.examples(name))
        )

    def items(self, name: str, right: Mapping[str, NDArray[np.float64]]) -> dict[str, Items]:
        """By ``task/language``, of what is right of each example by language, (I,)."""
        chance, examples = self.tasks.manifest.tasks[name].chance, self.examples(name)
        return {
            f"{name}/{language}": beyond_chance(name, chance[language], examples[language], right_I)
            for language, right_I in right.items()
        }


def suite_items(asked: Asked) -> dict[str, Items]:
    """By ``task/language`` what a model gets right beyond chance. Kinds that learn are probed."""
    found: dict[str, Items] = {}
    for name, entry in asked.tasks.manifest.tasks.items():
        kind = KINDS.find(entry.kind)()
        if kind.learns:
            right = {language: own.right_I for language, own in asked.probed(name).items()}
        else:
            right = {language: kind.answers(asked.model, own) for language, own in asked.examples(name).items()}
        found |= asked.items(name, right)
    return found


def suite_metrics(asked: Asked) -> dict[str, float]:
    """By ``task/language`` what the metrics of tasks' fields come to, of those that have another than accuracy."""
    from trainables.tasks.metrics import metric_of

    return {
        f"{name}/{language}": metric_of(entry, asked.examples(name)[language], own.told_K)
        for name, entry in asked.tasks.manifest.tasks.items()
        if entry.metric != "accuracy"
        for language, own in asked.probed(name).items()
    }


def beyond_chance(task: str, chance: float, examples: Sequence[Example], right_I: NDArray[np.float64]) -> Items:
    """Items whose ratio is (right - chance) / (1 - chance). An example weighs what it has to answer: a sentence its
    words, any other one. Those of one unit are an item."""
    import numpy as np

    number_I = np.array([_number(task, example.unit) for example in examples])
    weight_I = np.array([max(1.0, float(len(example.labels))) for example in examples])
    value_I = weight_I * (right_I - chance) / (1 - chance)
    item_U, place_I = np.unique(number_I, return_inverse=True)
    value_U, weight_U = (np.bincount(place_I, own_I, len(item_U)).astype(np.float64) for own_I in (value_I, weight_I))
    return Items(item_U, value_U, weight_U, is_common=True)


def _number(task: str, unit: str) -> int:
    """The same of a unit in all languages of a task, and of no other task's."""
    from trainables.hashing import checksum

    return int(checksum(f"{task}\0{unit}".encode())[:15], 16)
