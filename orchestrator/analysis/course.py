"""Whether a ledger's records can have followed one another: the part of ``h2h verify`` that reads them in their order.

What may begin next is said by the phases themselves. They know nothing but the ledger, so whether anything was left to
begin is asked of them again wherever the ledger says that one of them ended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Self

from pydantic import model_validator

from orchestrator.config.study import ArmSpec, StudySpec
from orchestrator.ledger.history import History, TrialHistory
from orchestrator.ledger.protocol import Protocol, amount_set
from orchestrator.ledger.segments import Record
from orchestrator.scheduling.confirmation import AnytimePhase, ConfirmPhase
from orchestrator.scheduling.search import Phase, SearchPhase, trial_name
from search_spaces import Categorical, Space
from trainables.config import Config
from trainables.errors import InputError

Check = Callable[[str, str, Any, Any], None]
"""Takes what is checked, where, what is recorded, and what the ledger says."""

_PHASES: dict[str, Callable[[StudySpec, History, str], Phase]]
_PHASES = {"search": SearchPhase, "confirm": ConfirmPhase, "anytime": AnytimePhase}


def check_course(check: Check, records: Iterable[Record]) -> None:
    """Nothing was run twice or left out, and no phase ended before its end.

    Args:
        check: takes the checks.
        records: of the ledger.
    """
    records = list(records)
    if _check_attempts(check, records):
        _check_ends(check, records)


def _check_attempts(check: Check, records: list[Record]) -> bool:
    """Trials' numbers, attempts and confirmed seeds follow one another; after a trial's outcome nothing of it comes.

    Returns:
        Whether the numbers are without a gap. Else a search cannot be lived through again.
    """
    fixed: Protocol = {}
    history, numbers, runs, whole = History(), Counter[tuple[str, str]](), Counter[str](), True
    for record in records:
        kind, name = record["kind"], record.get("trial")
        known = history.trials.get(name) if name else None
        if kind == "study":
            fixed = record["protocol"]
        elif kind == "trial" and known is None:
            place = record["phase"], record["arm"]
            if record["phase"] != "anytime":
                check("trials", f"{name}: its number", record["number"], numbers[place])
                whole &= record["number"] == numbers[place]
            numbers[place] += 1
            _check_run(check, fixed, history, runs, record)
        if kind == "trial":
            running = history.phases.get(record["phase"]) == "begin"
            check("trials", f"{name}: begins in its phase", running, True)
            where, before = f"{name}: attempt {record['attempt']}", known.attempts if known else 0
            check("attempts", f"{where}: its number", record["attempt"], before + 1)
            check("attempts", f"{where}: may begin", known is None or _goes_on(fixed, known), True)
        elif known is not None and kind in ("begun", "measure", "end"):
            under_way = record["attempt"] == known.attempts and known.runs
            given_up = known.paused and record.get("outcome") == "pruned"  # at the end of the search
            where = f"{name}: {kind} of attempt {record['attempt']} while it runs"
            check("attempts", where, under_way or given_up, True)
            if kind == "end":
                _check_outcome(check, fixed, known, record)
        history.apply(record)
    return whole


def _check_run(check: Check, fixed: Protocol, history: History, runs: Counter[str], begin: Record) -> None:
    """A new confirmation run has its configuration's next seed; one that leaves it is of its seed."""
    name, own = begin["trial"], (begin["seed"], begin["configuration"])
    if begin["phase"] == "confirm":
        key = json.dumps([begin["arm"], begin["amount"], begin["configuration"]], sort_keys=True)
        runs[key] += 1
        following = fixed["seed"] + runs[key]
        check("seeds", f"{name}: the next seed of its configuration", begin["seed"], following)
    elif begin["phase"] == "anytime":
        trunk = history.trials.get(trial_name("confirm", begin["arm"], begin["number"]))
        left = trunk is not None and (trunk.seed, trunk.configuration) == own
        check("seeds", f"{name}: it left a run of its seed and configuration", left, True)
    named = trial_name(begin["phase"], begin["arm"], begin["number"], begin["share"])
    check("trials", f"{name}: its name", name, named)


def _goes_on(fixed: Protocol, trial: TrialHistory) -> bool:
    """Whether a trial that has begun may begin another attempt."""
    promotes = fixed["search"]["halving"]["kind"] == "promotion"
    # What was paused when a search ended may be promoted when that is extended.
    given_up = (trial.phase, trial.outcome) == ("search", "pruned") and promotes
    return not trial.runs and (trial.outcome is None or given_up)


def _check_outcome(check: Check, fixed: Protocol, trial: TrialHistory, end: Record) -> None:
    """A trial that came to the end of its budget has completed, and no other has.

    It may yet be cut off or, on a full disk, fail before its outcome is written. Then its next attempt has nothing to
    do but to report that end again, and may fail before it has.
    """
    outcome, where = end["outcome"], f"{trial.trial}: its outcome"
    if outcome == "completed":
        check("outcomes", where, outcome, "completed" if _may_be_last(fixed, trial) else "not completed")
    elif _is_last(fixed, trial):
        later = trial.measures[-1]["attempt"] < end["attempt"]
        possible = ("interrupted", "retried", "failed") if later else ("interrupted", "retried")
        check("outcomes", where, outcome, outcome if outcome in possible else "completed")


