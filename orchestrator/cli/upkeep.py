"""Commands for what is around studies: the machine, the files of a new one, the disk, the shell."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.cli.command import EXIT_FAILED, Options, Voice, command, folder_named, loading, say
from orchestrator.cli.output import Written, print_json
from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from orchestrator.execution.cleaning import Cleaning
    from orchestrator.planning.draft import Group

STATES = {"ok": ("ok", "green"), "warning": ("!", "yellow"), "problem": ("PROBLEM", "red")}


@command("check whether studies can run here: versions, machine, Ray, GPU, storage, tokens; exits 1 on a problem")
def _doctor(options: Options) -> int:
    with loading("loading what is looked at"):
        from orchestrator.execution.checkup import check_up
    found = check_up(
        Location(options.storage or "studies"),
        options.address,
        ray=options.ray,
        say=lambda what: say(f"looking at {what}"),
    )
    if options.json:
        print_json(found)
    else:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        rows = Table.grid(padding=(0, 2))
        for check in found.checks:
            word, colour = STATES[check.state]
            told = Text(check.found) if not check.remedy else Text(f"{check.found}\nremedy: {check.remedy}")
            rows.add_row(Text(word, style=colour), Text(check.name), told)
        Console().print(rows, highlight=False)
    return 0 if found.sound else EXIT_FAILED


@command("remove a study's checkpoints that nothing needs any more, after asking")
def _clean(options: Options) -> int:
    from orchestrator.execution.cleaning import remove_checkpoints, unneeded_checkpoints
    from orchestrator.reporting.results import Results

    folder = folder_named(options)
    Results(folder)  # refuses a folder without a study
    with loading(f"reading the checkpoints of {folder}"):
        found = unneeded_checkpoints(folder)
    if not options.json:
        _show_unneeded(found)
    if found.unneeded and (options.yes or (not options.json and _agreed("remove them? [y/N] "))):
        found = remove_checkpoints(found, say)
        if not options.json:
            from orchestrator import formatting

            print(f"removed {_checkpoints(len(found.unneeded))}: {formatting.size(found.freed_bytes)} are free")
    elif found.unneeded and not options.json:
        print("nothing was removed; --yes removes them")
    if options.json:
        print_json(found)
    return 0


def _show_unneeded(found: Cleaning) -> None:
    from rich.console import Console

    from orchestrator import formatting
    from orchestrator.reporting.table import Table, on_terminal

    for note in found.notes:
        print(f"note: {note}")
    kept = f"{_checkpoints(found.kept)} ({formatting.size(found.kept_bytes)}) stay"
    if not found.unneeded:
        print(f"no checkpoint can go; {kept}")
        return
    rows = [[one.trial, f"{one.step:,}", formatting.size(one.num_bytes), one.why] for one in found.unneeded]
    table = Table.of(["trial", "step", "size", "why it is not needed"], rows, ("left", "right", "right"))
    Console().print(on_terminal(table), highlight=False)
    print(f"{_checkpoints(len(rows))} can go, which frees {formatting.size(found.freed_bytes)}; {kept}:")
    print("resume, extend, export, evaluate and verify --rescore find what they need")


def _checkpoints(number: int) -> str:
    from orchestrator import formatting

    return formatting.plural(number, "checkpoint")


def _agreed(question: str) -> bool:
    """What a person says; no, where there is none to ask."""
    if not sys.stdin.isatty():
        return False
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


@command("write a commented study for files of your own, with settings that suit them")
def _init(options: Options) -> int:
    with loading("loading what reads files"):
        from orchestrator.planning.draft import KINDS, draft, groups_of, require_name, sources_of
    asks = sys.stdin.isatty() and not (options.yes or options.json or Voice.quiet)
    given = options.files or (_words(_asked("files or folders of text", "text/*.txt")) if asks else [])
    if not given:
        raise InputError(
            "which files?", where="h2h init", why="no terminal to ask on", remedy="h2h init en=my/english fr=my/french"
        )
    groups = groups_of(given)
    if asks:
        groups = _with_languages(groups)
    found = [sources_of(group) for group in groups]
    sources, seen = [source for own, _ in found for source in own], [said for _, said in found]
    if not options.json:
        print("\n".join(seen))
    kind = options.kind or (_chosen("kind of model", KINDS) if asks else KINDS[0])
    name = options.name or (_asked("name of the study", "my-study") if asks else "my-study")
    require_name(name)
    out = Path(options.out or f"{name}.yaml")
    _require_free(out, force=options.force)
    with loading("checking the files"):
        from orchestrator.planning.arm_plan import checked_plans
        from orchestrator.planning.design import require_answerable

        drafted = draft(sources, name, kind, options.storage or "studies", seen)
        checked_plans(drafted.spec)
        require_answerable(drafted.spec)
    out.write_text(drafted.text)
    if options.json:
        print_json(Written(files=(str(out.absolute()),)))
        return 0
    print(f"{drafted.found[-1]}\nwrote {out}; see what it takes with:  h2h plan {out}")
    return 0


def _require_free(out: Path, *, force: bool) -> None:
    if not out.absolute().parent.is_dir():
        raise InputError(f"there is no folder {out.absolute().parent}", where="--out", remedy="make it, or another one")
    if out.exists() and not force:
        raise InputError(f"{out} is there already", where="--out", remedy="--force writes over it, --out FILE another")


def _asked(question: str, usual: str) -> str:
    """What a person says; without a word the usual."""
    try:
        return input(f"{question} [{usual}]: ").strip() or usual
    except EOFError:
        print()
        return usual


def _words(said: str) -> list[str]:
    """As a shell takes them apart; whole where quotes are not even."""
    try:
        return shlex.split(said)
    except ValueError:
        return [said]


_Choice = TypeVar("_Choice", bound=str)


def _chosen(question: str, among: tuple[_Choice, ...]) -> _Choice:
    """Which of these a person says, asked again until it is one; without a word the first."""
    while True:
        said = _asked(f"{question}: {' or '.join(among)}", among[0])
        if said in among:
            return among[among.index(said)]


def _with_languages(groups: list[Group]) -> list[Group]:
    from dataclasses import replace

    return [
        group if group.language else replace(group, language=_asked(f"language of {group.shown}", "text"))
        for group in groups
    ]


@command('print what completes words of h2h in a shell: eval "$(h2h completion bash)"')
def _completion(options: Options) -> int:
    from orchestrator.cli.completion import script

    print(script(options.shell))
    return 0
