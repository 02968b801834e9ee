"""Commands that show, check, export or list something."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from contextlib import nullcontext
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import formatting
from orchestrator.cli.command import (
    EXIT_FAILED,
    Options,
    Voice,
    command,
    folder_awaited,
    folder_named,
    loading,
    say,
    study_named,
)
from orchestrator.cli.output import Address, print_json, schema_of, wrote
from trainables.errors import InputError

if TYPE_CHECKING:
    from orchestrator.config.task_files import TasksSpec
    from orchestrator.study import Study
    from trainables.corpora.stream.packed import PackedCorpus


@command("show a running or finished study from another process")
def _watch(options: Options) -> int:
    if options.json and options.replay is not None:
        raise InputError("--replay and --json are given", remedy="one of the two: --json prints all records at once")
    if options.json:
        return _print_records(options)
    from rich.console import Console

    from orchestrator.config.folder import LEDGER
    from orchestrator.reporting.dashboard import follow
    from orchestrator.reporting.keys import Keys
    from orchestrator.reporting.listening import Stage
    from orchestrator.reporting.replay import Replay, speed_of
    from orchestrator.reporting.results import Results

    console = Console()
    keys = Keys.here() if console.is_terminal else None
    if options.replay is None:
        folder = folder_awaited(options)
        with loading(f"reading {options.study}"):
            folder.exists()  # a storage that refuses says so now
            (folder / LEDGER).names()  # and what is no folder
        waiting = Stage(f"waiting for a study to begin in {folder} (Ctrl-C ends)", until_begun=True)
        follow(folder, console, stage=waiting, keys=keys)
        return 0
    with loading(f"reading {options.study}"):
        folder = folder_named(options)
        speed = options.replay or speed_of(Results(folder).history)
    replay = Replay(folder / LEDGER, speed)
    follow(folder, console, lambda: replay.ended, replays=replay, keys=keys)
    return 0


def _print_records(options: Options) -> int:
    """The ledger's records, one a line, as they are written, up to the answer."""
    import time

    from orchestrator.config.folder import LEDGER
    from orchestrator.ledger.history import History
    from orchestrator.ledger.records import to_line
    from orchestrator.ledger.segments import LedgerReader
    from orchestrator.reporting.dashboard import POLL_SECONDS, REMOTE_POLL_SECONDS
    from orchestrator.reporting.results import Results

    folder, history = folder_named(options), History()
    Results(folder)  # refuses a folder without a study
    reader = LedgerReader(folder / LEDGER)
    while not history.finished:
        for record in reader.poll():
            history.apply(record)
            print(to_line(record).decode(), end="")
        sys.stdout.flush()
        if not history.finished:
            time.sleep(POLL_SECONDS if folder.local else REMOTE_POLL_SECONDS)
    return 0


@command("write a study's report, or that of several, as one HTML file; and its figures")
def _report(options: Options) -> int:
    from trainables.storage import Location

    out, figures = (Location(place) if place else None for place in (options.out, options.figures))
    for place, flag in ((out, "--out"), (figures, "--figures")):
        beside = None if place is None else place.parent.local
        if beside is not None and not beside.is_dir():
            raise InputError(f"there is no folder {beside}", where=flag, remedy=f"mkdir -p {beside}, or another one")
    if figures is not None and figures.local is not None and figures.local.is_file():
        raise InputError(f"{figures} is a file", where="--figures", remedy="a folder, which may be a new one")
    if out is not None and out.local is not None and out.local.is_dir():
        raise InputError(f"{out} is a folder", where="--out", remedy=f"--out {out / 'report.html'}")
    with loading(f"drawing {', '.join(options.studies)}"):
        from orchestrator.reporting.page.page import report_page
        from orchestrator.reporting.results import Results

        found = [Results(folder_named(Options(study=name, overrides=[]))) for name in options.studies]
        page = report_page([results.report for results in found])
    out = out or Location(f"{found[0].report.name if len(found) == 1 else 'studies'}.html")
    out.write_bytes(page.encode())
    written = [str(out)]
    apart = _apart([results.report.name for results in found])
    for results, name in zip(found, apart, strict=True) if figures else ():
        to = Location(f"{figures}/{name}" if len(found) > 1 else f"{figures}")
        names = results.write_figures(to)
        written += [str(to / name) for name in names] if options.json else [f"{len(names)} files to {to}"]
    wrote(options, *written)
    return 0


def _apart(names: list[str]) -> list[str]:
    """Names, each another: the second ``x`` is ``x-2``."""
    found = list[str]()
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        found.append(next(own for own in chain([name], numbered) if own not in found))
    return found


