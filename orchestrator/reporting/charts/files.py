"""Charts as pictures: SVG, PDF and PNG, made by vl-convert without a browser or a network."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.reporting.charts.chart import Chart
from orchestrator.reporting.table import Table, to_latex, to_markdown
from trainables.storage import Location

PNG_SCALE = 3  # some 300 dots an inch, printed as wide as a column


def svg(chart: Chart) -> str:
    """The chart drawn, in its light colours."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(chart.to_json()))


def write_charts(folder: Location, found: Iterable[Chart]) -> list[str]:
    """Write each chart as SVG, PDF and PNG, its specification, and its numbers; gives the files' names."""
    import vl_convert

    written = []
    for chart in found:
        picture = svg(chart)
        for ending, content in (
            ("svg", picture.encode()),
            ("pdf", vl_convert.svg_to_pdf(picture)),
            ("png", vl_convert.svg_to_png(picture, scale=PNG_SCALE)),
            ("vl.json", chart.to_json(indent=1).encode()),
        ):
            (folder / f"{chart.name}.{ending}").write_bytes(content)
            written.append(f"{chart.name}.{ending}")
        written += write_table(folder, chart.name, chart.numbers)
    return written


def write_table(folder: Location, name: str, table: Table) -> list[str]:
    """Write a table as LaTeX and Markdown; gives the files' names."""
    for ending, text in (("tex", to_latex(table)), ("md", to_markdown(table))):
        (folder / f"{name}.{ending}").write_bytes(f"{text}\n".encode())
    return [f"{name}.tex", f"{name}.md"]
