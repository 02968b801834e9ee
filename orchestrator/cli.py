"""The command line, ``h2h``. Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 interrupted.

Each command imports what it needs: reading a study takes neither torch nor Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from trainables.errors import InputError

if TYPE_CHECKING:
    from orchestrator.analysis.results import Results
    from orchestrator.study import Study
    from trainables.storage import Location

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130

STILL_SECONDS = 8.0
"""While a command loads what it needs, it says so this often."""

Options = argparse.Namespace
Command = Callable[[Options], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help()
        return EXIT_INPUT
    options = parser.parse_args(words)
    command: Command = options.command
    try:
        return command(options)
    except InputError as error:
        print(f"h2h: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("h2h: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # what reads the output has had enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# --- the words of the command line -----------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Names the nearest command of a misspelt one."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument COMMAND: invalid choice: "):
            given = message.split("'")[1] if "'" in message else ""
            close = get_close_matches(given, COMMANDS, n=1)
            hint = f"did you mean 'h2h {close[0]}'? " if close else ""
            message = f"there is no command '{given}'\n  remedy: {hint}h2h --help lists all"
        self.exit(EXIT_INPUT, f"h2h: {message}\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"headtohead {version('headtohead')}")
        except PackageNotFoundError:
            print("headtohead, not installed as a package")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="h2h", description="Which language-model pretraining objective wins on your budget?")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (command, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(command=command)
        if name not in ("list", "schema"):
            what = "a study's folder" if name == "verify" else _STUDY_HELP
            sub.add_argument("study", metavar="STUDY", help=what)
        if name not in ("list", "schema", "verify"):
            sub.add_argument(
                "--set",
                dest="overrides",
                metavar="KEY=VALUE",
                action="append",
                default=[],
                help="override a key of the study, as confirm.seeds=6; the value is YAML; may be repeated",
            )
        if name in _OPTIONS:
            _OPTIONS[name](sub)
    return parser


_STUDY_HELP = "a study file, a shipped study's name (h2h list), or a study's folder"


def _address(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--address", help="a Ray cluster's address (default: RAY_ADDRESS, else this machine)")


def _training_options(sub: argparse.ArgumentParser) -> None:
    _address(sub)
    sub.add_argument("--plain", action="store_true", help="plain lines instead of the live dashboard")


def _plan_options(sub: argparse.ArgumentParser) -> None:
    _address(sub)
    sub.add_argument(
        "--no-calibration",
        dest="calibration",
        action="store_false",
        help="do not measure a step of each arm on this machine, which takes some seconds",
    )


def _corpus_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--samples", metavar="N", type=int, default=2, help="sequences shown of each language (default: 2)"
    )
    sub.add_argument("--svg", metavar="FILE", help="also write what is shown to FILE, as a picture")


def _export_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--to", metavar="DIR", required=True, help="folder to write, new or empty")
    sub.add_argument("--arm", help="which arm's model (default: the only one)")
    sub.add_argument("--trial", metavar="NAME", help="which trial's (default: the arm's first paired confirmation run)")
    sub.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    sub.add_argument(
        "--push-to-hub",
        metavar="REPO",
        help="also upload it to the Hugging Face hub, OWNER/NAME; private if new",
    )


def _submit_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--address", required=True, help="the job server, as http://127.0.0.1:8265")
    sub.add_argument("--no-wait", action="store_true", help="return once the job is submitted")
    sub.add_argument("--working-dir", type=Path, help="folder to send along (default: the study file alone)")
    sub.add_argument("--runtime-env", default="", help="Ray runtime environment: YAML text or a YAML file")


_OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "plan": _plan_options,
    "prepare": _address,
    "corpus": _corpus_options,
    "run": _training_options,
    "resume": _training_options,
    "extend": _training_options,
    "export": _export_options,
    "submit": _submit_options,
}


# --- which study ------------------------------------------------------------------------------------------------------


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


def _study(options: Options) -> Study:
    """The study that the command names: a folder of one, or a file or name to make one of."""
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
            "gives a finished one more, and an unfinished one other resources;   h2h run STUDY --set name=ANOTHER"
            "   makes a new one",
        )
    return Study.open(folder)


def _folder(options: Options) -> Location:
    if not getattr(options, "overrides", ()) and (folder := _begun(options)) is not None:
        return folder
    options.overrides = getattr(options, "overrides", [])
    return _study(options).folder


# --- running ----------------------------------------------------------------------------------------------------------


def _run(options: Options) -> int:
    return _train(options, lambda study: study.run(options.address))


def _resume(options: Options) -> int:
    return _train(options, lambda study: study.resume(options.address))


def _extend(options: Options) -> int:
    if not options.overrides:
        raise InputError(
            "no --set was given",
            where="h2h extend",
            why="it says what the study may spend more of",
            remedy="such as --set confirm.seeds=12 or --set search.budget_per_arm=20",
        )
    overrides, options.overrides = options.overrides, []

    def extend(study: Study) -> Results:
        from orchestrator.study import Study

        begun = Study.open(study.folder)
        begun.say = study.say
        return begun.extend(overrides, options.address)

    return _train(options, extend)


def _train(options: Options, work: Callable[[Study], Results]) -> int:
    with _loading(f"loading {options.study}"):
        from rich.console import Console

        from orchestrator.config.folder import STUDY_FILE
        from orchestrator.reporting.dashboard import Stage, follow, print_results
        from orchestrator.study import StudyError

        study = _study(options)
    console, stage = Console(force_terminal=False if options.plain else None), Stage()
    study.say = stage.say
    finished, began = threading.Event(), time.time()
    dashboard = threading.Thread(
        target=follow,
        args=(study.folder, console, finished.is_set),
        kwargs={"since": began, "stage": stage},
        daemon=True,
    )
    dashboard.start()

    def close_dashboard() -> None:
        finished.set()
        dashboard.join()

    try:
        results = work(study)
    except KeyboardInterrupt:
        close_dashboard()
        remedy = f"; go on with:  h2h resume {study.folder}" if (study.folder / STUDY_FILE).exists() else ""
        console.print(f"\nInterrupted{remedy}", soft_wrap=True, highlight=False)
        return EXIT_INTERRUPTED
    except StudyError as error:
        close_dashboard()
        print(f"h2h: the study failed: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        close_dashboard()
    print_results(results.history, study.folder, console)
    return 0


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Say at once what is done, and go on saying so: on a new machine, first imports take a while."""
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


