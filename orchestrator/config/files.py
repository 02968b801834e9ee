"""Study files: finding, reading, overriding and writing them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from orchestrator.config.errors import input_error, yaml_problem
from orchestrator.config.folder import no_study, studies_in
from orchestrator.config.study import ArmSpec, StudySpec
from trainables.errors import InputError, nearest
from trainables.models.config import ModelConfig
from trainables.storage import Location

SHIPPED = Path(__file__).parent / "studies"


def study_names() -> list[str]:
    """Names of the shipped studies."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def study_file(name_or_path: str | Path) -> Path:
    """The YAML file of a study: a path as it is, a shipped study by its name.

    Raises:
        InputError: there is neither.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    if str(name_or_path) and path.is_dir() and str(name_or_path) not in study_names():
        raise no_study(Location(path))
    if str(name_or_path) in study_names():
        return SHIPPED / f"{name_or_path}.yaml"
    beside = [p.name for p in path.parent.glob("[!.]*.yaml")] if path.parent.is_dir() else []
    beside += studies_in(Location(path.parent))
    raise InputError(
        f"no study '{name_or_path}'",
        where=str(path.absolute()),
        why="there is no such file and no shipped study of that name",
        remedy=nearest(path.name, [*study_names(), *beside]),
    )


def load_study(name_or_path: str | Path, overrides: Sequence[str] = ()) -> StudySpec:
    """Read and validate a study.

    Args:
        name_or_path: a YAML file, or a shipped study's name.
        overrides: ``key=value`` each, as of ``--set``: dotted keys, YAML values.

    Raises:
        InputError: no such study, not YAML, or something in it is wrong.
    """
    path = study_file(name_or_path)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeysLoader)
    except UnicodeDecodeError as error:
        remedy = "save it as UTF-8"
        raise InputError(
            "the study is not UTF-8 text", where=str(path), why=str(error), remedy=remedy
        ) from error
    except yaml.YAMLError as error:
        raise InputError(
            "the study is not YAML",
            where=str(path),
            why=yaml_problem(error),
            remedy=f"compare it with {SHIPPED}/demo.yaml",
        ) from error
    return make_study(content, overrides, where=str(path))


def make_study(content: Any, overrides: Sequence[str] = (), where: str = "study") -> StudySpec:
    """Validate a study given as nested dictionaries; see :func:`load_study`."""
    if isinstance(overrides, str):
        raise InputError(
            f"the overrides are a list, not the text '{overrides}'",
            where="overrides",
            remedy=f'["{overrides}"]',
        )
    content = copy.deepcopy(_mapping(content, where))
    for override in overrides:
        _override(content, override)
    try:
        return StudySpec.model_validate(content)
    except ValidationError as error:
        raise input_error(error, StudySpec, where, overrides) from error


def frozen_content(data: bytes, where: str) -> dict[str, Any]:
    """The keys and values of a study's file as it was frozen in its folder.

    Args:
        data: the file.
        where: its name, for errors.

    Raises:
        InputError: it is not a mapping in YAML.
    """
    try:
        content = yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise InputError(
            "the study is not YAML", where=where, why=yaml_problem(error), remedy="put back what was there"
        ) from error
    return _mapping(content, where)


def absolute(spec: StudySpec) -> StudySpec:
    """The study with its local paths made absolute, so that it can be resumed from any working directory."""

    def path(name: str) -> str:
        return name if "://" in name else str(Path(name).expanduser().absolute())

    def files(names: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        return path(names) if isinstance(names, str) else names and tuple(path(name) for name in names)

    def folder(name: str | None) -> str | None:
        return path(name) if name and Path(name).expanduser().exists() else name

    sources = tuple(
        source.model_copy(update={"files": files(source.files), "dataset": folder(source.dataset)})
        for source in spec.corpora.sources
    )

    def model(given: ModelConfig) -> ModelConfig:
        if given.pretrained is None or not Path(given.pretrained).expanduser().exists():
            return given
        return given.model_copy(update={"pretrained": path(given.pretrained)})

    def arm(given: ArmSpec) -> ArmSpec:
        space = given.space
        if space is not None and space.endswith((".yaml", ".yml")):
            space = path(space)
        return given.model_copy(update={"space": space, "model": given.model and model(given.model)})

    return spec.model_copy(
        update={
            "storage": path(spec.storage),
            "corpora": spec.corpora.model_copy(update={"sources": sources}),
            "model": model(spec.model),
            "arms": {name: arm(given) for name, given in spec.arms.items()},
        }
    )


def dump_study(spec: StudySpec) -> str:
    """The resolved study as YAML, every default written out."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def _mapping(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        why = "it is empty" if content is None else f"it is of type {type(content).__name__}"
        remedy = f"compare it with {SHIPPED}/demo.yaml"
        raise InputError("the study is not a mapping of keys to values", where=where, why=why, remedy=remedy)
    return content


def _override(content: Any, override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError(
            f"'{override}' is not key=value", where="--set", remedy="as in --set confirm.seeds=6"
        )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(
            f"the value of {key} is not YAML", where=f"--set {override}", why=yaml_problem(error)
        ) from error
    *parents, last = key.split(".")
    for parent in parents:
        if isinstance(content, list) and parent.isdigit() and int(parent) < len(content):
            content = content[int(parent)]
        elif isinstance(content, dict):
            if not isinstance(content.get(parent), dict | list):
                content[parent] = {}
            content = content[parent]
        else:
            raise InputError(
                f"there is nothing under '{parent}' to set",
                where=f"--set {override}",
                remedy=_positions(content),
            )
    if isinstance(content, list):
        if not last.isdigit() or int(last) >= len(content):
            raise InputError(
                f"'{last}' is no position in that list", where=f"--set {override}", remedy=_positions(content)
            )
        content[int(last)] = value
    else:
        content[last] = value


def _positions(content: Any) -> str:
    return f"positions are 0 to {len(content) - 1}; to add an item, set the whole list" if content else ""


class _UniqueKeysLoader(yaml.SafeLoader):
    """YAML in which no key is written twice: of two the last would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key.value}' is there twice", problem_mark=key.start_mark
                )
        return super().construct_mapping(node, deep)
