"""A table as a value, built once, and what it looks like on a terminal and in Markdown.

A line end in a cell or title says where it may break: a narrow terminal breaks there, all others have a space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from orchestrator.reporting.layout import FirstFitting

Align = Literal["left", "right"]
_RIGHT: tuple[Align, ...] = ("right",)


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    cells: tuple[str, ...]
    quiet: bool = False  # it decides nothing: shown dimmed where there is colour


@dataclass(frozen=True)
class Table:
    """Names for its columns, and rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    align: tuple[Align, ...] = ()  # of the first columns; the others are on the left
    notes: tuple[str, ...] = ()  # below it, a line each

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        align: Sequence[Align] = (),
        notes: Sequence[str] = (),
        *,
        numbers: bool = False,
    ) -> Table:
        """A table of rows that are all alike; with ``numbers``, all columns but the first are on the right."""
        if numbers:
            align = ("left", *_RIGHT * (len(columns) - 1))
        return cls(tuple(columns), tuple(Row(tuple(row)) for row in rows), tuple(align), tuple(notes))

    @property
    def upright(self) -> Table:
        """A column for each row, which suits a narrow terminal."""
        corner, *names = self.columns
        columns = (corner, *(row.cells[0] for row in self.rows))
        rows = [Row((name, *(row.cells[index] for row in self.rows))) for index, name in enumerate(names, start=1)]
        return replace(self, columns=columns, rows=tuple(rows), align=())

    def first(self, number: int) -> Table:
        """So many of its columns, which suits a narrow terminal too."""
        rows = tuple(replace(row, cells=row.cells[:number]) for row in self.rows)
        return replace(self, columns=self.columns[:number], rows=rows, align=self.align[:number])

    def _aligned(self) -> list[tuple[str, Align]]:
        return [(title, side or "left") for title, side in zip_longest(self.columns, self.align)]


def on_terminal(table: Table, *narrow: Table) -> RenderableType:
    """For Rich: the first that fits the width, of the table, it with its breaks, and likewise the narrow forms. Where
    none could keep its words whole, the rows come one below the other."""
    forms = [_grid(form, breaks=breaks) for form in (table, *narrow) for breaks in (False, True)]
    last = (table, *narrow)[-1]
    return FirstFitting(*forms, instead=_one_below_the_other(last) if len(last.columns) > FEW_COLUMNS else None)


FEW_COLUMNS = 3
"""With so many or fewer a table can be read however narrow it is."""


def _one_below_the_other(table: Table) -> RenderableType:
    titles = [title.replace("\n", " ") for title in table.columns]
    lines = []
    for row in table.rows:
        name, *cells = (cell.replace("\n", " ") for cell in row.cells)
        told = (Text.assemble("  ", (f"{title}: ", "dim"), cell) for title, cell in zip(titles[1:], cells, strict=True))
        lines += [Text(name, "bold"), *told, Text()]
    return Group(Text(), *lines, *map(Text, table.notes))


def _grid(table: Table, *, breaks: bool) -> Grid:
    def text(cell: str) -> Text:
        return Text(cell if breaks else cell.replace("\n", " "))

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for index, (title, align) in enumerate(table._aligned()):
        shown = text(title.replace("_", "_\n") if breaks else title)
        grid.add_column(shown, style="" if index else "bold", overflow="fold", justify=align)
    for row in table.rows:
        grid.add_row(*map(text, row.cells), style="dim" if row.quiet else "")
    if table.notes:
        grid.caption, grid.caption_justify = Text("\n".join(table.notes)), "left"
    return grid


def to_markdown(table: Table) -> str:
    """As a pipe table, its notes below it."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"

    rules = ["---:" if align == "right" else "---" for _, align in table._aligned()]
    lines = [line(table.columns), line(rules), *(line(row.cells) for row in table.rows)]
    return "\n\n".join(["\n".join(lines), *table.notes])


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "±": r"\ensuremath{\pm}",
    "≈": r"\ensuremath{\approx}",
    "\n": " ",
}


def to_latex(table: Table) -> str:
    """As a ``tabular`` with the rules of the package booktabs, its notes below it."""

    def escaped(text: str) -> str:
        return "".join(_LATEX.get(character, character) for character in text)

    def line(cells: Iterable[str]) -> str:
        return f"{' & '.join(map(escaped, cells))} \\\\"

    columns = "".join("r" if align == "right" else "l" for _, align in table._aligned())
    body = [line(table.columns), r"\midrule", *(line(row.cells) for row in table.rows)]
    notes = [f"\\par\\footnotesize {escaped(note)}" for note in table.notes]
    return "\n".join([f"\\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}", *notes])
