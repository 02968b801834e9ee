"""What there is: shipped studies, shapes, objectives, search spaces, yardsticks, formats and grammars."""

from collections.abc import Iterable, Iterator
from typing import Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from orchestrator import formatting
from orchestrator.config.files import load_study, study_names
from orchestrator.config.task_files import load_suite, load_task, suite_names, task_names
from orchestrator.config.yaml_text import parse_yaml
from orchestrator.reporting.table import Align, Table, on_terminal
from search_spaces import Space, space_names, space_path
from trainables.config import Config
from trainables.corpora.grammar import LANGUAGES
from trainables.corpora.reading.files import readers
from trainables.evaluation import YARDSTICKS
from trainables.models.config import SHAPES, Task
from trainables.objectives import OBJECTIVES
from trainables.tasks.kinds import KINDS, Kind

_FAMILIES: dict[Task, str] = {"masked": "encoder", "causal": "decoder"}


class Entry(Config):
    """One thing, by its name."""

    name: str
    description: str


class Shape(Config):
    """A model's, by its name."""

    name: str
    family: str
    layers: int
    hidden_size: int
    parameters: int
    """Without embeddings and head."""


class Catalogue(Config):
    """What a study can be made of: everything shipped, and what other packages bring."""

    format: Literal["headtohead.catalogue/1"] = "headtohead.catalogue/1"
    studies: tuple[Entry, ...]
    objectives: tuple[Entry, ...]
    spaces: tuple[Entry, ...]
    yardsticks: tuple[Entry, ...]
    tasks: tuple[Entry, ...]
    kinds: tuple[Entry, ...]
    """Of tasks."""
    shapes: tuple[Shape, ...]
    text: tuple[Entry, ...]
    """Where it comes from."""


def catalogue() -> Catalogue:
    """What there is."""
    yardsticks = ((y.name, y.description + ("" if y.higher_is_better else "; lower is better")) for y in YARDSTICKS)
    return Catalogue(
        studies=_entries((name, load_study(name).question) for name in study_names()),
        objectives=_entries(_objectives()),
        spaces=_entries(_spaces()),
        yardsticks=_entries(yardsticks),
        tasks=_entries(_tasks()),
        kinds=_entries((k.name, f"{k.description}; columns: {_columns(k)}") for k in KINDS),
        shapes=tuple(_shapes()),
        text=_entries(_sources()),
    )


def _columns(kind: type[Kind]) -> str:
    optional = f", and if it has them {', '.join(kind.optional)}" if kind.optional else ""
    return ", ".join(kind.columns) + optional


def show_catalogue(found: Catalogue) -> RenderableType:
    """All of it, by name."""
    return Group(
        _titled("Studies", "h2h run NAME", _pairs(found.studies)),
        _titled("Objectives", "arms.ARM.objective", _pairs(found.objectives)),
        _titled("Search spaces", "arms.ARM.space", _pairs(found.spaces)),
        _titled("Yardsticks", "yardsticks.primary, yardsticks.others", _pairs(found.yardsticks)),
        _titled("Tasks", "yardsticks.tasks.suite", _pairs(found.tasks)),
        _titled("Kinds of tasks", "kind, in a task's file", _pairs(found.kinds)),
        _titled("Shapes", "model.shape", _shapes_table(found.shapes)),
        _titled("Text", "corpora.sources", _pairs(found.text)),
    )


def _entries(items: Iterable[tuple[str, str]]) -> tuple[Entry, ...]:
    return tuple(Entry(name=name, description=description) for name, description in items)


def _titled(title: str, key: str, content: RenderableType) -> RenderableType:
    return Group(Text.assemble((title, "bold"), "  ", (key, "dim")), Padding(content, (0, 0, 1, 2)))


def _pairs(items: Iterable[Entry]) -> Grid:
    grid = Grid.grid(Column(style="cyan", no_wrap=True), "", padding=(0, 2))
    for item in items:
        grid.add_row(Text(item.name), Text(item.description))
    return grid


def _objectives() -> Iterator[tuple[str, str]]:
    for objective in OBJECTIVES:
        task = "masked tokens, an encoder" if objective.task == "masked" else "the next token, a decoder"
        kind = "headless" if objective.headless else "vocabulary head"
        options = ", ".join(objective.Options.model_fields)
        yield objective.name, f"{task}; {kind}" + (f"; options: {options}" if options else "")


def _spaces() -> Iterator[tuple[str, str]]:
    for name in space_names():
        space = Space.model_validate(parse_yaml(space_path(name).read_bytes(), name))
        yield name, ", ".join(space.dimensions)


def _tasks() -> Iterator[tuple[str, str]]:
    for name in suite_names():
        suite = load_suite(name)
        yield f"{name} (suite)", f"{suite.description}: {', '.join(suite.tasks)}"
    for name in task_names():
        yield name, load_task(name, "").description


def _sources() -> Iterator[tuple[str, str]]:
    yield "files", ", ".join(readers())
    yield "dataset", "a Hugging Face data set, from the hub or a folder"
    yield "grammar", ", ".join(LANGUAGES)


def _shapes() -> Iterator[Shape]:
    for name, kinds in SHAPES.items():
        shape, family = next(iter(kinds.values())), " or ".join(_FAMILIES[task] for task in kinds)
        yield Shape(
            name=name,
            family=family,
            layers=shape.layers,
            hidden_size=shape.hidden_size,
            parameters=int(shape.parameters),
        )


def _shapes_table(shapes: Iterable[Shape]) -> RenderableType:
    rows = [
        [one.name, one.family, str(one.layers), str(one.hidden_size), formatting.quantity(one.parameters, "").strip()]
        for one in shapes
    ]
    titles = ("name", "family", "layers", "hidden", "parameters*")
    aligned: tuple[Align, ...] = ("left", "left", "right", "right", "right")
    return on_terminal(Table.of(titles, rows, aligned, ["* without embeddings and head"]))
