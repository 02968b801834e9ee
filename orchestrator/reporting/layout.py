"""How things are arranged on a terminal. Names and messages are put in as ``Text``: brackets in them are no markup."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text


class FirstFitting:
    """The first of several renderables that fits the width there is; the last where none does."""

    def __init__(self, *renderables: RenderableType) -> None:
        self._renderables = renderables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(max_width=10_000)
        widths = [Measurement.get(console, unbounded, renderable).maximum for renderable in self._renderables]
        fitting = [r for r, w in zip(self._renderables, widths, strict=True) if w <= options.max_width]
        yield (fitting or self._renderables[-1:])[0]


class SideBySide:
    """Renderables in as many equal columns as leave each the width it needs."""

    def __init__(self, renderables: Sequence[RenderableType], width: int) -> None:
        self._renderables, self._width = renderables, width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = max(1, min(len(self._renderables), options.max_width // self._width))
        rows = Grid.grid(*(Column(ratio=1) for _ in range(columns)), expand=True)
        for start in range(0, len(self._renderables), columns):
            rows.add_row(*self._renderables[start : start + columns])
        yield rows


def panel(content: RenderableType, title: Text, subtitle: Text | None = None) -> Panel:
    """A frame with a title on the left, and a subtitle on the right of its lower edge."""
    return Panel(
        content,
        title=title,
        title_align="left",
        subtitle=subtitle,
        subtitle_align="right",
        border_style="dim",
        box=box.ROUNDED,
    )


def bar(completed: float, total: float) -> ProgressBar:
    """How much of something is done."""
    return ProgressBar(total=total, completed=completed, complete_style="cyan", finished_style="green")


def labelled(*, expand: bool = False) -> Grid:
    """A grid of labels and what they stand for."""
    columns = Column(style="dim", no_wrap=True), Column(ratio=1 if expand else None)
    return Grid.grid(*columns, padding=(0, 1 if expand else 2), expand=expand)
