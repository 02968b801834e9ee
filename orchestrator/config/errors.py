"""From pydantic's findings to the project's own error: file, key, why, the nearest valid name."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from trainables.errors import InputError, nearest

LONGEST_VALUE = 200  # characters of a wrong value that a message shows

_WORDS = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "string_type": "must be text",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must be at most {max_length} characters long",
    "literal_error": "must be {expected}",
    "too_short": "must not be empty",
    **dict.fromkeys(("dict_type", "model_type"), "must be keys and values"),
    "tuple_type": "must be a list",
}
"""What is wrong, by pydantic's type of finding; its own message is for programmers."""


def input_error(error: ValidationError, model: type[BaseModel], file: str, overrides: Sequence[str] = ()) -> InputError:
    """The first finding as an :class:`InputError`; the others are counted."""
    findings = error.errors(include_url=False)
    first = findings[0]
    # A list of which an item is wrong is also found to be too short: that is no second mistake.
    others = [f for f in findings[1:] if f["loc"] != first["loc"][: len(f["loc"])]]
    path = _keys(model, first["loc"])
    cause = first.get("ctx", {}).get("error")
    why = ""
    if isinstance(cause, InputError):
        what, why, remedy = cause.what, cause.why, cause.remedy
        path += [cause.where] if cause.where else []
    elif first["type"] == "extra_forbidden":
        what = f"unknown key '{path[-1]}'"
        remedy = nearest(path[-1], _record_at(model, path[:-1]).model_fields)
    elif first["type"] == "missing":
        what, remedy = f"'{path[-1]}' is missing", f"add the key: {_meaning(model, path)}"
    else:
        what, remedy = _what(first, path), _remedy(first, model, path)
        if "input" in first and not isinstance(first["input"], dict | list):
            why = f"the value is {_shown(first['input'])}"
    if others:
        listed = ", ".join(".".join(_keys(model, finding["loc"])) or "the whole" for finding in others[:3])
        why = f"{why + '; ' if why else ''}{len(others)} more to mend: {listed}"
    return InputError(what, where=place(".".join(path), file, overrides), why=why, remedy=remedy)


def _keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """A finding's place by the study's own keys: pydantic also names the members of unions that it tried."""
    kept: list[str] = []
    for part in (str(part) for part in loc if part != "[key]"):  # after a key that is itself wrong
        field = _field_at(model, kept)
        members = get_args(field.annotation) if field is not None else ()
        if not any(part in (getattr(member, "__name__", ""), str(member)) for member in members):
            kept.append(part)
    return kept


def _what(finding: Any, path: list[str]) -> str:
    name = f"'{path[-1]}'" if path else "it"
    if finding["type"] in _WORDS:
        return f"{name} {_WORDS[finding['type']].format(**finding.get('ctx', {}))}"
    message: str = finding["msg"].removeprefix("Value error, ")
    return message.partition("; ")[0] if "Valid: " in message else message


def _remedy(finding: Any, model: type[BaseModel], path: list[str]) -> str:
    message: str = finding["msg"]
    if "Valid: " in message:
        return message.partition("; ")[2]
    record = _record_at(model, path)
    if finding["type"] in ("model_type", "dict_type") and record is not model:
        example = next(iter(record.model_fields))
        if "pretrained" in record.model_fields and isinstance(finding["input"], str):
            example = "pretrained"
        value = _shown(finding["input"]).strip("'") if isinstance(finding["input"], str) else "VALUE"
        return f"{path[-1]}: {{{example}: {value}}}; its keys are {', '.join(record.model_fields)}"
    return _meaning(model, path)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def place(key: str, file: str, overrides: Sequence[str] = ()) -> str:
    """Where a key was set: by an override of it or of a part of it, else in the file."""
    for override in reversed(overrides):
        overridden = override.partition("=")[0]
        if key == overridden or overridden.startswith(f"{key}."):
            return f"--set {override}"
        if key.startswith((f"{overridden}.", f"{overridden} ")):  # a search space's key names its file
            return f"--set {override} ({key})"
    return ": ".join(filter(None, (file, key)))


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
