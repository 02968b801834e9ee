"""Examples of tasks, prepared: a folder of Parquet files and their manifest, read without unpickling.

It lies at ``<store>/<digest>``: the digest is that of the manifest, which has those of the files.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from trainables.config import Amount, Config, Count, Number
from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.tasks.config import SPLITS, MetricName, Split, TaskConfig
from trainables.tasks.examples import Example, evenly
from trainables.tasks.metrics import metric_chance
from trainables.tasks.reading import Source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MANIFEST_NAME = "manifest.json"
DEV_OF = 5  # one of so many units is dev's where a task has no split of it
_SCHEMA = pa.schema(
    [
        pa.field("split", pa.string(), nullable=False),
        pa.field("language", pa.string(), nullable=False),
        pa.field("texts", pa.list_(pa.string()), nullable=False),
        pa.field("labels", pa.list_(pa.int32()), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
    ]
)


class TaskEntry(Config):
    """One task's."""

    kind: str
    transfer: str | None
    source: str
    licence: str
    classes: tuple[str, ...]
    """By number; empty of a kind without classes."""
    counts: Mapping[Split, Mapping[str, Count]]
    """How many examples each split has of each language."""
    chance: Mapping[str, Amount]
    """By language the share of the test split that an answer without a look gets right."""
    file: str
    checksum: str
    metric: MetricName = "accuracy"
    """What is shown beside the share that is right, where it is another."""
    positive: Count | None = None
    """The number of the class that the metric is of."""
    metric_chance: Mapping[str, Number] = {}
    """By language what one answer to all of the test split comes to, at most; empty of accuracy."""


class TasksManifest(Config):
    """What a folder of prepared tasks has."""

    tasks: Mapping[str, TaskEntry]


Parts = Mapping[tuple[Split, str], Sequence[Example]]
"""By split and language."""
_Texts = tuple[str, ...]


def prepare_tasks(
    tasks: Sequence[TaskConfig],
    store: Location,
    folder: str | None,
    languages: Sequence[str] | None,
    tokenizer: PreTrainedTokenizerFast | None,
) -> Location:
    """Read all tasks, of these languages alone if any are named, and write them into the store, where they are not
    there already. Raises InputError: something is wrong with one, or the tokenizer does not know a language of it."""
    entries, contents = {}, {}
    for task in tasks:
        source = Source(task, folder)
        own = [language for language in source.languages if languages is None or language in languages]
        if not own:
            raise InputError(
                f"the task {task.name} has none of the text's languages",
                where=f"task {task.name}: languages",
                why=f"it has {', '.join(source.languages)}; the text {', '.join(languages or ())}"[:400],
                remedy="leave out the task, or add text in one of its languages",
            )
        classes = source.classes()
        positive = source.positive(classes)
        parts = read_parts(source, own, classes)
        if tokenizer is not None:
            require_known(task.name, parts, tokenizer)
        content = _to_parquet(parts)
        contents[task.name] = content
        entries[task.name] = TaskEntry(
            kind=task.kind,
            transfer=task.transfer,
            source=task.source,
            licence=task.licence,
            classes=_first_names(classes),
            counts={
                split: {language: len(found) for (other, language), found in parts.items() if other == split}
                for split in dict.fromkeys(split for split, _ in parts)
            },
            chance={language: _chance(source, language, parts["test", language]) for language in own},
            file=f"{task.name}.parquet",
            checksum=checksum(content),
            metric=task.metric,
            positive=positive,
            metric_chance={}
            if task.metric == "accuracy"
            else {language: metric_chance(task.metric, parts["test", language], positive) for language in own},
        )
    # Without what is as it was before there were metrics, so that its digest is too.
    manifest = TasksManifest(tasks=entries).model_dump_json(exclude_defaults=True).encode()
    target = store / checksum(manifest)
    if not (target / MANIFEST_NAME).exists():
        for name, content in contents.items():
            (target / f"{name}.parquet").write_bytes(content)
        (target / MANIFEST_NAME).write_bytes(manifest)
    return target


def _chance(source: Source, language: str, examples: Sequence[Example]) -> float:
    """What an answer without a look gets right. Raises InputError if that is all: nothing is right beyond it."""
    chance = source.kind.chance(examples)
    if chance == 1.0:
        raise InputError(
            f"all examples of the task {source.task.name}'s '{language}' have one answer",
            where=f"task {source.task.name}: test",
            why=f"who always gives it gets all {len(examples)} right, so that they tell no model from another",
            remedy="a test split with several answers, or leave the language out of the task",
        )
    return chance


def _first_names(classes: Mapping[str, int]) -> tuple[str, ...]:
    """Of each class by its number."""
    found: dict[int, str] = {}
    for name, number in classes.items():
        found.setdefault(number, name)
    return tuple(found.values())