def _submit(options: Options) -> int:
    from orchestrator.execution.jobs import read_runtime_env, submit

    study = _study(options)
    submission = submit(
        options.study,
        address=options.address,
        overrides=options.overrides,
        working_dir=options.working_dir,
        runtime_env=read_runtime_env(options.runtime_env) if options.runtime_env else None,
        wait=not options.no_wait,
    )
    if options.no_wait:
        print(f"submitted {submission.submission_id}; watch it with:  h2h watch {study.folder}")
        return 0
    return _show(study.folder) if submission.exit_code == 0 else submission.exit_code


# --- looking ----------------------------------------------------------------------------------------------------------


def _watch(options: Options) -> int:
    from rich.console import Console

    from orchestrator.analysis.results import Results
    from orchestrator.reporting.dashboard import follow

    folder = _folder(options)
    Results(folder)  # refuses a folder without a study
    follow(folder, Console())
    return 0


def _compare(options: Options) -> int:
    return _show(_folder(options))


def _show(folder: Location) -> int:
    from rich.console import Console

    from orchestrator.analysis.results import Results
    from orchestrator.reporting.dashboard import print_results

    print_results(Results(folder).history, folder, Console())
    return 0


def _verify(options: Options) -> int:
    from orchestrator.analysis.verification import verify

    folder = _folder(options)
    found = verify(folder)
    for line in found.damaged:
        print(f"damaged: {line}")
    if found.damaged:
        whole = f"{found.records:,} records of {folder} are whole, {len(found.damaged):,} are not"
        print(f"{whole}: nothing is derived from them")
        return EXIT_FAILED
    for kind, count in found.checks.items():
        print(f"{count:>8,}  {kind}")
    for mismatch in found.mismatches:
        print(f"mismatch: {mismatch.where}: recorded {mismatch.recorded}, the ledger says {mismatch.derived}")
    total = sum(found.checks.values())
    ending = f"{len(found.mismatches)} mismatches" if found.mismatches else "all as recorded"
    print(f"{found.records:,} records are whole; {total:,} values of {folder} derived again: {ending}")
    return EXIT_FAILED if found.mismatches else 0


