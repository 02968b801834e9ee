"""Study files: finding, reading, freezing and writing them."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml
from pydantic import JsonValue

from orchestrator.config.arms import ArmSpec
from orchestrator.config.confirmation import YardstickSpec
from orchestrator.config.consistency import require_consistent
from orchestrator.config.errors import place, validated
from orchestrator.config.folder import STUDY_FILE, anew, is_text, no_study, studies_in
from orchestrator.config.study import StudySpec
from orchestrator.config.yaml_text import MOST_BYTES, Dumper, parse_yaml
from trainables.errors import InputError, nearest
from trainables.models.config import ModelConfig
from trainables.storage import Location, is_here, local_path

SHIPPED = Path(__file__).parent / "studies"
COMPARE = f"compare it with {SHIPPED}/demo.yaml"

StudyContent = dict[str, JsonValue]  # a study's keys and values, as its file has them


def study_names() -> list[str]:
    """Names of the shipped studies."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def study_file(name_or_path: str | Path) -> Path:
    """A shipped study's file by its name, any other by its path. Raises InputError if there is neither."""
    path = Path(name_or_path)
    if str(name_or_path) in study_names():
        return SHIPPED / f"{name_or_path}.yaml"
    try:
        if path.is_file():
            return path
        if str(name_or_path) and path.is_dir():
            raise no_study(Location(path))
        beside = [p.name for p in path.parent.glob("[!.]*.yaml")] if path.parent.is_dir() else []
        beside += studies_in(Location(path.parent))
    except (OSError, ValueError) as error:  # a name of a thousand characters, one with a NUL
        if isinstance(error, InputError):
            raise
        raise InputError("no study has such a name", where=str(path)[:200], why=str(error)[:200]) from error
    missing = "that is no file of text" if path.exists() else "there is no such file"
    raise InputError(
        f"no study '{name_or_path}'",
        where=str(path.absolute()),
        why=f"{missing} and no shipped study of that name",
        remedy=nearest(path.name, [*study_names(), *beside]),
    )


def load_study(name_or_path: str | Path, overrides: Sequence[str] = ()) -> StudySpec:
    """Read and validate a study, by the path of a YAML file or a shipped study's name. Raises InputError if there is
    none, it is not YAML, or something in it is wrong."""
    path = study_file(name_or_path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)  # it may be any file
    except OSError as error:
        raise InputError("the study cannot be read", where=str(path), why=str(error)) from error
    try:
        content = _mapping(parse_yaml(text, str(path), COMPARE), str(path))
    except InputError as error:
        if not is_text(path.name):
            raise
        raise InputError(
            "this is text to train on, and no study",
            where=str(path),
            why="a study is a YAML file",
            remedy=f"h2h init {path}   writes one for this text",
        ) from error
    return make_study(content, overrides, where=str(path))


def make_study(content: Mapping[str, JsonValue], overrides: Sequence[str] = (), where: str = "study") -> StudySpec:
    """Validate a study given as nested dictionaries; see :func:`load_study`."""
    own = copy.deepcopy(_mapping(content, where))
    override(own, overrides)
    spec = validated(StudySpec, own, where, overrides)
    try:
        require_consistent(spec)
    except InputError as error:
        raise error.at(place(error.where, where, overrides)) from error
    return spec


def override(content: dict[str, JsonValue], overrides: Sequence[str]) -> None:
    """Change keys and values in place. Raises InputError if one is not ``key=value``, is no YAML, or has no place."""
    if not isinstance(overrides, list | tuple) or not all(isinstance(one, str) for one in overrides):
        what = f"the overrides are a list of texts, not {overrides!r}"
        raise InputError(what, where="overrides", remedy=f'["{overrides}"]')
    for one in overrides:
        _put(content, one)


def _put(content: dict[str, JsonValue], one: str) -> None:
    key, equals, text = one.partition("=")
    where = f"--set {one}"
    if not equals or not key:
        raise InputError(f"'{one}' is not key=value", where="--set", remedy="as in --set confirm.seeds=6")
    value = parse_yaml(text, where)
    *parents, last = key.split(".")
    place: Any = content
    for parent in parents:
        if isinstance(place, dict) and not isinstance(place.get(parent), dict | list):
            place[parent] = {}
        place = place[_index(parent, place, where)]
    place[_index(last, place, where)] = value


def _index(key: str, place: JsonValue, where: str) -> str | int:
    if isinstance(place, dict):
        return key
    if isinstance(place, list) and key in map(str, range(len(place))):
        return int(key)
    positions = f"positions are 0 to {len(place) - 1}; " if isinstance(place, list) and place else ""
    raise InputError(
        f"'{key}' is no position in a list", where=where, remedy=f"{positions}to add one, set the whole list"
    )


def read_frozen(folder: Location) -> bytes:
    """The file of a study that has begun, as it lies in its folder. Raises InputError if none has begun there."""
    file = folder / STUDY_FILE
    if not file.exists():
        raise no_study(folder)
    return file.read_bytes()