@command("show the studies of a storage as live pages in a browser, read-only")
def _serve(options: Options) -> int:
    import asyncio
    from contextlib import suppress

    from orchestrator.config.folder import STUDY_FILE
    from trainables.storage import Location

    with loading(f"serving {options.storage}"):
        from orchestrator.reporting.serve.server import serve

        storage = Location(options.storage)
        if (storage / STUDY_FILE).exists():
            storage = storage.parent
        if storage.local is not None and not storage.local.is_dir():
            raise InputError(f"there is no folder {storage}", where="STORAGE", remedy="the folder that studies lie in")

    def tell(address: str) -> None:
        if options.json:
            print_json(Address(address=address))
        else:
            print(address, flush=True)

    with suppress(KeyboardInterrupt):
        asyncio.run(serve(storage, options.host, options.port, tell))
    return 0


@command("show a study, running or finished, in a tracker: TensorBoard, W&B, MLflow or Trackio")
def _track(options: Options) -> int:
    with loading(f"reading {options.study}"):
        from orchestrator.reporting.track.exporting import export, follow
        from orchestrator.reporting.track.tracker import TrackerError

        folder = folder_named(options)
    try:
        tell = (lambda line: print(line, file=sys.stderr)) if options.json else print
        done = (follow if options.follow else export)(folder, options.to, options.at, tell).tracked
    except TrackerError as error:
        print(
            f"h2h: {error}\n  remedy: mend it, and give the command again: it hands on what is missing", file=sys.stderr
        )
        return EXIT_FAILED
    if options.json:
        print_json(done)
        return 0
    others = f"; nothing is new of the other {done.unchanged}" if done.unchanged else ""
    print(f"{formatting.plural(len(done.written), 'run')} written{others}")
    if not done.finished:
        print("the study has no answer yet: its summary comes with it")
    return 0


@command("derive everything a study reports from its ledger again; exits 1 on a mismatch or damage")
def _verify(options: Options) -> int:
    from orchestrator.verification.verify import verify

    head, rescored, seed = options.head, options.rescore, options.seed
    if head is not None and re.fullmatch("[0-9a-f]{16,32}", head) is None:
        raise InputError(
            f"'{head}' is no head of a ledger",
            where="--head",
            why="that has 32 hexadecimal digits; its first 16 are enough",
            remedy="copy it from the end of h2h run, or from where it was published",
        )
    if rescored < 0:
        raise InputError(f"{rescored} checkpoints cannot be scored", where="--rescore", remedy="--rescore 3")
    seed = secrets.randbelow(10**6) if seed is None else seed
    with loading(f"verifying {options.study}") if options.data or rescored else nullcontext():
        found = verify(folder_named(options), head=head, text=options.data, rescored=rescored, seed=seed)
    if options.json:
        print_json(found.report)
    else:
        print(found.in_words())
    return 0 if found.sound else EXIT_FAILED


@command("show what a study will train and spend, without running it")
def _plan(options: Options) -> int:
    with loading(f"planning {options.study}"):
        study = study_named(options)  # first: a mistake in it is told before what plans it is imported
        from rich.console import Console

        from orchestrator.planning.design import notes, require_answerable
        from orchestrator.planning.forecast import forecast, require_feasible
        from orchestrator.planning.preflight import check_places
        from orchestrator.reporting.corpus import groups_in_words
        from orchestrator.reporting.plan_report import plan_report
        from orchestrator.reporting.plan_table import show_forecast, show_plan

        console = Console(quiet=options.json)  # then all is told at the end
        with study.placed():
            require_answerable(study.spec)
            shown = show_plan(study.spec)
    console.print(shown, *notes(study.spec), sep="\n", highlight=False)
    with study.placed():
        if not (options.address or os.environ.get("RAY_ADDRESS")):  # a cluster has other machines than this one
            require_feasible(study.spec)
        corpora = check_places(study.spec, network=False)
        has_margin, suite = study.spec.confirm.margin is not None, study.spec.yardsticks.tasks
        corpus = _prepared(study) if has_margin or suite is not None else None
        margin = _margin_in_words(study, corpus) if has_margin else ""
        tasks = "" if suite is None else _tasks_in_words(study, suite, corpus)
    told = [*groups_in_words(corpora.sources), *filter(None, [margin, tasks])]
    for line in told:
        console.print(line, style="dim", highlight=False, markup=False)
    found = None
    if options.calibration:
        measuring = "measuring a step of each arm"
        with console.status(measuring) if console.is_terminal and not options.json else loading(measuring):
            found = forecast(study.spec)
        console.print(show_forecast(found), highlight=False)
    if options.json:
        print_json(plan_report(study.spec, found, told))
    return 0


def _margin_in_words(study: Study, corpus: PackedCorpus | None) -> str:
    """Whether the held-out text can resolve the margin. Raises InputError where it cannot."""
    from orchestrator.planning.resolution import require_resolvable

    if corpus is None:
        return "Whether the held-out text can resolve the margin is known once it is prepared (h2h prepare)."
    return require_resolvable(study.spec, corpus)


