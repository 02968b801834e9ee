"""Commands that run something."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.cli.command import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Options,
    Voice,
    command,
    folder_named,
    loading,
    study_named,
)
from orchestrator.cli.output import Refusal, print_json
from orchestrator.cli.studies import show_answer
from trainables.errors import InputError

if TYPE_CHECKING:
    from orchestrator.execution.jobs import StudyJob, Submission, Submitted
    from orchestrator.reporting.results import Results
    from orchestrator.study import Study


@command("run a study: prepare, search, confirm, compare")
def _run(options: Options) -> int:
    return _train(options, lambda study: study.run(options.address, resume=options.resume), new=True)


@command("go on with a study that was stopped or cut off")
def _resume(options: Options) -> int:
    return _train(options, lambda study: study.resume(options.address))


@command("give a finished study more seeds, search or budget")
def _extend(options: Options) -> int:
    if not options.overrides:
        raise InputError(
            "no --set was given",
            where="h2h extend",
            why="it says what the study may spend more of",
            remedy="such as --set confirm.seeds=12 or --set search.budget_per_arm=20",
        )
    overrides, options.overrides = options.overrides, []
    return _train(options, lambda study: study.extend(overrides, options.address))


def _train(options: Options, work: Callable[[Study], Results], *, new: bool = False) -> int:
    with loading(f"loading {options.study}"):
        from orchestrator.cli.streams import StudyConsole
        from orchestrator.config.folder import STUDY_FILE
        from orchestrator.planning.design import notes, warnings_of
        from orchestrator.reporting.dashboard import follow, print_results
        from orchestrator.reporting.listening import Stage
        from orchestrator.study import StudyError
        from trainables.object_store import Patience

        study = study_named(options)
    # With --json, standard output has the answer alone.
    plain = options.plain or options.json
    forced = False if plain else None
    console, stage = StudyConsole(force_terminal=forced, stderr=options.json, quiet=Voice.quiet), Stage()
    study.say = stage.say
    for note in [*warnings_of(study.spec), *notes(study.spec)] if new else ():
        console.print(note, highlight=False)
    finished, began = threading.Event(), time.time()

    def show() -> None:
        with suppress(InputError, OSError):  # the ledger is damaged, or not ours: the study itself says so
            follow(study.folder, console, finished.is_set, since=began, stage=stage, patience=Patience.FOR_STUDIES)

    dashboard = threading.Thread(target=show, daemon=True)
    dashboard.start()
    try:
        try:
            results = work(study)
        finally:
            finished.set()
            dashboard.join()
    except KeyboardInterrupt:
        remedy = f"; go on with:  h2h resume {study.folder}" if (study.folder / STUDY_FILE).exists() else ""
        with suppress(OSError):  # the terminal was closed
            console.print(f"\nInterrupted{remedy}", soft_wrap=True, highlight=False)
        if options.json:
            remedy = f"h2h resume {study.folder}" if remedy else ""
            print_json(Refusal(code=EXIT_INTERRUPTED, what="interrupted", where=str(study.folder), remedy=remedy))
        return EXIT_INTERRUPTED
    except StudyError as error:
        print(f"h2h: the study failed: {error}", file=sys.stderr)
        if options.json:
            print_json(Refusal(code=EXIT_FAILED, what=f"the study failed: {error}", where=str(study.folder)))
        return EXIT_FAILED
    if options.json:
        print_json(results.report)
    else:
        print_results(results.history, study.folder, StudyConsole())
    return 0


@command("have a study's search try a configuration of your own")
def _enqueue(options: Options) -> int:
    from orchestrator.config.chosen import settings_of
    from orchestrator.scheduling.enqueueing import enqueue

    found = enqueue(folder_named(options), options.arm, settings_of(options.settings))
    if options.json:
        print_json(found)
    else:
        print(found)
    return 0


@command("run a study as a job on a Ray cluster")
def _submit(options: Options) -> int:
    from orchestrator.execution.jobs import read_runtime_env, submit

    study, told = study_named(options), _told(options)
    submission = submit(
        options.study,
        address=options.address,
        overrides=options.overrides,
        working_dir=options.working_dir,
        runtime_env=read_runtime_env(options.runtime_env) if options.runtime_env else None,
        wait=not options.no_wait,
        on_line=told,
    )
    if options.json and (options.no_wait or submission.exit_code):
        print_json(_submitted(submission, str(study.folder)))
        return submission.exit_code
    if options.json:
        print_json(study.results.report)
        return 0
    if options.no_wait:
        print(f"submitted {submission.submission_id}; watch it with:  h2h watch {study.folder}")
        return 0
    return show_answer(study.folder) if submission.exit_code == 0 else submission.exit_code


@command("list the studies that are a Ray cluster's jobs; follow or stop one")
def _jobs(options: Options) -> int:
    from orchestrator.execution.jobs import JobList, Submitted, follow_job, stop_job, study_jobs

    if options.follow and options.stop:
        raise InputError("--follow and --stop are given", remedy="one of the two")
    if options.follow:
        submission = follow_job(options.server, options.follow, _told(options))
        if options.json:
            print_json(_submitted(submission))
        return submission.exit_code
    if options.stop:
        runs = stop_job(options.server, options.stop)
        if options.json:
            status = "STOPPING" if runs else "ENDED"
            print_json(Submitted(submission_id=options.stop, address=options.server, status=status))
        else:
            print(f"{options.stop} {'is asked to end' if runs else 'has ended'}; see it:  h2h jobs {options.server}")
        return 0
    jobs = study_jobs(options.server)
    if options.json:
        print_json(JobList(jobs=tuple(jobs)))
    else:
        _print_jobs(jobs)
    return 0


def _told(options: Options) -> Callable[[str], None]:
    """Where a job's lines go: with --json, standard output has a document alone."""
    return lambda line: print(line, file=sys.stderr if options.json else sys.stdout, flush=True)


def _submitted(submission: Submission, folder: str = "") -> Submitted:
    from orchestrator.execution.jobs import Submitted

    return Submitted(
        submission_id=submission.submission_id,
        address=submission.address,
        status=submission.status,
        message=submission.message,
        folder=folder,
    )


def _print_jobs(jobs: Sequence[StudyJob]) -> None:
    from rich.console import Console
    from rich.table import Table

    from orchestrator import formatting

    table = Table("job", "status", "began", "took", "study", box=None, pad_edge=False)
    for job in jobs:
        began = "" if job.began is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(job.began))
        took = "" if job.began is None else formatting.duration((job.ended or time.time()) - job.began)
        table.add_row(job.submission_id, job.status.lower(), began, took, job.study)
    Console().print(table if jobs else "no study was submitted to this cluster", highlight=False, soft_wrap=True)