def write_frozen(spec: StudySpec, folder: Location) -> None:
    """Write the file of a study that begins, or that was extended, into its folder."""
    (folder / STUDY_FILE).write_bytes(dump_study(spec).encode())


def open_frozen(folder: Location) -> StudySpec:
    """The study in a folder, as it was frozen there. Raises InputError if there is none, or its file was damaged."""
    where = str(folder / STUDY_FILE)
    return make_study(frozen_content(read_frozen(folder), where), where=where)


def frozen_content(data: bytes, where: str) -> StudyContent:
    """A frozen study's file as keys and values. Raises InputError if it is not a mapping in YAML."""
    return _mapping(parse_yaml(data, where, "put back what was there"), where)


def freeze(spec: StudySpec) -> StudySpec:
    """The study as it is kept: local paths are absolute, and each arm's search space and each task's definition stand
    in it, so that it means the same anywhere, whatever becomes of other files. Raises InputError if a path names the
    home folder of no user."""

    def path(name: str) -> str:
        return name if "://" in name else str(local_path(name))

    def existing(name: str | None) -> str | None:
        """A local folder's or file's path; a name on the hub stays one."""
        return path(name) if name and is_here(name) else name

    def files(names: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        return path(names) if isinstance(names, str) else names and tuple(path(name) for name in names)

    def model(given: ModelConfig) -> ModelConfig:
        return given.model_copy(update={"pretrained": existing(given.pretrained)})

    def arm(given: ArmSpec) -> ArmSpec:
        own = given.model and model(given.model)
        return given.model_copy(update={"space": given.search_space, "model": own})

    languages = list(dict.fromkeys(source.language for source in spec.corpora.sources))

    def yardsticks(given: YardstickSpec) -> YardstickSpec:
        tasks = given.tasks and given.tasks.model_copy(
            update={"suite": given.tasks.tasks_in(languages), "folder": given.tasks.folder and path(given.tasks.folder)}
        )
        return given.model_copy(update={"tasks": tasks})

    sources = tuple(
        source.model_copy(update={"files": files(source.files), "dataset": existing(source.dataset)})
        for source in spec.corpora.sources
    )
    return spec.model_copy(
        update={
            "storage": path(spec.storage),
            "corpora": spec.corpora.model_copy(update={"sources": sources}),
            "tokenizer": spec.tokenizer.model_copy(update={"pretrained": existing(spec.tokenizer.pretrained)}),
            "model": model(spec.model),
            "yardsticks": yardsticks(spec.yardsticks),
            "arms": {name: arm(given) for name, given in spec.arms.items()},
        }
    )


def going_on(spec: StudySpec, frozen: StudySpec, folder: Location) -> StudySpec:
    """The study that a folder has, as it goes on from its file: text that the file names by relative paths may lie in
    another folder of this machine now, as a job's does. Whether it is the same text is not looked at. Raises InputError
    if the study has changed since it began, in more than where it lies."""
    given = spec.model_dump(mode="json")
    now, then, folders = freeze(spec), frozen.model_dump(mode="json"), set[str]()
    changed = [
        key
        for key, value in now.model_dump(mode="json").items()
        if key != "storage"
        and value != then[key]
        and not (key in _READ_FROM_FILES and _has_moved(given[key], value, then[key], folders))
    ]
    if changed:
        raise InputError(
            f"the study in {folder} began with another '{changed[0]}'",
            where=", ".join(changed),
            why="a study that has begun cannot change",
            remedy=f"h2h resume {folder}   goes on as it began;   {anew(folder)}",
        )
    return now.model_copy(update={"storage": frozen.storage})


_READ_FROM_FILES = ("corpora", "tokenizer")  # before the first trial; models are read by each trial


def _has_moved(given: JsonValue, now: JsonValue, then: JsonValue, folders: set[str]) -> bool:
    """Whether two frozen values differ but in the one folder of this machine to which the relative paths among the
    ``given`` belong: that of ``then`` comes to be in ``folders``."""
    if isinstance(given, dict) and isinstance(now, dict) and isinstance(then, dict):
        alike = now.keys() == then.keys()
        return alike and all(_has_moved(given.get(key), now[key], then[key], folders) for key in now)
    if isinstance(given, list) and isinstance(now, list) and isinstance(then, list):
        alike = len(now) == len(then)
        return alike and all(_has_moved(*values, folders) for values in zip(given, now, then, strict=True))
    if now == then or not isinstance(given, str) or not isinstance(then, str):
        return now == then
    below = f"/{PurePath(given)}"
    if given == now or not then.startswith("/") or not then.endswith(below):
        return False
    folders.add(then.removesuffix(below))
    return len(folders) == 1


def dump_study(spec: StudySpec) -> str:
    """The resolved study as YAML, every default written out."""
    return yaml.dump(spec.model_dump(mode="json"), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


def _mapping(content: object, where: str) -> StudyContent:
    if isinstance(content, Mapping):
        return dict(content)
    why = "it is empty" if content is None else f"it is of type {type(content).__name__}"
    raise InputError("the study is not a mapping of keys to values", where=where, why=why, remedy=COMPARE)
