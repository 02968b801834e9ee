"""A task as a YAML file defines it: what its examples are, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from trainables.config import Amount, Config, Key, Positive, Several
from trainables.errors import InputError, nearest

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
MetricName = Literal["accuracy", "matthews", "f1", "macro_f1"]
ClassNames = str | int | tuple[str | int, ...]
"""As a column has a class; several where files differ: ``[entailment, 0]``."""


def is_absolute(path: str) -> bool:
    """Whether it is a URI, or begins at the root or a home folder."""
    return "://" in path or path.startswith(("/", "~"))


class PlaceConfig(Config):
    """Where examples lie: in ``files``, or a Hugging Face ``dataset``. ``{language}`` stands for a language's code, in
    paths, the configuration and splits."""

    files: Mapping[Split, str | tuple[str, ...]] | None = None
    """Paths or URIs by split, with wildcards: relative ones of the tasks' folder, or the definition's own. ``.jsonl``,
    ``.parquet``, ``.tsv``, ``.csv``, and ``.conll``: a word and its tag on a line, blank lines between sentences."""
    dataset: str | None = None
    """A Hugging Face data set: its name on the hub, or a local folder."""
    config: str | tuple[str, ...] | None = None
    """The data set's configuration, or several, whose examples are joined."""
    splits: Mapping[Split, str] = {}
    """The data set's split for each of ours: ``{test: validation}``. Left out: they are called as here."""
    revision: str | None = None
    """The data set's revision on the hub."""
    format: Literal["conll"] | None = None
    """Of files whose suffix does not say it."""
    header: tuple[str, ...] | None = None
    """The columns of ``.tsv`` and ``.csv`` files that do not name them in their first line."""
    columns: Mapping[str, str] = {}
    """Where columns have other names than the task says."""
    labels: tuple[ClassNames, ...] = ()
    """Where classes have other names than the task says, in its order."""
    languages: tuple[Key, ...] = ()
    """Which of the task's languages are here; left out: all."""
    codes: Mapping[str, str] = {}
    """Languages that have another code here: ``{en: eng_Latn}``."""

    def in_folder(self, split: Split, folder: str | None) -> tuple[str, ...]:
        """The split's patterns; relative ones in the folder, if any is named."""
        named = (self.files or {}).get(split, ())
        patterns = (named,) if isinstance(named, str) else named
        return tuple(
            f"{folder.rstrip('/')}/{pattern}" if folder and not is_absolute(pattern) else pattern
            for pattern in patterns
        )

    def beside(self, folder: str, languages: Sequence[str]) -> PlaceConfig:
        """The same in a folder, where paths are relative; a data set is where it has a folder of any language."""
        if self.files is not None:
            return self.model_copy(update={"files": {split: self.in_folder(split, folder) for split in self.files}})
        from trainables.storage import is_here  # with pyarrow, which definitions do not need

        own = f"{folder.rstrip('/')}/{self.dataset}"
        codes = (self.codes.get(language, language) for language in languages)
        is_there = any(is_here(own.replace("{language}", code)) for code in codes)
        return self.model_copy(update={"dataset": own}) if is_there else self

    @property
    def needs_folder(self) -> bool:
        """Whether a path is relative."""
        patterns = (pattern for split in self.files or {} for pattern in self.in_folder(split, None))
        return not all(map(is_absolute, patterns))

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.files is None) == (self.dataset is None):
            raise ValueError("set exactly one of files and dataset")
        return self


