"""Study files: finding, reading, freezing and writing them."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from pydantic import JsonValue, ValidationError

from orchestrator.config.arms import ArmSpec
from orchestrator.config.consistency import require_consistent
from orchestrator.config.errors import input_error, place
from orchestrator.config.folder import STUDY_FILE, no_study, studies_in
from orchestrator.config.study import StudySpec
from orchestrator.config.yaml_text import MOST_BYTES, parse_yaml
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
    raise InputError(
        f"no study '{name_or_path}'",
        where=str(path.absolute()),
        why="there is no such file and no shipped study of that name",
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
    return make_study(_mapping(parse_yaml(text, str(path), COMPARE), str(path)), overrides, where=str(path))


def make_study(content: Mapping[str, JsonValue], overrides: Sequence[str] = (), where: str = "study") -> StudySpec:
    """Validate a study given as nested dictionaries; see :func:`load_study`."""
    own = copy.deepcopy(_mapping(content, where))
    override(own, overrides)
    try:
        spec = StudySpec.model_validate(own)
        require_consistent(spec)
    except ValidationError as error:
        raise input_error(error, StudySpec, where, overrides) from error
    except InputError as error:
        found = place(error.where, where, overrides)
        raise InputError(error.what, where=found, why=error.why, remedy=error.remedy) from error
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


def read_frozen(folder: Location) -> bytes:
    """The file of a study that has begun, as it lies in its folder. Raises InputError if none has begun there."""
    file = folder / STUDY_FILE
    if not file.exists():
        raise no_study(folder)
    return file.read_bytes()


def open_frozen(folder: Location) -> StudySpec:
    """The study in a folder, as it was frozen there. Raises InputError if there is none, or its file was damaged."""
    where = str(folder / STUDY_FILE)
    return make_study(frozen_content(read_frozen(folder), where), where=where)


def frozen_content(data: bytes, where: str) -> StudyContent:
    """A frozen study's file as keys and values. Raises InputError if it is not a mapping in YAML."""
    return _mapping(parse_yaml(data, where, "put back what was there"), where)


def freeze(spec: StudySpec) -> StudySpec:
    """The study as it is kept: local paths are absolute and each arm's search space stands in it, so that it means the
    same anywhere, whatever becomes of other files. Raises InputError if a path names the home folder of no user."""

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
            "arms": {name: arm(given) for name, given in spec.arms.items()},
        }
    )


def require_same(spec: StudySpec, frozen: StudySpec, folder: Location) -> None:
    """Raises InputError if a study that goes on has changed since it began, in more than where it lies."""
    now, then = freeze(spec).model_dump(), frozen.model_dump()
    changed = [key for key in now if now[key] != then[key] and key != "storage"]
    if changed:
        raise InputError(
            f"the study in {folder} began with another '{changed[0]}'",
            where=", ".join(changed),
            why="a study that has begun cannot change",
            remedy=f"h2h resume {folder}   goes on as it began;   h2h run --set name=ANOTHER   makes a new one",
        )


def dump_study(spec: StudySpec) -> str:
    """The resolved study as YAML, every default written out."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def _mapping(content: object, where: str) -> StudyContent:
    if isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
        return dict(content)
    why = "it is empty" if content is None else f"it is of type {type(content).__name__}"
    if isinstance(content, Mapping):
        why = "a key is no text"
    raise InputError("the study is not a mapping of keys to values", where=where, why=why, remedy=COMPARE)
