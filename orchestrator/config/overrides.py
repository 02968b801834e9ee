"""``--set KEY=VALUE``: dotted keys and YAML values, put on top of a study."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from orchestrator.config.yaml_text import parse_yaml
from trainables.errors import InputError


def override(content: dict[str, JsonValue], overrides: Sequence[str]) -> None:
    """Change a study's keys and values in place. Raises InputError if one is not ``key=value``, its value is not YAML,
    or there is no such place in a list."""
    if isinstance(overrides, str):
        raise InputError(
            f"the overrides are a list, not the text '{overrides}'", where="overrides", remedy=f'["{overrides}"]'
        )
    for one in overrides:
        _put(content, one)


def _put(content: dict[str, JsonValue], one: str) -> None:
    key, equals, text = one.partition("=")
    where = f"--set {one}"
    if not equals or not key:
        raise InputError(f"'{one}' is not key=value", where="--set", remedy="as in --set confirm.seeds=6")
    value = parse_yaml(text, where)
    *parents, last = key.split(".")
    place: JsonValue = content
    for parent in parents:
        if isinstance(place, dict):
            if not isinstance(place.get(parent), dict | list):
                place[parent] = {}
            place = place[parent]
        elif isinstance(place, list) and _is_position(parent, place):
            place = place[int(parent)]
        else:
            raise InputError(f"there is nothing under '{parent}' to set", where=where, remedy=_positions(place))
    if isinstance(place, dict):
        place[last] = value
    elif isinstance(place, list) and _is_position(last, place):
        place[int(last)] = value
    else:
        raise InputError(f"'{last}' is no position in that list", where=where, remedy=_positions(place))


def _is_position(text: str, items: list[JsonValue]) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < len(items)


def _positions(place: JsonValue) -> str:
    if not isinstance(place, list) or not place:
        return ""
    return f"positions are 0 to {len(place) - 1}; to add an item, set the whole list"
