"""What TAB completes: commands, flags, shipped studies, arms and trials of a study on this machine, keys of --set.

Imported by the shell's requests alone. Nothing here asks a network or fails: a name that cannot be known is not
offered.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin

import argcomplete
from argcomplete.completers import FilesCompleter
from argcomplete.shell_integration import shellcode

from trainables.config import Config
from trainables.errors import InputError

Completer = Callable[..., Iterable[str]]


def script(shell: str) -> str:
    """What a shell evaluates so that it completes h2h."""
    return str(shellcode(["h2h"], shell=shell))


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, and end this process; nothing where no shell asks."""
    for sub in _commands(parser):
        for action in sub._actions:
            if action.dest in COMPLETERS:
                action.completer = COMPLETERS[action.dest]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options="long")


def _commands(parser: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [sub for action in found for sub in action.choices.values()]


def _studies(prefix: str, **_: object) -> list[str]:
    from orchestrator.config.files import study_names

    return [*study_names(), *FilesCompleter()(prefix)]


def _content(parsed_args: argparse.Namespace) -> dict[str, object]:
    """Of the study that was typed; nothing where it is not one on this machine."""
    from orchestrator.config.files import study_file
    from orchestrator.config.folder import STUDY_FILE
    from orchestrator.config.yaml_text import parse_yaml

    with suppress(InputError, OSError):
        own = Path(str(parsed_args.study)) / STUDY_FILE
        content = parse_yaml((own if own.is_file() else study_file(str(parsed_args.study))).read_bytes(), "")
        return dict(content) if isinstance(content, dict) else {}
    return {}


def _arms(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    arms = _content(parsed_args).get("arms")
    return list(arms) if isinstance(arms, dict) else []


def _settings(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Of a study that has begun: it has its search spaces in its file."""
    arms = _content(parsed_args).get("arms")
    for key in (str(parsed_args.arm), "space", "dimensions"):
        arms = arms.get(key) if isinstance(arms, dict) else None
    return [f"{name}=" for name in arms] if isinstance(arms, dict) else []


def _trials(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    with suppress(OSError):
        return [path.name for path in (Path(str(parsed_args.study)) / "trials").iterdir()]
    return []


def _keys(**_: object) -> list[str]:
    from orchestrator.config.study import StudySpec

    return [f"{key}=" for key in _keys_of(StudySpec)]


def _keys_of(config: type[Config], before: str = "") -> Iterator[str]:
    for name, field in config.model_fields.items():
        yield before + name
        for inner in _parts(field.annotation):
            yield from _keys_of(inner, f"{before}{name}.")


def _parts(annotation: object) -> list[type[Config]]:
    """The settings that a key holds, where it holds some; of lists and mappings none: their names are the user's."""
    if get_origin(annotation) in (Union, UnionType):
        return [part for own in get_args(annotation) for part in _parts(own)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, Config) else []


def _suites(**_: object) -> list[str]:
    from orchestrator.config.task_files import suite_names, task_names

    return [*suite_names(), *task_names()]


def _documents(**_: object) -> list[str]:
    from orchestrator.cli.output import DOCUMENTS

    return ["study", *DOCUMENTS]


COMPLETERS: dict[str, Completer] = {
    "study": _studies,
    "studies": _studies,
    "arm": _arms,
    "settings": _settings,
    "trial": _trials,
    "overrides": _keys,
    "tasks": _suites,
    "of": _documents,
}
"""By an option's name in the parsed options; of others file names are offered, or the choices that they have."""
