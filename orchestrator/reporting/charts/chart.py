"""What a chart is, and how all of them look."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import altair as alt

from orchestrator.reporting.table import Table
from trainables.errors import printable

Value: TypeAlias = str | float | int | bool | None
Datum: TypeAlias = Mapping[str, Value]
Drawing: TypeAlias = alt.LayerChart | alt.FacetChart | alt.VConcatChart

WIDTH = 430
"""Of the plot itself, in pixels: with its axes it is still read on a phone."""
ROW = 34
"""Height of a row of a plot of intervals."""

INK, QUIET, GRID, PAPER = "#1f2328", "#57606a", "#d0d7de", "#ffffff"
ARM_COLOURS = ("#0969a8", "#c2410c", "#0f766e", "#a21caf", "#a16207", "#475569")
"""Told apart with any common colour vision, and at least 4.5 : 1 on white."""
KIND_COLOURS = ("#0969a8", "#a16207", "#c2410c", "#475569")

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_LINE = 74  # letters of a subtitle's line


@dataclass(frozen=True)
class Chart:
    """One figure. ``drawing`` is an Altair chart: shown by notebooks, and changed as one likes."""

    name: str
    """Of its file."""
    title: str
    """What it shows."""
    legend: str
    """n, how intervals are made, and which runs are missing. It is in the drawing too."""
    numbers: Table
    """All that is drawn."""
    outline: Drawing
    """The drawing without its data."""
    data: Mapping[str, Sequence[Datum]]

    @property
    def drawing(self) -> Drawing:
        """The whole drawing."""
        whole = self.outline.copy()
        whole.datasets = {name: [dict(row) for row in rows] for name, rows in self.data.items()}
        return whole

    def to_json(self, indent: int | None = None) -> str:
        """The whole drawing as Vega-Lite's JSON. Altair would copy the data some more times."""
        outline = self.outline.to_dict(validate=False)
        return json.dumps(
            {**outline, "datasets": {name: list(rows) for name, rows in self.data.items()}}, indent=indent
        )

    def _repr_mimebundle_(self, *args: object, **kwargs: object) -> object:
        return self.drawing._repr_mimebundle_(*args, **kwargs)


def of(name: str) -> alt.NamedData:
    """The rows that :func:`made` is given under a name. Altair copies what stands in a chart at every step."""
    return alt.NamedData(name=name)


def colours(labels: Sequence[str], of: Sequence[str] = ARM_COLOURS) -> alt.Scale:
    """One colour each, in their order."""
    return alt.Scale(domain=list(labels), range=[of[place % len(of)] for place in range(len(labels))])


def legend(title: str = "") -> alt.Legend:
    """Above the plot, a line each: their words are long."""
    return alt.Legend(title=title or None, orient="top", direction="vertical", columns=1, labelLimit=0, titleLimit=0)


def named_rows(names: Sequence[str]) -> alt.Y:
    """A row each, in their order; a line end breaks a name."""
    axis = alt.Axis(
        title=None,
        labelExpr="split(datum.label, '\\n')",
        labelLimit=0,
        labelOffset=-8 if any("\n" in name for name in names) else 0,
        domain=False,
        ticks=False,
    )
    return alt.Y("row:N", scale=alt.Scale(domain=list(map(printable, names))), axis=axis)


def made(
    name: str, title: str, legend: str, drawing: Drawing, numbers: Table, data: Mapping[str, Sequence[Datum]]
) -> Chart:
    """The chart in the style of all, its title and legend above it; ``data`` are its rows, by the names used in it."""
    heading = alt.TitleParams(text=textwrap.wrap(title, _LINE - 16), subtitle=textwrap.wrap(legend, _LINE))
    styled = drawing.properties(title=heading).configure(
        background=PAPER,
        padding=12,  # fonts of other machines are wider
        font=FONT,
        axis=alt.AxisConfig(
            labelColor=INK, titleColor=INK, gridColor=GRID, domainColor=QUIET, tickColor=QUIET,
            labelFontSize=13, titleFontSize=13, titleFontWeight="normal", labelLimit=220, tickCount=6, gridWidth=0.7,
        ),
        legend=alt.LegendConfig(labelColor=INK, titleColor=INK, labelFontSize=13, titleFontSize=13, symbolOpacity=1),
        title=alt.TitleConfig(
            anchor="start", frame="bounds", color=INK, subtitleColor=QUIET, fontSize=15, subtitleFontSize=12, offset=10
        ),
        view=alt.ViewConfig(stroke=None),
    )  # fmt: skip
    rows = {place: [_clean(row) for row in own] for place, own in data.items()}
    return Chart(name, title, legend, numbers, styled, rows)


def _clean(row: Datum) -> Datum:
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
