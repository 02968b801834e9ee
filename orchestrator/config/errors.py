"""From pydantic's findings to the project's own error: file, key, why, the nearest valid name."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, from_json, to_json

from trainables.errors import InputError, near, nearest

Record = TypeVar("Record", bound=BaseModel)
Path = tuple[str, ...]  # keys, names of arms and positions in lists

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
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be keys and values"),
    "tuple_type": "must be a list",
}
"""What is wrong, by pydantic's type of finding; its own message is for programmers."""


def validated(
    model: type[Record], content: object, file: str = "", overrides: Sequence[str] = (), key: str = ""
) -> Record:
    """The record that keys and values below a ``key`` describe, each of its own type: true is no number, nor is text.
    Raises InputError with the first mistake; the others are counted."""
    try:
        text = to_json(content, fallback=str)
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        found = _input_error(error, model, from_json(text))
        raise found.at(place(".".join(filter(None, (key, found.where))), file, overrides)) from error
    except PydanticSerializationError as error:  # half a character, hundreds of levels
        raise InputError("a value is none that JSON knows", where=file, why=str(error)) from error


def _input_error(error: ValidationError, model: type[BaseModel], content: object) -> InputError:
    findings: list[tuple[Path, Any]] = [(_path(one, content), one) for one in error.errors(include_url=False)]
    # What is wrong inside of something is no second mistake: a list too short, a space that might be a name instead.
    around = {path[:length] for path, _ in findings for length in range(len(path))}
    path, *others = dict.fromkeys(path for path, _ in findings if path not in around)
    # Of a union every member has its finding: most is known by the one whose own check failed.
    here = sorted((one for at, one in findings if at == path), key=lambda one: one["type"] != "value_error")
    context, why = here[0].get("ctx", {}), ""
    cause, records = context.get("error"), _at(model, path[:-1])[2]
    if isinstance(cause, InputError):
        what, why, remedy = cause.what, cause.why, cause.remedy
        path += (cause.where,) if cause.where else ()
    elif here[0]["type"] == "extra_forbidden":
        what = f"unknown key '{path[-1]}'"
        remedy = nearest(path[-1], {key for record in records for key in record.model_fields})
    elif "discriminator" in context:
        kinds = [kind for record in records for kind in get_args(record.model_fields[path[-1]].annotation)]
        what, remedy = f"'{path[-1]}' must be one of {', '.join(kinds)}", nearest(context.get("tag", ""), kinds)
    elif here[0]["type"] == "missing":
        what, remedy = f"'{path[-1]}' is missing", f"add the key: {_meaning(model, path)}"
    else:
        what, value = _what(here, path), here[0]["input"]
        # What a section's own check says is what to do about it.
        remedy = "" if here[0]["type"] == "value_error" and _at(model, path)[2] else _meaning(model, path)
        if here[-1]["type"] == "string_type" and isinstance(value, int | float):
            remedy = "write it in quotes, as all text that looks like a number or like true or false"
        elif isinstance(value, str):
            remedy = f"{_meant(value, here)}{remedy}"
        why = "" if isinstance(value, dict | list) else f"the value is {value!r:.200}"  # it may be of any length
    if others:
        listed = ", ".join(".".join(other) or "the whole" for other in others[:3])
        why = f"{why + '; ' if why else ''}{len(others)} more to mend: {listed}"
    return InputError(what, where=".".join(path), why=why, remedy=remedy)


def _path(finding: Any, content: Any) -> Path:
    """A finding's place by the keys of what was given: pydantic also names the members of unions that it tried."""
    path: Path = ()
    for part in finding["loc"]:
        if part in content if isinstance(content, Mapping) else isinstance(part, int):
            content, path = content[part], (*path, str(part))
    lacking = finding["loc"][-1] if finding["type"] == "missing" else finding.get("ctx", {}).get("discriminator")
    return path if lacking is None else (*path, lacking.strip("'"))


def _what(here: list[Any], path: Path) -> str:
    if here[0]["type"] not in _WORDS:
        return str(here[0]["msg"]).removeprefix("Value error, ")
    words = [_worded(one) for one in here if one["type"] in _WORDS]
    others = dict.fromkeys(word.removeprefix("must be ") for word in words[1:] if word != words[0])
    named = path[-2:] if path and path[-1].isdecimal() else path[-1:]  # of a list's value also the list
    return " or ".join([f"{repr('.'.join(named)) if path else 'it'} {words[0]}", *others])