def _tasks_in_words(study: Study, suite: TasksSpec, corpus: PackedCorpus | None) -> str:
    """How much of the downstream tasks is asked. Raises InputError where something is wrong with them."""
    if any(task.hub is not None and not task.is_local(suite.folder) for task in suite.tasks):
        return "Tasks are read from the Hugging Face hub, and how much is asked of them is chosen, when the study runs."
    from tempfile import TemporaryDirectory

    from orchestrator.planning.tasks import plan_tasks
    from orchestrator.reporting.plan_table import tasks_in_words
    from trainables.storage import Location

    with TemporaryDirectory() as scratch:
        found = plan_tasks(study.spec, suite, Location(scratch), None if corpus is None else corpus.tokenizer())
    return tasks_in_words(found)


def _prepared(study: Study) -> PackedCorpus | None:
    """The study's text, if it is prepared, and its sources are here."""
    from trainables.storage import is_here

    datasets = [source.dataset for source in study.spec.corpora.sources if source.dataset is not None]
    if not all(map(is_here, datasets)):
        return None
    try:
        return study.corpus()
    except InputError:
        return None


@command("prepare a study's text alone, or verify what is prepared")
def _prepare(options: Options) -> int:
    with loading(f"loading {options.study}"):
        from rich.console import Console

        from orchestrator.reporting.corpus import preparation_shown, sequences_of_a_trial, show_corpus
        from orchestrator.reporting.corpus_report import corpus_report

        study, console = study_named(options), Console()
    told = Console(stderr=True, quiet=Voice.quiet) if options.json or Voice.quiet else console
    with preparation_shown(told) as progress:
        corpus = study.prepare(options.address, progress)
    if options.json:
        print_json(corpus_report(corpus, study.spec))
        return 0
    console.print(show_corpus(corpus, study.spec.corpora, sequences_of_a_trial(study.spec)), highlight=False)
    return 0


@command("show a study's prepared text by language, with samples")
def _corpus(options: Options) -> int:
    from rich.console import Console

    from orchestrator.reporting.corpus import picture, samples, sequences_of_a_trial, show_corpus
    from orchestrator.reporting.corpus_report import corpus_report
    from trainables.storage import Location

    folder = Location(options.svg).parent if options.svg else None
    if folder is not None and folder.local is not None and not folder.local.is_dir():
        where, remedy = f"--svg {options.svg}", f"mkdir -p {folder}, or another file"
        raise InputError(f"there is no folder {folder}", where=where, remedy=remedy)
    study = study_named(options)
    corpus = study.corpus()
    shown = [show_corpus(corpus, study.spec.corpora, sequences_of_a_trial(study.spec))]
    if options.samples > 0 and (options.svg or not options.json):
        shown.append(samples(corpus, options.samples))
    if options.json:
        print_json(corpus_report(corpus, study.spec))
    else:
        Console().print(*shown, sep="", highlight=False)
    if options.svg:
        Location(options.svg).write_bytes(picture(shown, study.spec.name).encode())
    return 0


@command("write a trained model in Hugging Face format")
def _export(options: Options) -> int:
    from orchestrator.reporting.export import export_study, push
    from trainables.storage import Location

    to = Location(options.to)
    repository = options.push_to_hub
    names = export_study(
        folder_named(options), to, arm=options.arm, trial=options.trial, repository=repository, force=options.force
    )
    pushed = push(to, names, repository) if repository else ""
    wrote(
        options, *([str(to / name) for name in names] if options.json else [f"{to}: {', '.join(names)}"]), pushed=pushed
    )
    return 0


@command("print the JSON Schema of a study file, for editors, or of what a command prints with --json")
def _schema(options: Options) -> int:
    print(json.dumps(schema_of(options.of), indent=2))
    return 0


@command("ask trained models downstream tasks: a finished study's, or those of a Hugging Face folder")
def _evaluate(options: Options) -> int:
    from rich.console import Console

    from orchestrator.config.errors import validated
    from orchestrator.config.task_files import TasksSpec
    from trainables.evaluation.yardstick import TASK_ITEMS

    named = options.tasks if len(options.tasks) > 1 else options.tasks[0]
    try:
        suite = validated(TasksSpec, {"suite": named, "folder": options.data, "fine_tuning": None})
    except InputError as error:
        raise error.at("--tasks") from error
    items = TASK_ITEMS if options.items is None else options.items
    with loading(f"loading {options.study}"):
        from orchestrator.reporting.evaluation import evaluated_model, evaluated_study, evaluation_table

    if (Path(options.study) / "config.json").is_file():
        found = evaluated_model(options.study, suite, items, options.languages)
    else:
        study = study_named(options)
        study.say = say
        with study.placed():
            tasks = study.evaluate(suite, options.address, items=items)
        found = evaluated_study(study.results.history, tasks, study.folder)
    if options.json:
        print_json(found)
    else:
        Console().print(evaluation_table(found))
    return 0
