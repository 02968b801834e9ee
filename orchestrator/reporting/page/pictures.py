"""Charts as inline SVG: in the colours of the page, light or dark, with what a mark stands for in ``data-tip``.

A picture is drawn once, and no library of charts is in the page: a hundred lines of SVG are a tenth of the runtime that
would draw them, they are there without scripts, and a page that runs no code of a specification can forbid all others'.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from orchestrator.reporting.charts.chart import ARM_COLOURS, GRID, INK, PAPER, QUIET, Chart
from orchestrator.reporting.charts.files import svg

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_CLASSES = {colour: f"a{place}" for place, colour in enumerate(ARM_COLOURS)}  # those of kinds are among them
_CLASSES |= {INK: "ink", QUIET: "quiet", GRID: "grid", PAPER: "paper"}
_FRAME = ("axis", "legend", "title", "subtitle")
_NOT_NEEDED = re.compile("^(aria-.*|role|class|font-family|pointer-events)$")


def inline(chart: Chart, prefix: str) -> str:
    """The chart as an ``svg`` element whose ids begin with ``prefix``; its title is its name for screen readers."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(svg(chart))
    for element in root.iter():
        _simplify(element, prefix)
    width = root.attrib.pop("width")
    root.attrib.pop("height", None)
    root.attrib |= {"role": "img", "aria-label": f"{chart.title}. {chart.legend}", "style": f"max-width:{width}px"}
    return ElementTree.tostring(root, encoding="unicode")


def _simplify(element: ElementTree.Element, prefix: str) -> None:
    attributes, classes = element.attrib, []
    described = attributes.get("role") == "graphics-symbol" and attributes.get("aria-roledescription") not in _FRAME
    tip = attributes.get("aria-label", "") if described else ""
    for name in [name for name in attributes if _NOT_NEEDED.match(name)]:
        del attributes[name]
    for name in ("fill", "stroke"):
        found = _CLASSES.get("#ffffff" if attributes.get(name) == "white" else attributes.get(name, ""))
        if found:
            classes.append(f"{name[0]}-{found}")
            del attributes[name]
    if classes:
        attributes["class"] = " ".join(classes)
    if tip:
        attributes["data-tip"] = tip
    if "id" in attributes:
        attributes["id"] = prefix + attributes["id"]
    for name in ("clip-path", f"{{{_LINK}}}href"):
        if name in attributes:
            attributes[name] = attributes[name].replace("#", f"#{prefix}")
