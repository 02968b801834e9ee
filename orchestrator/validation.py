"""From pydantic's findings to the project's own error: file, key, why, the nearest valid name."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from trainables.errors import InputError, nearest


def input_error(error: ValidationError, model: type[BaseModel], file: str) -> InputError:
    """The first finding as an :class:`InputError`; the others are counted.

    Args:
        error: what pydantic found.
        model: what was validated, for the valid names.
        file: where it was written.
    """
    findings = error.errors()
    first = findings[0]
    path = [str(part) for part in first["loc"]]
    where = f"{file}: {'.'.join(path)}" if path else file
    cause = first.get("ctx", {}).get("error")
    what, why, remedy = _message(first["msg"]), "", ""
    if isinstance(cause, InputError):
        what, why, remedy = cause.what, cause.why, cause.remedy
    elif first["type"] == "extra_forbidden":
        what = f"unknown key '{path[-1]}'"
        remedy = nearest(path[-1], _fields_at(model, path[:-1]))
    elif first["type"] == "missing":
        what, remedy = f"'{path[-1]}' is missing", f"add the key '{path[-1]}'"
    elif "input" in first and not isinstance(first["input"], dict | list):
        why = f"the value is {first['input']!r}"
    if len(findings) > 1:
        others = ", ".join(".".join(str(part) for part in finding["loc"]) or "the whole" for finding in findings[1:4])
        why = f"{why + '; ' if why else ''}{len(findings) - 1} more to mend: {others}"
    return InputError(what, where=where, why=why, remedy=remedy)


def _message(text: str) -> str:
    return text.removeprefix("Value error, ")


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Valid keys of the record that a path leads to."""
    for part in path:
        field = model.model_fields.get(part)
        annotation = field.annotation if field is not None else None
        models = [m for m in _models(annotation)] if annotation is not None else [model]
        if models:
            model = models[0]
    return list(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
