"""YAML as this project reads it: safe, bounded, every key once, and every mistake an :class:`InputError`.

Dates are text: ``name: 2026-11-22`` needs no quotes. Of YAML 1.1's other surprises nothing is left that is not said.
"""

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
        why = f"it has more than {MOST_BYTES:,} bytes"
        raise InputError("this is larger than any study", where=where, why=why, remedy=remedy)
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("this is not UTF-8 text", where=where, why=str(error), remedy="save it as UTF-8") from error
    try:
        value = yaml.load(decoded, _Loader)
        _require_plain(value)
    except yaml.YAMLError as error:
        raise InputError("this is not YAML", where=where, why=_problem(error), remedy=remedy) from error
    plain: JsonValue = value
    return plain


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, but for dates, keys that are written twice, and errors of Python's own."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own)
        first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
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
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            kind, value = node.tag.rpartition(":")[2], node.value if isinstance(node, yaml.ScalarNode) else error
            raise yaml.MarkedYAMLError(
                problem=f"this is no {kind}: {str(value)[:80]}", problem_mark=node.start_mark
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()  # the loader's own refuses all others
        for key, _ in pairs:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no plain text", problem_mark=key.start_mark)
            if key.value in keys:  # of two the last would win without a word
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key.value[:80]}' is there twice", problem_mark=key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)


def _require_plain(value: Any) -> None:
    """Refuse what JSON does not know, what is too much, and text that no file can hold."""
    waiting, count = [value], 0
    while waiting:
        item = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise yaml.YAMLError(f"it stands for more than {MOST_VALUES:,} values")
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
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