class TaskConfig(Config):
    """A task: a kind of example, the columns that hold one, and where they lie."""

    name: Key
    """As a study names it."""
    description: str = ""
    """What it asks, in a line."""
    kind: str
    """What an example is: ``h2h list`` names the kinds."""
    languages: tuple[Key, ...] = Field(min_length=1)
    """Codes of the languages that it has."""
    columns: Mapping[str, str] = {}
    """By the kind's own names the columns that hold an example, where they are called otherwise."""
    labels: tuple[ClassNames, ...] = ()
    """Classes as the column has them; left out: of a kind with classes all of the training split, sorted."""
    metric: MetricName = "accuracy"
    """What the field says of a kind with classes, beside the share that is right: Matthews correlation, the F1 of the
    class ``positive``, or the mean of all classes' F1."""
    positive: str | int | None = None
    """The class whose F1 is the metric ``f1``."""
    connectors: Mapping[str, Mapping[str, str]] = {}
    """By language and the value of the column ``connector``: what joins a context with a choice."""
    cluster: str | None = None
    """The column whose value an item and its translations share; ``row``: its place in the file. Left out: each is
    alone."""
    group: str | None = None
    """The column of a task's parts, as BLiMP's paradigms: of a subsample there are as many examples of each."""
    transfer: Key | None = None
    """The language whose training examples serve all others: zero-shot transfer. Left out: each has its own."""
    local: PlaceConfig | None = None
    """Where examples lie in the folder that a study names in ``tasks.folder``."""
    hub: PlaceConfig | None = None
    """Where they lie otherwise."""
    source: str = ""
    """Who made it, and where that is told."""
    licence: str = ""
    """On what terms."""

    def is_local(self, folder: str | None) -> bool:
        """Whether examples are read from files, where shipped tasks' files lie in this folder, if any is named."""
        return self.local is not None and (folder is not None or not self.local.needs_folder)

    def beside(self, folder: str) -> TaskConfig:
        """The same with files, and folders of data sets, that lie in a folder, where their paths are relative."""
        local, hub = (place and place.beside(folder, self.languages) for place in (self.local, self.hub))
        return self.model_copy(update={"local": local, "hub": hub})

    @model_validator(mode="after")
    def _languages_once(self) -> Self:
        twice = [language for language in self.languages if self.languages.count(language) > 1]
        if twice:
            why = "each is asked once"
            raise InputError(f"the language '{twice[0]}' is named twice", where="languages", why=why, remedy="once")
        for name, place in (("local", self.local), ("hub", self.hub)):
            keys = {"languages": place.languages, "codes": tuple(place.codes)} if place else {}
            for key, own in keys.items():
                for unknown in sorted(set(own) - {*self.languages, *filter(None, [self.transfer])}):
                    raise InputError(
                        f"'{unknown}' is no language of the task",
                        where=f"{name}.{key}",
                        why="a place says of the task's own languages which are there, and under what code",
                        remedy=nearest(unknown, self.languages),
                    )
        return self

    @model_validator(mode="after")
    def _classes_once(self) -> Self:
        places = (("local.labels", self.local and self.local.labels), ("hub.labels", self.hub and self.hub.labels))
        for where, labels in (("labels", self.labels), *places):
            names = [str(name) for own in labels or () for name in (own if isinstance(own, tuple) else (own,))]
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise InputError(
                    f"the class '{twice[0]}' is named twice",
                    where=where,
                    why="of each name one class is known; other names of one class are a list: [[yes, 1], [no, 0]]",
                    remedy="leave one of the two out",
                )
        return self

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.local is None and self.hub is None:
            raise ValueError("it has neither local nor hub: where do its examples lie?")
        return self

    @field_validator("metric", mode="before")
    @classmethod
    def _known(cls, metric: object) -> object:
        if isinstance(metric, str) and metric not in get_args(MetricName):
            raise InputError(f"unknown metric '{metric}'", remedy=nearest(metric, get_args(MetricName)))
        return metric

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if self.metric == "f1" and self.positive is None:
            why = "it is the F1 of one class"
            raise InputError("the metric f1 has no class", where="positive", why=why, remedy="positive: CLASS")
        if self.metric != "f1" and self.positive is not None:
            why = f"the metric {self.metric} is of all classes"
            raise InputError("a class is named that nothing is of", where="positive", why=why, remedy="metric: f1")
        return self


Pooling = Literal["mean", "first"]


class FineTuningConfig(Config):
    """How models are fine-tuned: the same for all arms but for the learning rate, which an arm's search models choose
    for each task. It is billed apart from pretraining."""

    learning_rates: tuple[Positive, ...] = Field((1e-4, 3e-4, 1e-3), min_length=1)
    """Peak rates to choose from, ascending: by an arm's search models, on a task's dev split; frozen afterwards."""
    seeds: Several = 3
    """Fine-tunings of each pretrained model and task. Their mean is one number: pretraining seeds are what counts."""
    steps: int = Field(300, ge=1, le=10**6)
    """Optimiser steps, however many examples there are."""
    batch_examples: int = Field(32, ge=1, le=10**5)
    """Examples a step."""
    sequence_tokens: int = Field(128, ge=8)
    """Of an example at most, or as many as the model takes: of longer texts the end is cut off."""
    warmup: float = Field(0.1, ge=0, lt=1)
    """Share of the steps over which the learning rate rises; it then falls linearly to 0."""
    weight_decay: float = Field(0.01, ge=0)
    """AdamW's; matrices only, not biases and norms."""
    clip_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm."""
    pooling: Pooling = "mean"
    """What of an encoder's last hidden states is classified: their mean, or the first one, which pretraining here does
    not teach to stand for a text. A decoder's is the last."""
    together: bool = False
    """Whether a task that has training examples in several languages is learned in all of them by one model; else each
    language has its own. Not of a task with `transfer`."""
    share: Amount = 0.5
    """Of a model's pretraining FLOPs: what all its fine-tunings may take at most."""

    @field_validator("learning_rates")
    @classmethod
    def _ascending(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if list(rates) != sorted(set(rates)):
            raise ValueError("must ascend, each rate once")
        return rates

    @property
    def warmup_steps(self) -> int:
        """Over which the learning rate rises."""
        return round(self.warmup * self.steps)