def _worded(finding: Any) -> str:
    context = finding.get("ctx", {})
    if context.get("pattern", "").startswith(_NAME):
        others = re.sub(r"\\(.)", r"\1", context["pattern"].removeprefix(_NAME).removesuffix("]*$"))
        letters = "must be of the letters A to Z and a to z, digits"
        return f"{letters} and {' '.join(others)}, and begin with a letter or digit"
    return _WORDS[finding["type"]].format(**context)


_NAME = "^[A-Za-z0-9][A-Za-z0-9"
"""How the pattern of a name begins; the other characters that it may have follow."""


def _meant(value: str, here: list[Any]) -> str:
    """``did you mean ...? `` for a text where a number or one of some names belongs."""
    for finding in here:
        if finding["type"] == "literal_error":
            return near(value, re.findall(r"'([^']*)'", finding["ctx"]["expected"]))
        if finding["type"] not in ("float_type", "int_type"):
            continue
        if re.fullmatch(r"[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?", value):
            return "write it without quotes (in Python as a number: PyYAML reads 1e6 as text). "
        found = _AMOUNT.fullmatch(value)
        if found is not None and found["unit"].lower() in _TIMES:
            amount = float(re.sub("[,_]", "", found["digits"])) * _TIMES[found["unit"].lower()]
            return f"did you mean {int(amount) if amount.is_integer() and amount < 1e15 else f'{amount:g}'}? "
    return ""


_AMOUNT = re.compile(r"(?P<digits>[1-9][0-9]{0,2}(?:[,_][0-9]{3})+|[0-9]+(?:[.][0-9]+)?) ?(?P<unit>[a-zA-Z%]?)")
_TIMES = {"": 1.0, "%": 0.01, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
"""What an amount like 20k or 5% comes to, by its ending."""


def place(key: str, file: str, overrides: Sequence[str] = ()) -> str:
    """Where a key was set: by an override of it or of a part of it, else in the file."""
    dotted = re.sub(r"\[([0-9]+)\]", r".\1", key)  # as --set has positions in lists
    for override in reversed(overrides):
        overridden = override.partition("=")[0]
        if dotted == overridden or overridden.startswith(f"{dotted}."):
            return f"--set {override}"
        if dotted.startswith((f"{overridden}.", f"{overridden} ")):  # a search space's names its file
            return f"--set {override} ({key})"
    return ": ".join(filter(None, (file, key)))


def _meaning(model: type[BaseModel], path: Path) -> str:
    """What a key is for, its default, and how more than one value is written: what its author would look up."""
    name, field, records = _at(model, path)
    if field is None:
        return ""
    default, form = field.default, _form(field.annotation)
    simple = f" Default: {default}" if isinstance(default, str | int | float) and default != "" else ""
    keys = f", with the keys {', '.join(records[0].model_fields)}" if records else ""
    written = f" Write it as {form}{keys}" if field.description and form[0] in "{[" else ""
    return " ".join(f"{name}: {field.description or form}{simple}{written}".split())


def _form(annotation: Any) -> str:
    """How a value of a type is written, as ``[{language: VALUE}]``: with the keys that it must have."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        needed = {key: field for key, field in annotation.model_fields.items() if field.is_required()}
        return f"{{{', '.join(f'{key}: {_form(field.annotation)}' for key, field in needed.items()) or 'KEY: VALUE'}}}"
    kind, arguments = get_origin(annotation), get_args(annotation)
    if kind is Literal:
        return str(arguments[0])
    if kind is dict:
        return f"{{NAME: {_form(arguments[1])}}}"
    if kind is tuple:
        return f"[{_form(arguments[0])}]"
    return next((form for form in map(_form, arguments) if form[0] in "{["), "VALUE")


def _at(model: type[BaseModel], path: Path) -> tuple[str, FieldInfo | None, list[type[BaseModel]]]:
    """The last setting on a path, which names of arms and positions in lists are not, and the records that it holds."""
    name, field, records = "", None, [model]
    for part in path:
        found = next((record.model_fields[part] for record in records if part in record.model_fields), None)
        if found is not None:
            name, field, records = part, found, _records(found.annotation)
    return name, field, records


def _records(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [record for argument in get_args(annotation) for record in _records(argument)]
