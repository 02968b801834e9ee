"""YAML as this project reads it: safe, bounded, every key once, and every mistake an :class:`InputError`.

What needs no quotes is as of YAML 1.2 (https://yaml.org/spec/1.2.2, 10.3.2): dates, times, yes and no are text, 010 is
ten, 1e3 a thousand. Keys are always text.
"""

import re
from typing import Any

import yaml
from pydantic import JsonValue

from trainables.errors import InputError

DEEPEST = 64  # levels of nesting
MOST_VALUES = 100_000  # in all; an alias counts as often as it is used: a few lines of aliases can stand for billions
MOST_BYTES = 1_000_000  # of a text: its characters are read one by one, a million in some seconds
LARGEST = 10**18  # no whole number is as large: sums and products of some are still numbers


def parse_yaml(text: str | bytes, where: str, remedy: str = "") -> JsonValue:
    """The value of one YAML document; bytes are UTF-8. Raises InputError if it is no YAML, not UTF-8, has a key twice,
    or is larger or deeper than any study is."""
    if len(text) > MOST_BYTES:
        raise InputError(f"this is larger than any study: {MOST_BYTES:,} bytes", where=where, remedy=remedy)
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("this is not UTF-8 text", where=where, why=str(error), remedy="save it as UTF-8") from error
    try:
        value: JsonValue = yaml.load(decoded, _Loader)
        _require_plain(value)
    except yaml.YAMLError as error:
        raise InputError("this is not YAML", where=where, why=_problem(error), remedy=remedy) from error
    return value


class Dumper(yaml.SafeDumper):
    """Quotes all text that YAML 1.1 or 1.2 would take for something else."""


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, but for what has no quotes, keys, and errors of Python's own."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (PyYAML's own)
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"nested more than {DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            value = str(node.value if isinstance(node, yaml.ScalarNode) else error)
            problem = f"this is no {node.tag.rpartition(':')[2]}: {value[:80]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():  # the loader's own refuses all others
            problem = ""
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key is no plain text"
            elif key.value in keys:  # of two the last would win without a word
                problem = f"the key '{key.value[:80]}' is there twice"
            elif key.value == "<<":  # a few lines of them can stand for billions of keys
                problem = "there are no merge keys (<<) here: write out the keys that it stands for"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            keys.add(key.value)
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def _number(loader: _Loader, node: yaml.ScalarNode) -> float:
    if node.tag.endswith("int"):
        return int(node.value, {"0o": 8, "0x": 16}.get(node.value[:2], 10))
    value: float = loader.construct_yaml_float(node)
    return int(value) if value.is_integer() and abs(value) < LARGEST and "." not in node.value else value


for kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{kind}", _number)
for kind, pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+",  # 1_000 is YAML 1.1's, and can be nothing else
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}.items():
    for each in (_Loader, Dumper):
        each.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"), None)


def _require_plain(value: Any) -> None:
    """Refuse what JSON does not know, what is too much, and text that no file can hold."""
    waiting, count = [(value, 0)], 0
    while waiting:
        item, depth = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise yaml.YAMLError(f"it stands for more than {MOST_VALUES:,} values")
        if depth > DEEPEST:
            raise yaml.YAMLError(f"nested more than {DEEPEST} levels deep")
        if isinstance(item, dict | list):
            inside = [*item.keys(), *item.values()] if isinstance(item, dict) else item
            waiting += [(one, depth + 1) for one in inside]
        elif isinstance(item, str):
            if any(0xD800 <= ord(character) < 0xE000 for character in item):
                raise yaml.YAMLError(f"{item[:80]!a} holds half a character (a lone surrogate)")
        elif isinstance(item, int) and abs(item) >= LARGEST:
            raise yaml.YAMLError(f"a whole number is {LARGEST:.0e} or more")
        elif item is not None and not isinstance(item, bool | int | float):
            raise yaml.YAMLError(f"a value of type {type(item).__name__} is neither text nor number nor list")


def _problem(error: yaml.YAMLError) -> str:
    """What is wrong and where in the text, in one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else problem
