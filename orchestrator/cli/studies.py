"""Commands that show studies: those of a storage, the trials of one, several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.command import Options, command, folder_named, loading
from orchestrator.cli.output import print_json
from trainables.errors import InputError
from trainables.storage import Location

WITHOUT_BUDGETS = 6
"""Columns of the table of studies that a narrow terminal has room for."""

if TYPE_CHECKING:
    from orchestrator.reporting.table import Table


@command("list the studies of a storage; without one, shipped studies, shapes, objectives, spaces and yardsticks")
def _list(options: Options) -> int:
    if options.storage is None:
        from orchestrator.reporting.catalogue import catalogue, show_catalogue

        shipped = catalogue()
        if options.json:
            print_json(shipped)
            return 0
        from rich.console import Console

        Console().print(show_catalogue(shipped), highlight=False)
        return 0
    from orchestrator.reporting.studies import studies_of, studies_table
    from orchestrator.reporting.table import on_terminal

    with loading(f"reading {options.storage}"):
        found = studies_of(Location(options.storage))
    if options.json:
        print_json(found)
        return 0
    from rich.console import Console

    shown = on_terminal(studies_table(found)) if found.studies else f"no study has begun in {found.storage}"
    Console().print(shown, highlight=False, markup=False)
    return 0


@command("show the trials of a study, or one of them whole")
def _show(options: Options) -> int:
    from orchestrator.reporting.results import Results
    from orchestrator.reporting.table import on_terminal
    from orchestrator.reporting.trials import detail_tables, trial_detail, trial_list, trials_table

    folder = folder_named(options)
    history = Results(folder).history
    if options.trial is None:
        found = trial_list(history, folder, options.phase, options.arm)
        if options.json:
            print_json(found)
            return 0
        narrow = trials_table(found, narrow=True)
        # In the last form the configuration is left out.
        tables: list[tuple[str, tuple[Table, ...]]] = [("", (trials_table(found), narrow, narrow.first(4)))]
    else:
        if options.phase or options.arm:
            raise InputError("a trial has one arm and phase", where="--arm, --phase", remedy="leave them out")
        detail = trial_detail(history, folder, options.trial)
        if options.json:
            print_json(detail)
            return 0
        tables = [(title, (table,)) for title, table in detail_tables(detail)]
    from rich.console import Console
    from rich.text import Text

    for title, forms in tables:
        if title:
            Console().print(Text(title, style="bold"))
        Console().print(on_terminal(*forms) if forms[0].rows else "no such trial has begun yet", highlight=False)
    return 0


@command("print a study's comparison and verdict so far; of several studies, a table")
def _compare(options: Options) -> int:
    folders = [folder_named(Options(study=name, overrides=options.overrides)) for name in options.studies]
    if len(folders) == 1 and not (options.methods or options.json or options.languages):
        return show_answer(folders[0])
    from orchestrator.reporting.results import Results
    from orchestrator.reporting.studies import Reports

    reports = [Results(folder).report for folder in folders]
    if options.json:
        print_json(reports[0] if len(reports) == 1 else Reports(studies=tuple(reports)))
        return 0
    if options.methods:
        print("\n\n".join(report.methods for report in reports))
        return 0
    from rich.console import Console

    from orchestrator.reporting import report_tables
    from orchestrator.reporting.table import on_terminal

    console = Console()
    if len(reports) > 1:
        table = report_tables.studies(reports)
        console.print(on_terminal(table, table.first(WITHOUT_BUDGETS)))
    for report, name in zip(reports, report_tables.names(reports), strict=True) if options.languages else ():
        table = report_tables.languages(report)
        if len(reports) > 1:
            console.print(f"{name}:", highlight=False, markup=False)
        console.print(on_terminal(table) if table.rows else "one language, or none compared yet", highlight=False)
    return 0


def show_answer(folder: Location) -> int:
    """Print what a study found."""
    from rich.console import Console

    from orchestrator.reporting.dashboard import print_results
    from orchestrator.reporting.results import Results

    print_results(Results(folder).history, folder, Console())
    return 0