def _has_all_yardsticks(fixed: Protocol, trial: TrialHistory) -> bool:
    """Whether a trial's newest report has what is taken at its end."""
    names = fixed["yardsticks"]
    taken = {names["primary"]} if trial.phase == "search" else {names["primary"], *names["others"]}
    return bool(trial.measures) and taken <= trial.measures[-1]["yardsticks"].keys()


def _is_last(fixed: Protocol, trial: TrialHistory) -> bool:
    """Whether a trial's newest report can be no other than that of its end."""
    if not _has_all_yardsticks(fixed, trial):
        return False
    # Before its end a trial takes the primary one alone, at rungs and along the curve of a confirmation run.
    measure, curve = trial.measures[-1], trial.phase == "confirm" and fixed["confirm"]["evaluations"] > 1
    on_its_way = len(measure["yardsticks"]) == 1 and (measure["rung"] is not None or curve)
    return not on_its_way or bool(measure["progress"] >= 1.0)


def _may_be_last(fixed: Protocol, trial: TrialHistory) -> bool:
    """Whether a trial's newest report may be that of its end: what was left of the budget bought no step.

    A step costs no more than what was spent since the report before, or the mean; or, where its cost is measured or is
    that of a single sequence, not twice as much.
    """
    if not _has_all_yardsticks(fixed, trial):
        return False
    measure = trial.measures[-1]
    unit, _ = amount_set(fixed["budget"])
    spent, steps = measure["spent"][unit], measure["step"]
    before = [m["spent"][unit] for m in trial.measures if m["step"] < steps]
    step = max(spent - before[-1] if before else spent, spent / max(1, steps))
    left = 0.0 if measure["progress"] >= 1.0 else (trial.amount or 0.0) - spent
    return bool(left <= 2 * step)


def _check_ends(check: Check, records: list[Record]) -> None:
    """A phase began after those before it, and ended with nothing left to begin that the protocol's cap paid for."""
    fixed: Protocol = {}
    history, capped = History(), False
    for record in records:
        kind, name = record["kind"], record.get("phase", "compare")
        if kind == "study":
            fixed = record["protocol"]
        elif kind == "cap":
            capped = True
            where, phase = f"the cap's end of {name}", _phase(name, fixed, history)
            check("cap", f"{where}: a cap in the protocol", fixed["cap"] is not None, True)
            if phase is not None:
                refused = phase.exhausted() and phase.ended_early() != ""
                check("cap", f"{where}: what was next refused", refused, True)
            seeds = phase.seeds_begun() if isinstance(phase, ConfirmPhase) else None
            check("cap", f"{where}: seeds begun", record["seeds"], seeds)
        elif kind == "comparison" or (kind == "phase" and record["status"] == "begin" and name != "prepare"):
            capped = False
            order = ("search", "confirm", *(["anytime"] if fixed["confirm"]["anytime"] else []), "compare")
            before = {phase: history.phases.get(phase) for phase in order[: order.index(name)]}
            check("phases", f"before {kind} {name}", before, dict.fromkeys(before, "end"))
            check("phases", f"{kind} {name}: after its end", history.phases.get(name) == "end", False)
        elif kind == "phase" and name in _PHASES:
            phase = _phase(name, fixed, history)
            over = phase is None or (phase.exhausted() and (capped or not phase.ended_early()))
            check("phases", f"the end of {name}: nothing was left to begin", over, True)
        history.apply(record)


class _FollowedArm(ArmSpec):
    tried: tuple[dict[str, Any], ...] | None = None
    """The configurations of its search; None: its space is needed, as it has so many points."""

    def _check_space(self, options: type[Config]) -> None:
        """Nothing: its file may lie where the study ran."""

    def load_space(self) -> Space:
        """One that has the configurations, which is all that is needed to know how far a search came."""
        if self.tried is None:
            return super().load_space()
        names = {name for configuration in self.tried for name in configuration}
        choices = {name: tuple(dict.fromkeys(tried[name] for tried in self.tried)) for name in sorted(names)}
        return Space.model_construct(
            dimensions={name: Categorical(type="choice", choices=own) for name, own in choices.items()}
        )


class _FollowedSpec(StudySpec):
    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Asked when the study began, and of its devices, which a protocol does not name."""
        return self


def _phase(name: str, fixed: Protocol, history: History) -> Phase | None:
    """What the protocol's phase would begin next; None where that hangs on a grid whose space is not here."""
    grid = fixed["search"]["algorithm"] == "grid"
    arms = {}
    for arm, written in fixed["arms"].items():
        tried = None if grid else [trial.configuration for trial in history.trials_of("search", arm)]
        arms[arm] = _FollowedArm.model_validate(written | {"tried": tried})
    kept = {key: value for key, value in fixed.items() if key != "alpha"}
    # Nothing is to be suggested, so no sampler need remember what it did.
    search = fixed["search"] | {"algorithm": "grid" if grid else "random"}
    spec = _FollowedSpec.model_validate(kept | {"name": "followed", "arms": arms, "search": search})
    try:
        return _PHASES[name](spec, history, "")
    except InputError:
        return None
