"""Reading pages back: their elements, their text, and the numbers in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from pydantic import JsonValue

VOID = {"meta", "input", "link", "br"}
SCALES = {"k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "%": 1e-2}
SECONDS = {"min": 60.0, "h": 3600.0, "d": 86400.0}
NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?P<digits>\d[\d,]*(?:\.\d+)?)(?P<power>e[-+]?\d+)?"
    r"(?:(?P<scale>%| ?[kMBGTPE](?=\b)| (?=[kMGTPE](?:FLOP|J)))|(?P<time> (?:min|h|d)\b))?"
)


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, *names: str) -> list[Element]:
        found = [self] if self.name in names else []
        return found + [e for child in self.children if isinstance(child, Element) for e in child.all(*names)]

    def under(self, name: str) -> bool:
        return self.parent is not None and (self.parent.name == name or self.parent.under(name))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.here = Element("page", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.children.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.here.children.append(Element(tag, {name: value or "" for name, value in attrs}, self.here))

    def handle_endtag(self, tag: str) -> None:
        assert self.here.name == tag, f"{tag} closes {self.here.name}"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


def read_page(html: str) -> Element:
    """Its elements; every one that begins must end in its place."""
    reader = _Reader()
    reader.feed(html)
    assert reader.here is reader.root
    return reader.root


def cells_of(page: Element, caption: str) -> list[list[str]]:
    """The rows of the table of that caption, titles first."""
    table = next(t for t in page.all("table") if t.all("caption")[0].text == caption)
    return [[cell.text for cell in row.all("th", "td")] for row in table.all("tr")]


def leaves_of(value: JsonValue) -> Iterator[str | float]:
    """The single values of a JSON value, its keys, and how many there are in each list."""
    if isinstance(value, dict):
        yield float(len(value))
        for key, inner in value.items():
            yield key
            yield from leaves_of(inner)
    elif isinstance(value, list):
        yield float(len(value))
        for inner in value:
            yield from leaves_of(inner)
    elif isinstance(value, str):
        yield value
    elif value is not None:
        yield float(value)


def unknown_numbers(text: str, known: JsonValue) -> list[str]:
    """The numbers in a text that are no rounded number, and in no string, of a JSON value."""
    leaves = list(leaves_of(known))
    strings = "\n".join(leaf for leaf in leaves if isinstance(leaf, str))
    numbers = sorted({abs(leaf) for leaf in leaves if not isinstance(leaf, str)})
    return [
        found.group()
        for found in NUMBER.finditer(text)
        if found.group().strip() not in strings and not _is_known(found, text, numbers)
    ]


def _is_known(found: re.Match[str], text: str, numbers: list[float]) -> bool:
    digits, power = found["digits"].replace(",", ""), found["power"] or ""
    after = text[found.end() : found.end() + 2]
    scale = SCALES.get((found["scale"] or "").strip() or (after[0] if found["scale"] == " " else ""), 1.0)
    scale = SECONDS[found["time"].strip()] if found["time"] else scale
    value = float(digits + power) * scale
    step = 10.0 ** -len(digits.partition(".")[2]) * (10.0 ** int(power[1:]) if power else 1.0) * scale
    return any(abs(value - number) <= 0.5001 * step + 1e-12 for number in numbers)
