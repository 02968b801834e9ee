"""What commands print for programs: documents as JSON, each with its schema.

A document has its kind and the version of its form in ``format``. Another form of the same kind has another version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from trainables.config import Config
from trainables.errors import InputError, nearest, printable

if TYPE_CHECKING:
    from orchestrator.cli.command import Options


class Refusal(Config):
    """Why a command did not do what it was asked to. The same is told in words on the error stream."""

    format: Literal["headtohead.error/1"] = "headtohead.error/1"
    code: int
    """The exit code: 1 the run failed, 2 the input is wrong, 130 interrupted."""
    what: str
    where: str = ""
    """The file and key, or the option."""
    why: str = ""
    remedy: str = ""

    @classmethod
    def of(cls, error: InputError, code: int) -> Refusal:
        """An error as a document."""
        parts = {name: printable(getattr(error, name)) for name in ("what", "where", "why", "remedy")}
        return cls(code=code, **parts)


class Written(Config):
    """Files that a command wrote."""

    format: Literal["headtohead.written/1"] = "headtohead.written/1"
    files: tuple[str, ...]
    """Paths or URIs."""
    pushed: str = ""
    """Of a model that was uploaded too: its address on the hub."""


class Address(Config):
    """Where live pages are served."""

    format: Literal["headtohead.address/1"] = "headtohead.address/1"
    address: str
    """With its token."""


def print_json(document: Config) -> None:
    """Print a document."""
    print(document.model_dump_json(indent=2), flush=True)


def wrote(options: Options, *files: str, pushed: str = "") -> None:
    """Tell which files were written."""
    if options.json:
        print_json(Written(files=files, pushed=pushed))
        return
    for file in files:
        print(f"wrote {file}")
    if pushed:
        print(f"pushed to {pushed}")


DOCUMENTS = {
    "report": "orchestrator.analysis.report:StudyReport",
    "reports": "orchestrator.reporting.studies:Reports",
    "studies": "orchestrator.reporting.studies:StudyList",
    "trials": "orchestrator.reporting.trials:TrialList",
    "trial": "orchestrator.reporting.trials:TrialDetail",
    "enqueued": "orchestrator.scheduling.enqueueing:Enqueued",
    "catalogue": "orchestrator.reporting.catalogue:Catalogue",
    "plan": "orchestrator.reporting.plan_report:PlanReport",
    "corpus": "orchestrator.reporting.corpus_report:CorpusReport",
    "verification": "orchestrator.verification.findings:VerificationReport",
    "evaluation": "orchestrator.reporting.evaluation:EvaluationReport",
    "jobs": "orchestrator.execution.jobs:JobList",
    "submission": "orchestrator.execution.jobs:Submitted",
    "doctor": "orchestrator.execution.checkup:Checkup",
    "clean": "orchestrator.execution.cleaning:Cleaning",
    "tracked": "orchestrator.reporting.track.exporting:Tracked",
    "written": "orchestrator.cli.output:Written",
    "address": "orchestrator.cli.output:Address",
    "error": "orchestrator.cli.output:Refusal",
    "record": "orchestrator.ledger.records:Record",
}
"""What each kind of document is made of, imported when its schema is asked for. A ``record`` is a line of watch --json,
and of a ledger."""


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of document, or of a study file. Raises InputError if there is no such kind."""
    if kind == "study":
        from orchestrator.config.study import study_schema

        return study_schema()
    if kind not in DOCUMENTS:
        what = f"there is no document called '{kind}'"
        raise InputError(what, where="--of", remedy=nearest(kind, ["study", *DOCUMENTS]))
    module, _, name = DOCUMENTS[kind].partition(":")
    return TypeAdapter(getattr(import_module(module), name)).json_schema(mode="serialization")
