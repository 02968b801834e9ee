"""Whether an extension has anything to run. One that has not would only cost a finished answer its standing."""

from collections.abc import Mapping

from orchestrator.config.extension import Change
from orchestrator.config.study import StudySpec
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import design_of
from orchestrator.ledger.records import ExtensionRecord
from orchestrator.ledger.requests import Inbox
from orchestrator.scheduling.confirmation import ConfirmPhase
from orchestrator.scheduling.enqueueing import TakesUpRequests
from orchestrator.scheduling.search import SearchPhase
from orchestrator.scheduling.trials import PhaseOfTrials
from trainables.errors import InputError


def require_work(spec: StudySpec, history: History, changes: Mapping[str, Change], inbox: Inbox) -> None:
    """Raises InputError if an extension of a finished study could begin no trial: the cap pays for nothing of it, or
    nothing is left to do, not even what people ask the search to try. All possible branches were made. The history is
    used up."""
    assert history.study is not None
    history.apply(ExtensionRecord(time=history.updated, changes=dict(changes)))
    if history.finished:
        return  # other devices alone: the answer stays as it is
    session = history.study.model_copy(update={"design": design_of(spec), "time": history.updated})
    history.apply(session)
    phases: list[PhaseOfTrials] = [ConfirmPhase(spec, history, "")]
    if history.phases.get("search") != "end":
        search = SearchPhase(spec, history, "")
        phases.insert(0, TakesUpRequests(search, inbox, spec, history, history.apply, lambda _: None))
    if not all(phase.exhausted() for phase in phases):
        return
    where = ", ".join(f"--set {key}" for key in changes)
    capped = [phase for phase in phases if phase.ended_early()]
    if capped and spec.cap is not None:
        raise InputError(
            "the study's cap pays for nothing of that",
            where=where,
            why="; ".join(phase.ended_early() for phase in capped),
            remedy=f"in the same command, --set cap.{spec.cap.unit}=MORE",
        )
    stopping = "; where adaptive stopping has its answer, with --set confirm.stopping=null"
    raise InputError(
        "that leaves nothing to run",
        where=where,
        why="no arm's search can begin a trial, and confirmation wants no further run; but the answer would no longer "
        "count as that of the protocol",
        remedy=f"more, such as --set confirm.seeds=NUMBER{stopping if spec.confirm.stopping else ''}",
    )
