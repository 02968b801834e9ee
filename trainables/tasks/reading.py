"""The examples of a task, read from where they lie: every mistake in them is found here, before anything is trained."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from trainables.corpora.config import SourceConfig
from trainables.corpora.reading.files import column_names, has_columns, read_records, sound_lines
from trainables.corpora.reading.hugging_face import open_data_set
from trainables.corpora.reading.lines import COMPRESSIONS, Line
from trainables.corpora.reading.reader import Malformed
from trainables.corpora.reading.wildcards import matching_files
from trainables.errors import InputError, nearest
from trainables.hashing import checksum
from trainables.storage import Location, is_here
from trainables.tasks.config import PlaceConfig, Split, TaskConfig, is_absolute
from trainables.tasks.examples import Example
from trainables.tasks.kinds import KINDS, Kind
from trainables.tasks.kinds.kind import UnusableError, half_of_a_character

_TABLES = {".tsv": "\t", ".csv": ","}
MOST_CLASSES = 1000


class _Row(NamedTuple):
    """A row of a file or data set, and where that is."""

    where: str
    columns: Mapping[str, Any]


class Source:
    """Where one task's examples are read from: the local place, where a folder is named, else the hub's.

    Raises InputError: the definition has neither, or an unknown kind.
    """

    def __init__(self, task: TaskConfig, folder: str | None) -> None:
        self.task, self._folder = task, folder
        self.kind: Kind = KINDS.find(task.kind, f"task {task.name}: kind")()
        place = task.local if task.is_local(folder) else task.hub
        if place is None:
            raise InputError(
                f"the task {task.name} is read from files, and no folder is named",
                where="tasks.folder",
                remedy="--set yardsticks.tasks.folder=FOLDER, which holds the files that the definition names",
            )
        self._place: PlaceConfig = place
        self._require_known_columns()
        if task.metric != "accuracy" and not (self.kind.learns and self.kind.has_labels):
            raise InputError(
                f"a task of the kind {self.kind.name} cannot have the metric {task.metric}",
                where=f"task {task.name}: metric",
                why="it is one of classes that are told, and of this kind an example is right or wrong",
                remedy="leave it out",
            )
        self.languages = place.languages or task.languages
        """The task's languages that this place has."""

    def _require_known_columns(self) -> None:
        """Raises InputError where a name under columns is none that is read: a mistyped one would be passed over."""
        own = (*self.kind.columns, *self.kind.optional)
        known = [*own, *(name for name in (self.task.cluster, self.task.group) if name is not None)]
        for name in (*self.task.columns, *self._place.columns):
            if name not in known:
                raise InputError(
                    f"an example of the kind {self.kind.name} has no '{name}'",
                    where=f"task {self.task.name}: columns",
                    why="columns says the file's names by the kind's own: {KIND'S: FILE'S}",
                    remedy=nearest(name, own),
                )
        mapped = {**self.task.columns, **self._place.columns}
        read = [self._column(name) for name in own if name in self.kind.columns or name in mapped]
        for column in read:
            if read.count(column) > 1:
                raise InputError(
                    f"the column '{column}' is read as two things",
                    where=f"task {self.task.name}: columns",
                    why=f"of an example of the kind {self.kind.name} each part has its own",
                    remedy="name another column for one of them",
                )

    def classes(self) -> dict[str, int]:
        """The number of each class, by each of its names in the column; empty where none are named, of a kind without
        classes."""
        labels = self._place.labels or self.task.labels
        if not self.kind.has_labels or labels:
            named = [label if isinstance(label, tuple) else (label,) for label in labels]
            return {str(name): number for number, names in enumerate(named) for name in names}
        column = self._column(self.kind.columns[-1])
        found: set[str] = set()
        for language in self._training_languages():
            for row in self._rows("train", language):
                values = self._value(row, column)
                own = values if isinstance(values, list) else [values]
                if any(value is None or value == "" or value != value for value in own):
                    raise InputError(
                        f"a row of the task {self.task.name} has no class",
                        where=row.where,
                        why=f"its column '{column}' is empty",
                        remedy="mend the row, or name the classes: labels: [NAME, ...]",
                    )
                found.update(map(str, own))
                if len(found) > MOST_CLASSES:
                    raise InputError(
                        f"the task {self.task.name} has more than {MOST_CLASSES} classes",
                        where=row.where,
                        why=f"the column '{column}' holds a different value nearly everywhere",
                        remedy="name the column of the classes: columns: {label: COLUMN}",
                    )
        if not found:
            raise self._empty("train", self._training_languages()[0])
        if len(found) < 2:
            raise InputError(
                f"the task {self.task.name} has one class: there is nothing to tell apart",
                where=self._pattern("train", self._training_languages()[0]),
                why=f"the column '{column}' holds {', '.join(found)[:60]} everywhere",
                remedy="name the column of the classes: columns: {label: COLUMN}",
            )
        return {label: number for number, label in enumerate(sorted(found))}

    def positive(self, classes: Mapping[str, int]) -> int | None:
        """The number of the class that the task's metric is of; None where it is of all. Raises InputError: there is
        no such class."""
        if self.task.positive is None:
            return None
        if (name := str(self.task.positive)) not in classes:
            raise InputError(
                f"the task {self.task.name} has no class '{name}'",
                where=f"task {self.task.name}: positive",
                why=f"its classes are {', '.join(classes)}"[:300],
                remedy=nearest(name, list(classes)),
            )
        return classes[name]

    def _training_languages(self) -> Sequence[str]:
        return (self.task.transfer,) if self.task.transfer else self.languages

    def has(self, split: Split) -> bool:
        """Whether the task has the split."""
        return split in (self._place.files or self._place.splits or ("train", "dev", "test"))

    def examples(self, split: Split, language: str, classes: Mapping[str, int]) -> list[Example]:
        """All of a split's examples of one language, in the order of the files. Raises InputError: there are none, or a
        row is none."""
        found = []
        for number, row in enumerate(self._rows(split, language)):
            own = {name: self._value(row, self._column(name)) for name in self.kind.columns}
            mapped = {**self.task.columns, **self._place.columns}
            for name in self.kind.optional:
                column = self._column(name)
                if name in mapped or row.columns.get(column) not in (None, ""):  # some rows may have more choices
                    own[name] = self._value(row, column)
            try:
                example = self.kind.example(own, self.task, language, classes)
            except UnusableError as error:
                raise InputError(
                    f"a row of the task {self.task.name} is no example",
                    where=row.where,
                    why=str(error),
                    remedy="mend the row, or the task's columns and labels",
                ) from error
            group = self._key(row, "group", self.task.group) if self.task.group else ""
            found.append(example._replace(unit=self._unit(row, number, split, language, example), group=group))
        if not found:
            raise self._empty(split, language)
        return found

    def _empty(self, split: Split, language: str) -> InputError:
        return InputError(
            f"the task {self.task.name} has no example of '{language}' in its {split} split",
            where=self._pattern(split, language),
            why="the files are empty",
            remedy="other files, or leave the language out of the task's languages",
        )

    def _unit(self, row: _Row, number: int, split: Split, language: str, example: Example) -> str:
        """What the example has in common with its translations; what is twice in a language is one unit."""
        if self.task.cluster is None:
            return f"{language} {checksum(chr(0).join(example.texts).encode())[:24]}"
        if self.task.cluster == "row":
            return f"{split} {number}"
        return self._key(row, "cluster", self.task.cluster)

    def _key(self, row: _Row, key: str, name: str) -> str:
        """What a column says that the definition names under ``cluster`` or ``group``. Raises InputError where it is
        not there, or empty: all such examples would be one."""
        value = self._value(row, self._column(name), f"the task's {key} is read from it")
        if value is None or value == "":
            raise InputError(
                f"a row of the task {self.task.name} has no {key}",
                where=row.where,
                why=f"its column '{self._column(name)}' is empty",
                remedy=f"mend the row, or leave out {key}",
            )
        return str(value)

    def _column(self, name: str) -> str:
        return self._place.columns.get(name, self.task.columns.get(name, name))

    def _value(self, row: _Row, column: str, why: str = "") -> Any:
        if column not in row.columns:
            raise InputError(
                f"the task {self.task.name} has no column '{column}'",
                where=row.where,
                why=why or f"an example of the kind {self.kind.name} needs it",
                remedy=nearest(column, [str(name) for name in row.columns]) + "; name it under columns",
            )
        value = row.columns[column]
        if half := half_of_a_character(value):
            raise InputError(
                f"a row of the task {self.task.name} has half of a character",
                where=row.where,
                why=f"in its column '{column}': {half!a:.60}",
                remedy="mend the row",
            )
        return value

    def _pattern(self, split: Split, language: str) -> str:
        named = (self._place.files or {}).get(split, self._place.dataset or "")
        patterns = (named,) if isinstance(named, str) else named
        return ", ".join(self._in_folder(pattern, language) for pattern in patterns)

    def _in_folder(self, pattern: str, language: str) -> str:
        pattern = pattern.replace("{language}", self._place.codes.get(language, language))
        return f"{self._folder.rstrip('/')}/{pattern}" if self._folder and not is_absolute(pattern) else pattern

    def _rows(self, split: Split, language: str) -> Iterator[_Row]:
        if self._place.files is None:
            yield from self._rows_of_data_set(split, language)
            return
        if split not in self._place.files:
            raise InputError(
                f"the task {self.task.name} has no {split} split",
                where=f"task {self.task.name}: files",
                why=f"a task of the kind {self.kind.name} needs it",
                remedy=f"files: {{{split}: PATH}}",
            )
        named = self._place.files[split]
        for pattern in (named,) if isinstance(named, str) else named:
            where = f"task {self.task.name}: files.{split}"
            base = f"{self._folder}, the folder that yardsticks.tasks or --data names" if self._folder else ""
            for name, _, _ in sorted(matching_files(self._in_folder(pattern, language), where, base)):
                yield from self._rows_of_file(Location(name))

    def _rows_of_file(self, file: Location) -> Iterator[_Row]:
        plain = file.name.lower()
        for compression in COMPRESSIONS:
            plain = plain.removesuffix(compression)
        suffix = "." + plain.rpartition(".")[2]
        if self._place.format == "conll" or suffix in (".conll", ".conllu"):
            yield from _sentences(file)
        elif suffix in _TABLES:
            yield from self._rows_of_table(file, _TABLES[suffix])
        else:
            for record in read_records(file, column_names(file) if has_columns(file) else ("text",)):
                if isinstance(record, Malformed):
                    raise record.error()
                yield _Row(f"{file}, {record.place}", record.columns)

    def _rows_of_table(self, file: Location, delimiter: str) -> Iterator[_Row]:
        """Fields of ``.tsv`` have no quotes, as in GLUE's; those of ``.csv`` may."""
        quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        rows = csv.reader((line.text for line in sound_lines(file)), delimiter=delimiter, quoting=quoting)
        header = self._place.header
        if header is not None:
            self._require_once(header, f"task {self.task.name}: header")
        try:
            for row in rows:
                where = f"{file}, line {rows.line_num}"
                if header is None:
                    header = tuple(row)
                    self._require_once(header, where)
                elif len(row) == len(header):
                    yield _Row(where, dict(zip(header, row, strict=True)))
                elif row:
                    raise InputError(
                        f"a line of {file.name} has {len(row)} fields",
                        where=where,
                        why=f"there are {len(header)} columns: {', '.join(header)}"[:300],
                        remedy="mend the line; for a file without a first line of names: header: [NAME, ...]",
                    )
        except csv.Error as error:
            what, where = f"a line of {file.name} cannot be cut into fields", f"{file}, line {rows.line_num}"
            remedy = "mend the line: is a quote open? Longer fields can be in .jsonl or .parquet"
            raise InputError(what, where=where, why=str(error), remedy=remedy) from error

    def _require_once(self, header: Sequence[str], where: str) -> None:
        """Raises InputError where two columns have a name that is read: one of them would be passed over."""
        named = (*self.kind.columns, *self.task.columns, *filter(None, [self.task.cluster, self.task.group]))
        for column in map(self._column, named):
            if header.count(column) > 1:
                raise InputError(
                    f"two columns are called '{column}'",
                    where=where,
                    why=f"the task {self.task.name} reads it",
                    remedy="give one another name",
                )

    def _rows_of_data_set(self, split: Split, language: str) -> Iterator[_Row]:
        place, where = self._place, f"task {self.task.name}"
        if not self.has(split):
            raise InputError(
                f"the task {self.task.name} has no {split} split",
                where=f"{where}: splits",
                why=f"a task of the kind {self.kind.name} needs it",
                remedy=f"splits: {{{split}: the data set's name of it}}",
            )
        code = place.codes.get(language, language)
        name = (place.dataset or "").replace("{language}", code)
        configs = (place.config,) if isinstance(place.config, str) or place.config is None else place.config
        for config in configs:
            source = SourceConfig(
                language=language,
                dataset=self._in_folder(name, language) if is_here(self._in_folder(name, language)) else name,
                config=None if config is None else config.replace("{language}", code),
                split=place.splits.get(split, split).replace("{language}", code),
                revision=place.revision,
                streaming=False,
            )
            for number, row in enumerate(open_data_set(source, where).rows, 1):
                yield _Row(f"{source.dataset}, split {source.split}, row {number}", row)


def _sentences(file: Location) -> Iterator[_Row]:
    """Of lines with a word and its tag, blank ones between sentences; of CoNLL-U its columns FORM and UPOS."""
    words: list[str] = []
    tags: list[str] = []
    begin = 1
    end_of_file = Line("\n", 0, None)
    for line in chain(sound_lines(file), [end_of_file]):
        fields = line.text.rstrip("\r\n").split("\t")
        if fields == [""]:
            if words:
                yield _Row(f"{file}, line {begin}", {"words": words, "tags": tags})
            words, tags, begin = [], [], (line.number or 0) + 1
        elif (len(fields) == 10 and not fields[0].isdigit()) or fields[0].startswith("# "):
            continue
        elif len(fields) in (2, 10):
            words.append(fields[0] if len(fields) == 2 else fields[1])
            tags.append(fields[1] if len(fields) == 2 else fields[3])
        else:
            raise InputError(
                f"a line of {file.name} is no word with its tag",
                where=f"{file}, {line.place}",
                why=f"it has {len(fields)} fields between tabs, of 2 (or CoNLL-U's 10)",
                remedy="mend the line",
            )
