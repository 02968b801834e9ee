"""Tables are values; on a terminal, in Markdown and in HTML they show the same cells, whatever these hold."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from orchestrator.reporting.table import Row, Table, on_terminal, to_markdown

TABLE = Table.of(["arm", "mean\nof all", "n"], [["headless", "0.41", "6"], ["vanilla", "0.37", "5"]], numbers=True)
HOSTILE = "<script>alert(1)</script>|[bold]x[/bold]&amp;\nsecond `line`"


def drawn(table: Table, width: int, *narrow: Table, markup: bool = True) -> str:
    console = Console(width=width, force_terminal=True, file=StringIO(), color_system=None, markup=markup, _environ={})
    console.print(on_terminal(table, *narrow))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def markdown_cells(line: str) -> list[str]:
    """Of a pipe table's line, by GitHub's rule: a pipe with a backslash before it is a character."""
    inner = line.strip().removeprefix("|").removesuffix("|").replace("\\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


def test_a_table_on_a_terminal() -> None:
    lines = [line.rstrip() for line in drawn(TABLE, 60).splitlines() if line.strip()]
    assert lines == [
        " arm       mean of all  n",
        " ────────────────────────",
        " headless         0.41  6",
        " vanilla          0.37  5",
    ]


def test_a_narrow_terminal_breaks_where_it_is_told_to_then_takes_the_narrow_form() -> None:
    assert "mean of all" in drawn(TABLE, 26)
    broken = drawn(TABLE, 21)
    assert "mean of all" not in broken
    assert "of all" in broken
    assert "headless" in broken
    upright = drawn(Table.of(["arm", "x" * 20, "y" * 20], [["a", "1", "2"]]), 30, TABLE.upright)
    assert "headless" in upright
    assert max(map(len, upright.splitlines())) <= 30


def test_upright_is_the_same_table_turned() -> None:
    assert TABLE.upright.columns == ("arm", "headless", "vanilla")
    assert [row.cells for row in TABLE.upright.rows] == [("mean\nof all", "0.41", "0.37"), ("n", "6", "5")]


def test_a_table_in_markdown() -> None:
    noted = Table.of(TABLE.columns, [row.cells for row in TABLE.rows], TABLE.align, ["One.", "Two."])
    assert to_markdown(noted).split("\n") == [
        "| arm | mean of all | n |",
        "| --- | ---: | ---: |",
        "| headless | 0.41 | 6 |",
        "| vanilla | 0.37 | 5 |",
        "",
        "One.",
        "",
        "Two.",
    ]


def test_cells_are_text_and_nothing_else() -> None:
    """Names in a stranger's ledger: no markup of Rich, no column of Markdown."""
    hostile = Table.of(["arm", HOSTILE], [[HOSTILE, "1"], ["b", HOSTILE]], notes=[HOSTILE])
    one_line = HOSTILE.replace("\n", " ")
    header, rule, *rows = to_markdown(hostile).split("\n\n")[0].split("\n")
    assert [markdown_cells(line) for line in (header, *rows)] == [["arm", one_line], [one_line, "1"], ["b", one_line]]
    assert markdown_cells(rule) == ["---", "---"]
    shown = drawn(hostile, 300)
    assert shown.count("[bold]x[/bold]") == 4
    assert shown.count("<script>") == 4


def test_quiet_rows_are_dimmed_where_there_is_colour() -> None:
    table = Table(("a",), (Row(("loud",)), Row(("quiet",), quiet=True)))
    console = Console(width=20, force_terminal=True, file=StringIO(), color_system="standard", _environ={})
    console.print(on_terminal(table))
    loud, quiet = [line for line in console.file.getvalue().splitlines() if "loud" in line or "quiet" in line]  # type: ignore[attr-defined]
    assert "2m" not in loud
    assert "2" in quiet.partition("quiet")[0]
