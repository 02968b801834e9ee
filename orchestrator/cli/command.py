"""What a command is, and which study it names."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.errors import InputError

if TYPE_CHECKING:
    from orchestrator.study import Study
    from trainables.storage import Location

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130

Options = argparse.Namespace
Command = Callable[[Options], int]

COMMANDS: dict[str, tuple[Command, str]] = {}  # each command's function and summary, by name
STILL_SECONDS = 8.0  # between two lines


class Voice:
    """How much is told beside a command's result; set once, of the command's options."""

    quiet = False
    verbose = False


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Say at once what is done, and go on saying so: on a new machine, first imports take a while."""
    if Voice.quiet:
        yield
        return
    done, began = threading.Event(), time.monotonic()
    print(f"h2h: {what} ...", file=sys.stderr, flush=True)

    def repeat() -> None:
        while not done.wait(STILL_SECONDS):
            seconds = time.monotonic() - began
            print(f"h2h: still {what} ({seconds:.0f} s) ...", file=sys.stderr, flush=True)

    threading.Thread(target=repeat, daemon=True).start()
    try:
        yield
    finally:
        done.set()
        if Voice.verbose:
            print(f"h2h: {what} took {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def say(what: str, how_far: str = "", /) -> None:
    """Tell what is done now, unless nobody wants to know."""
    if not Voice.quiet:
        print(f"h2h: {what} {how_far}...", file=sys.stderr, flush=True)


def command(summary: str) -> Callable[[Command], Command]:
    """Make a function a command of the name that it has after its underscore."""

    def add(command: Command) -> Command:
        COMMANDS[command.__name__.removeprefix("_")] = command, summary
        return command

    return add


def _begun(options: Options) -> Location | None:
    """The folder of a study that has begun, where the command names one."""
    from orchestrator.config.files import study_names
    from orchestrator.config.folder import STUDY_FILE
    from trainables.storage import Location

    if "://" in options.study:
        return Location(options.study)
    if options.study in study_names() or "\0" in options.study or len(options.study) > 4000:
        return None
    return Location(options.study) if (Path(options.study) / STUDY_FILE).is_file() else None


def study_named(options: Options) -> Study:
    """The study that the command names: a folder of one, or a file or name to make one of."""
    from orchestrator.config.folder import anew
    from orchestrator.study import Study

    folder = _begun(options)
    if folder is None:
        return Study(options.study, options.overrides)
    if options.overrides:
        raise InputError(
            "a frozen study cannot be overridden",
            where="--set",
            why=f"{options.study} holds a study that has begun",
            remedy=f"h2h resume {options.study}   goes on as it began;   h2h extend {options.study} --set ...   "
            f"gives a finished one more, and an unfinished one other resources;   {anew(folder)}",
        )
    return Study.open(folder)


def folder_awaited(options: Options) -> Location:
    """As :func:`folder_named`; a path that is none yet is taken for the folder of a study that is to begin. Raises
    InputError where a shipped study of that name has not begun, and a folder of that name here has a study."""
    from orchestrator.config.folder import STUDY_FILE, is_starting, no_study
    from trainables.storage import Location

    name = options.study
    is_path = "/" in name and not name.endswith((".yaml", ".yml")) and "\0" not in name
    if is_path and not options.overrides and (not Path(name).exists() or is_starting(Location(name))):
        return Location(name)
    folder = folder_named(options)
    if "://" not in name and (Path(name) / STUDY_FILE).is_file() and not (folder / STUDY_FILE).exists():
        raise no_study(folder)
    return folder


def folder_named(options: Options) -> Location:
    """The folder of the study that the command names, begun or not."""
    if not options.overrides and (folder := _begun(options)) is not None:
        return folder
    return study_named(options).folder
