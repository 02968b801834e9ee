"""From pydantic's and YAML's findings to the project's own error: file, key, why, the nearest valid name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from trainables.errors import InputError, nearest

_WORDS = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must be at most {max_length} characters long",
    "literal_error": "must be {expected}",
    "too_short": "must not be empty",
    "dict_type": "must be keys and values",
    "model_type": "must be keys and values",
    "tuple_type": "must be a list",
}
"""What is wrong, by pydantic's type of finding; its own message is for programmers."""


def input_error(
    error: ValidationError, model: type[BaseModel], file: str, overrides: Sequence[str] = ()
) -> InputError:
    """The first finding as an :class:`InputError`; the others are counted.

    Args:
        error: what pydantic found.
        model: what was validated, for the valid names.
        file: where it was written.
        overrides: ``key=value`` each, that were put on top of the file.
    """
    findings = error.errors()
    first = findings[0]
    # A list of which an item is wrong is also found to be too short: that is no second mistake.
    others = [f for f in findings[1:] if f["loc"] != first["loc"][: len(f["loc"])]]
    path = [str(part) for part in first["loc"]]
    cause = first.get("ctx", {}).get("error")
    why = ""
    if isinstance(cause, InputError):
        what, why, remedy = cause.what, cause.why, cause.remedy
        path += [cause.where] if cause.where else []
    elif first["type"] == "extra_forbidden":
        what, remedy = (
            f"unknown key '{path[-1]}'",
            nearest(path[-1], _record_at(model, path[:-1]).model_fields),
        )
    elif first["type"] == "missing":
        what, remedy = f"'{path[-1]}' is missing", f"add the key: {_meaning(model, path)}"
    else:
        what, remedy = _what(first, path), _meaning(model, path)
        _, hint, names = first["msg"].partition("; did you mean")
        remedy = f"{hint.removeprefix('; ')}{names}" if hint else remedy
        if "input" in first and not isinstance(first["input"], dict | list):
            why = f"the value is {first['input']!r}"
    if others:
        listed = ", ".join(
            ".".join(str(part) for part in finding["loc"]) or "the whole" for finding in others[:3]
        )
        why = f"{why + '; ' if why else ''}{len(others)} more to mend: {listed}"
    return InputError(what, where=_where(".".join(path), file, overrides), why=why, remedy=remedy)


def yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong with a YAML text, and where in it, in one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark is not None else problem


def _what(finding: Any, path: list[str]) -> str:
    if finding["type"] in _WORDS:
        name = f"'{path[-1]}'" if path else "it"
        return f"{name} {_WORDS[finding['type']].format(**finding.get('ctx', {}))}"
    message: str = finding["msg"].removeprefix("Value error, ")
    return message.partition("; did you mean")[0]


def _where(key: str, file: str, overrides: Sequence[str]) -> str:
    for override in reversed(overrides):
        overridden = override.partition("=")[0]
        if key == overridden or key.startswith(f"{overridden}."):
            return f"--set {override}" + (f" ({key})" if key != overridden else "")
    return f"{file}: {key}" if key else file


def _meaning(model: type[BaseModel], path: list[str]) -> str:
    """What a key is for, and its default: what its author would look up."""
    field = _field_at(model, path)
    if field is None or not field.description:
        return ""
    default = field.default
    simple = isinstance(default, str | int | float) and default != ""
    return " ".join(f"{path[-1]}: {field.description}".split()) + (f" Default: {default}" if simple else "")


def _field_at(model: type[BaseModel], path: list[str]) -> FieldInfo | None:
    return _record_at(model, path[:-1]).model_fields.get(path[-1]) if path else None


def _record_at(model: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """The record that a path leads to; names of arms and positions in lists lead nowhere further."""
    for part in path:
        field = model.model_fields.get(part)
        records = _records(field.annotation) if field is not None else []
        model = records[0] if records else model
    return model


def _records(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [record for argument in get_args(annotation) for record in _records(argument)]
