"""How things are arranged on a terminal. Names and messages are put in as ``Text``: brackets in them are no markup."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text


class FirstFitting:
    """The first of several renderables that fits the width there is; the last where none does. ``instead``: of that,
    where it could not keep its words whole."""

    def __init__(self, *renderables: RenderableType, instead: RenderableType | None = None) -> None:
        self._renderables, self._instead = renderables, instead

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(max_width=10_000)
        widths = [Measurement.get(console, unbounded, renderable) for renderable in self._renderables]
        fitting = [r for r, w in zip(self._renderables, widths, strict=True) if w.maximum <= options.max_width]
        if not fitting and self._instead is not None and widths[-1].minimum > options.max_width:
            fitting = [self._instead]
        yield (fitting or self._renderables[-1:])[0]


class AtWidth:
    """One renderable where there are fewer than ``least`` columns, else another."""

    def __init__(self, least: int, narrow: RenderableType, wide: RenderableType) -> None:
        self._least, self._narrow, self._wide = least, narrow, wide

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._wide if options.max_width >= self._least else self._narrow


class Line:
    """Text in one line; what does not fit is cut off, which an ellipsis says."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(" ").join(self._text.split("\n"))
        line.truncate(options.max_width, overflow="ellipsis")
        yield line


Drawn = list[Segment]
"""A line of a terminal."""


def drawn(console: Console, options: ConsoleOptions, *renderables: RenderableType) -> list[Drawn]:
    """Renderables as lines of the screen's width, one below the other."""
    free = options.update(height=None)
    return [line for each in renderables for line in console.render_lines(each, free, pad=False)]


class Lines:
    """Lines that are drawn already."""

    def __init__(self, lines: Sequence[Drawn]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()


_IN_ASCII = str.maketrans(
    {
        "✓": "x",
        "●": "*",
        "◐": "o",
        "○": ".",
        "✗": "!",
        "·": "-",
        "–": "-",
        "≈": "~",
        "±": "~",
        "…": "~",
        "━": "=",
        "╸": "=",
        "╺": "=",
    }
    | dict(zip("▁▂▃▄▅▆▇█", "_.,-=+*#", strict=True))
)
"""What the dashboard draws with, for terminals that have nothing but ASCII."""


def plain_where_needed(console: Console, options: ConsoleOptions, renderable: RenderableType) -> Iterator[Segment]:
    """A renderable with characters that the terminal's encoding has."""
    for segment in console.render(renderable, options):
        yield (
            Segment(segment.text.translate(_IN_ASCII), segment.style, segment.control)
            if options.ascii_only
            else segment
        )


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