def _plan(options: Options) -> int:
    with _loading(f"planning {options.study}"):
        from rich.console import Console

        from orchestrator.planning.forecast import require_feasible
        from orchestrator.planning.preflight import check_text
        from orchestrator.reporting.plan_table import show_plan

        study, console = _study(options), Console()
        shown = show_plan(study.spec)
    console.print(shown, highlight=False)
    if not (options.address or os.environ.get("RAY_ADDRESS")):  # a cluster has other machines than this one
        require_feasible(study.spec)
    try:
        check_text(study.spec, writing=False)
    except InputError as error:
        raise error.within(study.file) from error
    if options.calibration:
        from orchestrator.planning.forecast import forecast
        from orchestrator.reporting.plan_table import show_forecast

        with console.status("measuring a step of each arm"):
            found = forecast(study.spec)
        console.print(show_forecast(found), highlight=False)
    return 0


def _prepare(options: Options) -> int:
    with _loading(f"loading {options.study}"):
        from rich.console import Console

        from orchestrator.reporting.corpus import preparation_bar, sequences_of_a_trial, show_corpus

        study, console = _study(options), Console()
    with preparation_bar(console) as progress:
        corpus = study.prepare(options.address, progress)
    console.print(show_corpus(corpus, study.spec.corpora, sequences_of_a_trial(study.spec)), highlight=False)
    return 0


def _corpus(options: Options) -> int:
    from rich.console import Console

    from orchestrator.reporting.corpus import picture, samples, sequences_of_a_trial, show_corpus
    from trainables.storage import Location

    if options.svg:
        _require_folder_of(options.svg)
    study = _study(options)
    corpus = study.corpus()
    shown = [show_corpus(corpus, study.spec.corpora, sequences_of_a_trial(study.spec))]
    if options.samples > 0:
        shown.append(samples(corpus, options.samples))
    Console().print(*shown, sep="", highlight=False)
    if options.svg:
        Location(options.svg).write_bytes(picture(shown, study.spec.name).encode())
    return 0


def _require_folder_of(file: str) -> None:
    from trainables.storage import Location

    folder = Location(file).parent
    if folder.local is not None and not folder.local.is_dir():
        raise InputError(
            f"there is no folder {folder}",
            where=f"--svg {file}",
            remedy=f"mkdir -p {folder}, or another file",
        )


def _export(options: Options) -> int:
    from orchestrator.reporting.export import export_study, push
    from trainables.storage import Location

    to = Location(options.to)
    repository = options.push_to_hub
    names = export_study(
        _folder(options),
        to,
        arm=options.arm,
        trial=options.trial,
        repository=repository,
        force=options.force,
    )
    print(f"wrote {to}: {', '.join(names)}")
    if repository:
        print(f"pushed to {push(to, names, repository)}")
    return 0


def _list(options: Options) -> int:
    from rich.console import Console

    from orchestrator.reporting.catalogue import catalogue

    Console().print(catalogue(), highlight=False)
    return 0


def _schema(options: Options) -> int:
    from orchestrator.config.schema import study_schema

    print(json.dumps(study_schema(), indent=2))
    return 0


COMMANDS: dict[str, tuple[Command, str]] = {
    "plan": (_plan, "show what a study will train and spend, without running it"),
    "prepare": (_prepare, "prepare a study's text alone, or verify what is prepared"),
    "corpus": (_corpus, "show a study's prepared text by language, with samples"),
    "run": (_run, "run a study: prepare, search, confirm, compare"),
    "resume": (_resume, "go on with a study that was stopped or cut off"),
    "extend": (_extend, "give a finished study more seeds, search or budget"),
    "watch": (_watch, "show a running or finished study from another process"),
    "compare": (_compare, "print a study's comparison and verdict so far"),
    "verify": (
        _verify,
        "derive everything a study reports from its ledger again; exits 1 on a mismatch or damage",
    ),
    "export": (_export, "write a trained model in Hugging Face format"),
    "submit": (_submit, "run a study as a job on a Ray cluster"),
    "list": (_list, "list shipped studies, shapes, objectives, search spaces and yardsticks"),
    "schema": (_schema, "print the JSON Schema of a study file, for editors"),
}


if __name__ == "__main__":
    sys.exit(main())
