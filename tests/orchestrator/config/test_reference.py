"""The schema of a study for editors, and the reference of its keys: both say what the program accepts."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from orchestrator.cli import main
from orchestrator.config.files import SHIPPED, dump_study, freeze, load_study, study_names
from orchestrator.config.study import StudySpec, study_schema
from tests.helpers.repository import REPOSITORY

VALIDATOR = jsonschema.Draft202012Validator(study_schema())


def errors(content: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(content)]


def shipped(name: str) -> Any:
    return yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())


def test_the_command_prints_a_sound_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == study_schema()
    jsonschema.Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize("name", study_names())
def test_shipped_studies_fit_the_schema(name: str) -> None:
    """As they are written, and as they are frozen."""
    assert errors(shipped(name)) == []
    assert errors(yaml.safe_load(dump_study(freeze(load_study(name))))) == []


NAMED_BY_USERS = {"arms", "options", "training", "config", "dimensions", "first"}
"""Keys whose mappings have names of arms and settings for keys: the objective and others check them."""


def records(content: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a study's records are: all mappings but those whose keys are names."""
    if isinstance(content, dict):
        if path == ("training",) or not NAMED_BY_USERS & set(path[-1:]):
            yield path
        for key, value in content.items():
            yield from records(value, (*path, key))
    elif isinstance(content, list) and path[-1] != "first":
        for index, value in enumerate(content):
            yield from records(value, (*path, index))


def at(content: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def test_an_unknown_key_is_refused_wherever_it_stands() -> None:
    content = yaml.safe_load(dump_study(freeze(load_study("demo"))))
    places = list(records(content))
    assert {(), ("corpora",), ("corpora", "sources", 0), ("arms", "vanilla"), ("confirm",), ("search",)} <= set(places)
    for path in places:
        changed = copy.deepcopy(content)
        at(changed, path)["no_such_key"] = 1
        assert errors(changed), path


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", 5), ("confirm.seeds", 0), ("confirm.seeds", "six"), ("corpora.alpha", 2), ("arms", {}), ("budget", 5)],
)
def test_wrong_values_do_not_fit(key: str, value: object) -> None:
    content = shipped("demo")
    *path, last = key.split(".")
    at(content, tuple(path))[last] = value
    assert errors(content)


def test_what_is_required_is_required() -> None:
    for key in ("name", "corpora", "model", "arms", "budget"):
        content = shipped("demo")
        del content[key]
        assert any(f"'{key}' is a required property" in error for error in errors(content))


def test_the_reference_is_what_its_script_writes() -> None:
    script = REPOSITORY / "docs" / "study_reference.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert (REPOSITORY / "docs" / "study.md").read_text() == done.stdout, (
        "python docs/study_reference.py > docs/study.md"
    )


def test_the_reference_has_every_key() -> None:
    text = (REPOSITORY / "docs" / "study.md").read_text()
    schema = study_schema()
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    keys = {key for definition in definitions.values() for key in definition.get("properties", {})}  # type: ignore[union-attr]
    keys |= set(StudySpec.model_fields)
    missing = {key for key in keys if f"`{key}`" not in text}
    assert not missing
