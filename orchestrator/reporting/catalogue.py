"""What there is: shipped studies, shapes, objectives, search spaces, yardsticks, formats and grammars."""

from collections.abc import Iterable, Iterator

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
from trainables.corpora.grammar import LANGUAGES
from trainables.corpora.reading.files import readers
from trainables.evaluation import YARDSTICKS
from trainables.models.config import SHAPES, Task
from trainables.objectives import OBJECTIVES
from trainables.tasks.kinds import KINDS

_FAMILIES: dict[Task, str] = {"masked": "encoder", "causal": "decoder"}


def catalogue() -> RenderableType:
    """What a study can be made of: everything shipped, by name."""
    yardsticks = ((y.name, y.description + ("" if y.higher_is_better else "; lower is better")) for y in YARDSTICKS)
    return Group(
        _titled("Studies", "h2h run NAME", _pairs((name, load_study(name).question) for name in study_names())),
        _titled("Objectives", "arms.ARM.objective", _pairs(_objectives())),
        _titled("Search spaces", "arms.ARM.space", _pairs(_spaces())),
        _titled("Yardsticks", "yardsticks.primary, yardsticks.others", _pairs(yardsticks)),
        _titled("Tasks", "yardsticks.tasks.suite", _pairs(_tasks())),
        _titled(
            "Kinds of tasks",
            "kind, in a task's file",
            _pairs((k.name, f"{k.description}; columns: {', '.join(k.columns)}") for k in KINDS),
        ),
        _titled("Shapes", "model.shape", _shapes_table()),
        _titled("Text", "corpora.sources", _pairs(_sources())),
    )


def _titled(title: str, key: str, content: RenderableType) -> RenderableType:
    return Group(Text.assemble((title, "bold"), "  ", (key, "dim")), Padding(content, (0, 0, 1, 2)))


def _pairs(items: Iterable[tuple[str, str]]) -> Grid:
    grid = Grid.grid(Column(style="cyan", no_wrap=True), "", padding=(0, 2))
    for name, description in items:
        grid.add_row(Text(name), Text(description))
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


def _shapes_table() -> RenderableType:
    rows = []
    for name, kinds in SHAPES.items():
        shape, family = next(iter(kinds.values())), " or ".join(_FAMILIES[task] for task in kinds)
        size = formatting.quantity(shape.parameters, "").strip()
        rows.append([name, family, str(shape.layers), str(shape.hidden_size), size])
    titles = ("name", "family", "layers", "hidden", "parameters*")
    aligned: tuple[Align, ...] = ("left", "left", "right", "right", "right")
    return on_terminal(Table.of(titles, rows, aligned, ["* without embeddings and head"]))
