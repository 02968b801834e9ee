"""``h2h report``: studies as one HTML file that needs no network, opens from disk, and can be forwarded.

Everything that a study says is escaped by the templates; the page forbids all scripts but its own, by their digest, and
all requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orchestrator import formatting
from orchestrator.analysis.report import StudyReport
from orchestrator.reporting import report_tables
from orchestrator.reporting.charts import Chart, charts
from orchestrator.reporting.glances import Glance, glances
from orchestrator.reporting.page.pictures import inline
from orchestrator.reporting.result_tables import detectable_in_words
from orchestrator.reporting.table import Table
from trainables.errors import printable

if TYPE_CHECKING:
    from orchestrator.analysis.comparison import Comparison

_TEMPLATES = "orchestrator.reporting.page"

_TITLES = {
    "arms": "Arms: mean ± standard deviation over seeds, on the test split",
    "comparison": "Differences, with their 95% intervals",
    "tasks": "Downstream tasks (exploratory)",
    "languages": "Language by language (exploratory)",
    "differed": "What each arm was",
    "robustness": "The verdict where one choice of the analysis is another",
    "search": "How the searches went (exploratory)",
    "spending-by-kind": "Spending by kind",
    "overhead": "Overhead by cause",
    "failures": "Trials that broke or were lost, and attempts that were repeated",
    "trials": "Every trial",
}


@dataclass(frozen=True)
class Figure:
    """A chart, drawn."""

    chart: Chart
    picture: Markup
    choice: str
    """What it is called where one of several is chosen; empty of a chart that stands alone."""


@dataclass(frozen=True)
class Section:
    """A study on a page."""

    prefix: str
    """Of all its ids."""
    name: str
    """That tells it from others on the page."""
    report: StudyReport
    glances: tuple[Glance, ...]
    figures: tuple[Figure, ...]
    by_unit: tuple[Figure, ...]
    """Of which one is chosen."""
    tables: dict[str, Table]
    protocol: str
    detectable: str


def report_page(reports: Sequence[StudyReport]) -> str:
    """The page of one study or several."""
    named = enumerate(zip(reports, report_tables.names(reports), strict=True))
    sections = [section(report, f"s{place}-", name) for place, (report, name) in named]
    several = report_tables.studies(reports) if len(reports) > 1 else None
    title = reports[0].name if several is None else f"{len(reports)} studies"
    own = {"script": source("page.js"), "style": source("style.css"), "policy": policy()}
    return render("report.html", title=title, sections=sections, several=several, **own)


def report_part(report: StudyReport) -> str:
    """One study's part of a page."""
    return _macro("study", section(report), 1)


def answer_part(comparison: Comparison, verdict: str) -> str:
    """Of that, the answer: its ``id`` is ``answer``."""
    return _macro("answer", glances(comparison), verdict)


def table_part(table: Table, name: str) -> str:
    """One of a report's tables by itself."""
    return _macro("table_of", table, _TITLES[name], f"h2h-{name}")


def _macro(name: str, *arguments: object) -> str:
    parts = _environment().get_template("parts.html").module
    return str(getattr(parts, name)(*arguments))


def render(template: str, **content: object) -> str:
    """A page by its template."""
    return _environment().get_template(template).render(content)


def section(report: StudyReport, prefix: str = "", name: str = "") -> Section:
    """What is shown of a study, drawn; ``name``: what it is called, if not by its own."""
    found = charts(report)
    drawn = [Figure(chart, Markup(inline(chart, f"{prefix}{name}-")), _choice(name)) for name, chart in found.items()]
    return Section(
        prefix=prefix,
        name=name or report.name,
        report=report,
        glances=glances(report.comparison),
        figures=tuple(figure for figure in drawn if not figure.choice),
        by_unit=tuple(figure for figure in drawn if figure.choice),
        tables=report_tables.tables(report),
        protocol=json.dumps(report.protocol, indent=2, ensure_ascii=False),
        detectable=detectable_in_words(report.comparison),
    )


def _choice(name: str) -> str:
    kind, _, unit = name.partition("-")
    return formatting.UNIT_TITLES[unit.replace("-", "_")] if kind == "learning" else ""


def _states(counted: tuple[tuple[int, str], ...]) -> str:
    """``3 completed · 2 running``."""
    return " · ".join(f"{count} {state}" for count, state in counted)


@cache
def _environment() -> Environment:
    """The templates, which escape everything that is no markup of ours."""
    found = Environment(
        loader=PackageLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    found.filters |= {"day": report_tables.day, "quantity": formatting.quantity, "states": _states}
    found.globals["titles"] = _TITLES
    return found


@cache
def source(name: str) -> Markup:
    """A file of ours that stands in a page as it is."""
    return Markup(files(_TEMPLATES).joinpath("templates", name).read_text())


@cache
def policy(*more: str) -> str:
    """What a page may do: run its own scripts, the files named, and nothing else."""
    scripts = " ".join(f"'sha256-{_digest(name)}'" for name in ("page.js", *more))
    connect = " connect-src 'self';" if more else ""
    own = f"style-src 'unsafe-inline'; script-src {scripts};{connect}"
    return f"default-src 'none'; {own} base-uri 'none'; form-action 'none'"


def _digest(name: str) -> str:
    return base64.b64encode(hashlib.sha256(source(name).encode()).digest()).decode()