def read_parts(source: Source, languages: Sequence[str], classes: Mapping[str, int]) -> Parts:
    """All that a task has of the languages, each part in an order by chance that is always the same: by unit, so that
    the first of one language are translations of the first of another.

    What is asked is not learned: training examples with the texts of a dev or test example of the same language are
    left out, and dev examples with those of a test example. Raises InputError where that leaves none; of a dev split
    that was parted here all stay then, as another part would be no other.
    """
    task, found = source.task, dict[tuple[Split, str], list[Example]]()
    if source.kind.learns:
        for language in (task.transfer,) if task.transfer else languages:
            found["train", language] = _shuffled(source.examples("train", language, classes))
    for language in languages:
        test = _shuffled(source.examples("test", language, classes))
        if source.has("dev"):
            dev = _shuffled(source.examples("dev", language, classes))
        elif source.kind.learns and not task.transfer:
            found["train", language], dev = _parted(found["train", language])
        else:
            test, dev = _parted(test)
        found["dev", language], found["test", language] = dev, test
    asked = list(found.items())
    if task.transfer not in (None, *languages) and task.transfer in source.languages:
        # Its texts are what the other languages are asked, in translation.
        own: tuple[Split, ...] = ("dev", "test") if source.has("dev") else ("test",)
        asked += [((split, task.transfer), source.examples(split, task.transfer, classes)) for split in own]
    for split, language in found:
        if split != "test":
            later = SPLITS[SPLITS.index(split) + 1 :]
            known = {_plain(e) for (other, own), es in asked if own == language and other in later for e in es}
            kept = [example for example in found[split, language] if _plain(example) not in known]
            if not kept and (split == "train" or source.has("dev")):
                raise _nothing_else(source, split, language, len(found[split, language]))
            found[split, language] = kept or found[split, language]
    return found


def _nothing_else(source: Source, split: Split, language: str, examples: int) -> InputError:
    return InputError(
        f"the task {source.task.name} has no {split} example of '{language}' that it does not ask as well",
        where=f"task {source.task.name}: {split}",
        why=f"all {examples} have the texts of examples that models are chosen or tested on",
        remedy="other examples for each split",
    )


def _plain(example: Example) -> _Texts:
    """Its texts but for capitals and spaces."""
    return tuple(" ".join(text.casefold().split()) for text in example.texts)


def _parted(examples: list[Example]) -> tuple[list[Example], list[Example]]:
    """Most, and the dev split's, of other units: the same ones in every language. Of a single unit both have all.
    ``examples`` are in their order."""
    units = list(dict.fromkeys(example.unit for example in examples))
    if len(units) == 1:
        return examples, examples
    dev = {example.unit for example in examples if _order(example) % DEV_OF == 0} or {units[0]}
    if len(dev) == len(units):
        dev.remove(units[-1])
    return [e for e in examples if e.unit not in dev], [e for e in examples if e.unit in dev]


def _order(example: Example) -> int:
    return int(checksum(example.unit.encode())[:12], 16)


def _shuffled(examples: Sequence[Example]) -> list[Example]:
    return sorted(examples, key=lambda example: (_order(example), example))


def require_known(task: str, parts: Parts, tokenizer: PreTrainedTokenizerFast) -> None:
    """Raises InputError for a language of which more than half are unknown pieces."""
    from trainables.corpora.tokenizers import unknown_tokens

    is_unknown_V = unknown_tokens(tokenizer.backend_tokenizer)
    for (split, language), examples in parts.items():
        texts = [text for example in examples[:200] for text in example.texts]
        ids = [token for own in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in own]
        share = is_unknown_V[ids].mean() if ids else 0.0
        if share > 0.5:
            raise InputError(
                f"the tokenizer does not know the task {task}'s '{language}'",
                where=f"task {task}: languages",
                why=f"{share:.0%} of the pieces of its {split} split are unknown ones",
                remedy=f"a tokenizer trained on text in {language}, or leave the language out of the task",
            )


class Tasks:
    """Prepared tasks. Raises InputError: there are none in the folder, or a file is another than its manifest says."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self._tables: dict[str, pa.Table] = {}

    @cached_property
    def manifest(self) -> TasksManifest:
        """The folder's manifest. Raises InputError where it is not the one that the folder is named after."""
        content = self._read(MANIFEST_NAME)
        if checksum(content) != self.folder.name:
            raise self._damaged(MANIFEST_NAME, "its digest is not the folder's name")
        try:
            return TasksManifest.model_validate_json(content)
        except ValidationError as error:
            raise self._damaged(MANIFEST_NAME, str(error.errors()[0]["msg"])) from error

    def languages(self, task: str) -> tuple[str, ...]:
        """The languages that a task is tested in."""
        return tuple(self.manifest.tasks[task].chance)

    def examples(self, task: str, split: Split, language: str) -> list[Example]:
        """One part's, in its order."""
        table = self._table(task)
        own = table.filter((pc.field("split") == split) & (pc.field("language") == language))
        return [
            Example(tuple(row["texts"]), tuple(row["labels"]), row["unit"], row["group"]) for row in own.to_pylist()
        ]

    def first(self, task: str, split: Split, language: str, most: int) -> list[Example]:
        """At most so many of a part, the first of its order; of a task in parts as many of each."""
        found = self.examples(task, split, language)
        return [found[number] for number in evenly(found, most)]

    def _table(self, task: str) -> pa.Table:
        if task not in self._tables:
            entry = self.manifest.tasks[task]
            content = self._read(entry.file)
            if checksum(content) != entry.checksum:
                raise self._damaged(entry.file, "its digest is not the manifest's")
            self._tables[task] = pq.read_table(pa.BufferReader(content))
        return self._tables[task]

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError as error:
            raise self._damaged(name, "it is gone") from error

    def _damaged(self, name: str, why: str) -> InputError:
        return InputError(
            "prepared examples of tasks cannot be read",
            where=str(self.folder / name),
            why=why,
            remedy="remove the folder: it is prepared again from the tasks' own files",
        )


def _to_parquet(parts: Parts) -> bytes:
    rows = [(split, language, *example) for (split, language), examples in parts.items() for example in examples]
    buffer = io.BytesIO()
    pq.write_table(pa.table(list(zip(*rows, strict=True)), schema=_SCHEMA), buffer, compression="zstd")
    return buffer.getvalue()
