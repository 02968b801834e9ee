"""The command line, ``h2h``. Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 interrupted."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from trainables.errors import InputError
from trainables.storage import Location

if TYPE_CHECKING:
    from orchestrator.analysis.results import Results
    from orchestrator.study import Study

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130

_STUDY_HELP = "a study file, a shipped study's name (h2h list), or a study's folder"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except InputError as error:
        print(f"h2h: {error}", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("h2h: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="h2h", description="Which language-model pretraining objective wins on your budget?"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, command: Callable[[argparse.Namespace], int], summary: str, target: str = ""
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(command=command)
        if target:
            sub.add_argument("study", metavar="STUDY", help=target)
        return sub

    plan = add("plan", _plan, "show what a study will train and spend, without running it", _STUDY_HELP)
    prepare = add(
        "prepare", _prepare, "prepare a study's text alone, or verify what is prepared", _STUDY_HELP
    )
    corpus = add("corpus", _corpus, "show a study's prepared text by language, with samples", _STUDY_HELP)
    run = add("run", _run, "run a study: prepare, search, confirm, compare", _STUDY_HELP)
    resume = add("resume", _resume, "go on with a study that was stopped or cut off", _STUDY_HELP)
    extend = add(
        "extend",
        _extend,
        "give a finished study more seeds, search or budget",
        _STUDY_HELP,
    )
    watch = add("watch", _watch, "show a running or finished study from another process", _STUDY_HELP)
    compare = add("compare", _compare, "print a study's comparison and verdict so far", _STUDY_HELP)
    add(
        "verify",
        _verify,
        "derive everything a study reports from its ledger again; exits 1 on a mismatch",
        "a study's folder",
    )
    export = add("export", _export, "write a trained model in Hugging Face format", _STUDY_HELP)
    submit = add("submit", _submit, "run a study as a job on a Ray cluster", _STUDY_HELP)
    add("list", _list, "list shipped studies, shapes, objectives, search spaces and yardsticks")

    for sub in (plan, prepare, corpus, run, resume, extend, watch, compare, export, submit):
        sub.add_argument(
            "--set",
            dest="overrides",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="override a key of the study, as confirm.seeds=6; the value is YAML; may be repeated",
        )
    for sub in (plan, prepare, run, resume, extend):
        sub.add_argument(
            "--address", help="a Ray cluster's address (default: RAY_ADDRESS, else this machine)"
        )
    plan.add_argument(
        "--no-calibration",
        dest="calibration",
        action="store_false",
        help="do not measure a step of each arm on this machine, which takes some seconds",
    )
    corpus.add_argument(
        "--samples", metavar="N", type=int, default=2, help="sequences shown of each language (default: 2)"
    )
    corpus.add_argument("--svg", metavar="FILE", help="also write what is shown to FILE, as a picture")
    for sub in (run, resume, extend):
        sub.add_argument("--plain", action="store_true", help="plain lines instead of the live dashboard")
    export.add_argument("--to", metavar="DIR", required=True, help="folder to write, new or empty")
    export.add_argument("--arm", help="which arm's model (default: the only one)")
    export.add_argument(
        "--trial", metavar="NAME", help="which trial's (default: the arm's first paired confirmation run)"
    )
    export.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    export.add_argument(
        "--push-to-hub",
        metavar="REPO",
        help="also upload it to the Hugging Face hub, OWNER/NAME; private if new",
    )
    submit.add_argument("--address", required=True, help="the job server, as http://127.0.0.1:8265")
    submit.add_argument("--no-wait", action="store_true", help="return once the job is submitted")
    submit.add_argument(
        "--working-dir", type=Path, help="folder to send along (default: the study file alone)"
    )
    submit.add_argument("--runtime-env", default="", help="Ray runtime environment: YAML text or a YAML file")
    return parser


def _study(options: argparse.Namespace) -> Study:
    """The study that the command names: a folder of one, or a file or name to make one of."""
    from orchestrator.config.folder import STUDY_FILE
    from orchestrator.study import Study

    remote = "://" in options.study
    if remote or (Path(options.study) / STUDY_FILE).is_file():
        if getattr(options, "overrides", ()):
            raise InputError(
                "a frozen study cannot be overridden",
                where="--set",
                why=f"{options.study} holds a study that has begun",
                remedy=f"h2h resume {options.study}   goes on as it began;   h2h extend {options.study} --set ...   "
                "gives a finished one more, and an unfinished one other resources;   h2h run STUDY --set name=ANOTHER"
                "   makes a new one",
            )
        return Study.open(options.study)
    return Study(options.study, getattr(options, "overrides", ()))


def _folder(options: argparse.Namespace) -> Location:
    return _study(options).folder


def _run(options: argparse.Namespace) -> int:
    return _train(options, lambda study: study.run(options.address))


def _resume(options: argparse.Namespace) -> int:
    return _train(options, lambda study: study.resume(options.address))


def _extend(options: argparse.Namespace) -> int:
    from orchestrator.study import Study

    if not options.overrides:
        raise InputError(
            "no --set was given",
            where="h2h extend",
            why="it says what the study may spend more of",
            remedy="such as --set confirm.seeds=12 or --set search.budget_per_arm=20",
        )
    overrides, options.overrides = options.overrides, []
    return _train(options, lambda study: Study.open(study.folder).extend(overrides, options.address))


def _train(options: argparse.Namespace, work: Callable[[Study], Results]) -> int:
    from orchestrator.config.folder import STUDY_FILE
    from orchestrator.reporting.dashboard import follow, print_results
    from orchestrator.study import StudyError

    study = _study(options)
    console = Console(force_terminal=False if options.plain else None)
    finished, began = threading.Event(), time.time()
    dashboard = threading.Thread(
        target=follow, args=(study.folder, console, finished.is_set), kwargs={"since": began}, daemon=True
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


def _watch(options: argparse.Namespace) -> int:
    from orchestrator.reporting.dashboard import follow

    folder = _folder(options)
    _require_ledger(folder)
    follow(folder, Console())
    return 0


def _compare(options: argparse.Namespace) -> int:
    from orchestrator.analysis.results import Results
    from orchestrator.reporting.dashboard import print_results

    folder = _folder(options)
    print_results(Results(folder).history, folder, Console())
    return 0


def _verify(options: argparse.Namespace) -> int:
    from orchestrator.analysis.verification import verify

    folder, console = _folder(options), Console()
    found = verify(folder)
    for kind, count in found.checks.items():
        console.print(f"{count:>8,}  {kind}", highlight=False, markup=False)
    for mismatch in found.mismatches:
        line = f"mismatch: {mismatch.where}: recorded {mismatch.recorded}, the ledger says {mismatch.derived}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    total = sum(found.checks.values())
    ending = f"{len(found.mismatches)} mismatches" if found.mismatches else "all as recorded"
    console.print(f"{total:,} values of {folder} derived again: {ending}", highlight=False, soft_wrap=True)
    return EXIT_FAILED if found.mismatches else 0


def _export(options: argparse.Namespace) -> int:
    from orchestrator.reporting.export import export_study, push

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


def _require_ledger(folder: Location) -> None:
    from orchestrator.analysis.results import Results

    Results(folder)


def _submit(options: argparse.Namespace) -> int:
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
    if submission.exit_code == 0:
        _require_ledger(study.folder)
        return _compare(argparse.Namespace(study=str(study.folder), overrides=[]))
    return submission.exit_code


def _plan(options: argparse.Namespace) -> int:
    from orchestrator.planning.arm_plan import plan_table
    from orchestrator.planning.forecast import forecast, forecast_table, require_feasible

    spec, console = _study(options).spec, Console()
    console.print(plan_table(spec), highlight=False)
    if not (options.address or os.environ.get("RAY_ADDRESS")):  # a cluster has other machines than this one
        require_feasible(spec)
    if options.calibration:
        with console.status("measuring a step of each arm"):
            found = forecast(spec)
        console.print(forecast_table(found), highlight=False)
    return 0


def _prepare(options: argparse.Namespace) -> int:
    from orchestrator.reporting.corpus import corpus_table, sequences_of_a_trial
    from orchestrator.reporting.preparation_bar import preparation_bar

    study, console = _study(options), Console()
    with preparation_bar(console) as progress:
        corpus = study.prepare(options.address, progress)
    table = corpus_table(corpus, study.spec.corpora, sequences_of_a_trial(study.spec))
    console.print(table, highlight=False)
    return 0


def _corpus(options: argparse.Namespace) -> int:
    from orchestrator.reporting.corpus import corpus_table, picture, samples, sequences_of_a_trial

    if options.svg:
        _require_folder_of(options.svg)
    study = _study(options)
    corpus = study.corpus()
    shown = [corpus_table(corpus, study.spec.corpora, sequences_of_a_trial(study.spec))]
    if options.samples > 0:
        shown.append(samples(corpus, options.samples))
    Console().print(*shown, sep="", highlight=False)
    if options.svg:
        Location(options.svg).write_bytes(picture(shown, study.spec.name).encode())
    return 0


def _require_folder_of(file: str) -> None:
    folder = Location(file).parent
    if folder.local is not None and not folder.local.is_dir():
        raise InputError(
            f"there is no folder {folder}",
            where=f"--svg {file}",
            remedy=f"mkdir -p {folder}, or another file",
        )


def _list(options: argparse.Namespace) -> int:
    from orchestrator.reporting.catalogue import listing

    Console().print(listing(), highlight=False)
    return 0
