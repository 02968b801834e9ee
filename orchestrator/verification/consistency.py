"""The ledger, held against the study's file and against itself.

What decides follows from the protocol, which changes only as extensions say. What trials spent, which data they saw,
and what was confirmed, follow from each other.
"""

import itertools
import math
from collections.abc import Sequence

from orchestrator.analysis.answer import TOLERANCE
from orchestrator.analysis.selection import best_trials, same_configuration
from orchestrator.config.chosen import chosen_configuration
from orchestrator.config.search import HalvingSpec
from orchestrator.config.study import StudySpec
from orchestrator.ledger import protocol, records
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import Protocol
from orchestrator.verification.findings import Verification
from search_spaces import Configuration
from trainables.errors import InputError
from trainables.evaluation.yardstick import mean_over
from trainables.training.config import MEASURED_UNITS


def check_protocol(found: Verification, written: Sequence[records.Record], file: bytes, fixed: Protocol) -> None:
    """What decides is what the study's file says, and was so from the beginning but for what extensions say."""
    number, digest, known = 0, "", list[Protocol]()
    for place, record in enumerate(written):
        if isinstance(record, records.ExtensionRecord):
            before = {key: change[0] for key, change in record.changes.items() if protocol.is_fixed(key)}
            derived = {key: protocol.value_of(known[-1], key) for key in before} if known else {}
            found.check("protocol", "extension: before", before, derived)
        elif isinstance(record, records.StudyRecord):
            number += 1
            where, own = f"session {number}", record.protocol
            found.check("protocol", f"{where}: protocol", record.protocol_digest, protocol.protocol_digest(own))
            follows = protocol.design_of(protocol.study_of(own)).model_dump(mode="json")
            found.check("protocol", f"{where}: by its protocol", record.design.model_dump(mode="json"), follows)
            if known:
                _check_follows(found, f"{where}: protocol, by the session before", own, known)
            if len(known) == 1:
                found.check("study file", f"{where}: study.yaml", record.digest, digest)
            digest = record.digest
        else:
            continue
        known = protocol.protocols_after(written[: place + 1])
    _check_follows(found, "study.yaml: protocol", fixed, known)
    if len(known) == 1:  # else it was extended, and has not gone on yet
        found.check("study file", "study.yaml", digest, protocol.study_digest(file))


def _check_follows(found: Verification, where: str, fixed: Protocol, known: Sequence[Protocol]) -> None:
    found.check("protocol", where, fixed, fixed if fixed in known else known[-1])


def check_plan(found: Verification, written: Sequence[records.Record]) -> None:
    """Trials have the protocol's budgets and seeds, searches tried what their spaces have, only the best of it was
    confirmed, attempts are their own, and since the first that says in what it ran all do."""
    history, said, spec = History(), False, None
    for record in written:
        if isinstance(record, records.StudyRecord):
            spec = protocol.study_of(record.protocol)
        if isinstance(record, records.TrialRecord) and record.trial not in history.trials and spec is not None:
            _check_begin(found, history, record, spec)
        history.apply(record)
        if isinstance(record, records.TrialRecord | records.BegunRecord | records.MeasureRecord | records.EndRecord):
            trial, own = history.trials[record.trial], f"{record.phase} {record.arm} {record.attempt}"
            found.check("attempts", f"{trial.trial}: whose", own, f"{trial.phase} {trial.arm} {trial.attempts}")
        if isinstance(record, records.BegunRecord):
            said = said or record.environment is not None
            where = f"{record.trial} {record.attempt}: it says in what it ran"
            found.check("attempts", where, record.environment is not None, said)


def _check_begin(found: Verification, history: History, begin: records.TrialRecord, spec: StudySpec) -> None:
    name, design = begin.trial, history.design
    amount = design.amount if begin.phase == "search" else design.confirm_amount * (begin.share or 1.0)
    found.check("budgets", f"{name}: its budget", begin.amount, amount)
    after = begin.seed - design.seed
    planned = after == 0 if begin.phase == "search" else 1 <= after <= history.planned_seeds
    found.check("seeds", f"{name}: a seed of the protocol", planned, True)
    if begin.phase == "search":
        inside = _may_be_tried(spec, begin.arm, begin.configuration)
        found.check("search spaces", f"{name}: in the search space of its arm", inside, True)
        asked = history.enqueued.get(begin.arm, {}).get(begin.number)
        if asked is not None:
            own = same_configuration(begin.configuration)
            found.check("enqueued", f"{name}: what was enqueued", own, same_configuration(asked))
    if begin.phase != "confirm":
        return
    wanted = same_configuration(begin.configuration)
    best = wanted == "{}"
    if design.search_budget and history.study is not None:
        top = protocol.value_of(history.study.protocol, "confirm.top")
        chosen = best_trials(history, begin.arm, top if isinstance(top, int) else 1)
        best = wanted in {same_configuration(trial.configuration) for trial in chosen}
    where = f"{name}: among the best configurations of the search"
    found.check("confirmed configurations", where, best, True)


def _may_be_tried(spec: StudySpec, arm: str, configuration: Configuration) -> bool:
    """Whether it has a value in the widest range of each setting that the arm's search varies, and no other."""
    try:
        return chosen_configuration(spec, arm, configuration) == configuration
    except InputError:
        return False


def check_trials(found: Verification, history: History) -> None:
    """Steps and spending only rise, progress is spending over budget, and nothing is overspent. The last step may be
    reported twice, with more yardsticks when it turned out to be the last."""
    unit = history.design.unit
    for name, trial in history.trials.items():
        if trial.measures and trial.outcome and (trial.measures[-1].checkpoint or trial.measures[-1].items):
            found.check("trials", f"{name}: the outcome of a run with a finished model", trial.outcome, "completed")
        for before, after in itertools.pairwise(trial.measures):
            more = (after.step, len(after.yardsticks)) > (before.step, len(before.yardsticks))
            rising = more and all(after.spent.get(key, value) >= value for key, value in before.spent.items())
            found.check("trials", f"{name} step {after.step}: spending rises", rising, True)
        for measure in trial.measures:
            where, spent = f"{name} step {measure.step}", measure.spent.get(unit, 0.0)
            found.check("trials", f"{where}: progress", measure.progress, min(1.0, spent / trial.amount))
            # What a step costs in time is known when it is done: the last one may end beyond the budget.
            last = unit in MEASURED_UNITS and measure is trial.measures[-1]
            within = last or spent <= trial.amount * (1 + TOLERANCE)
            found.check("trials", f"{where}: within its budget", within, True)
            for yardstick, score in measure.yardsticks.items():
                if score.languages and yardstick != "perplexity":
                    found.check("yardsticks", f"{where}: {yardstick}", score.overall, mean_over(score.languages))


def check_data(found: Verification, history: History) -> None:
    """Trials of one seed that saw as many sequences saw the same ones."""
    seen: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[str, str]] = {}
    for name, trial in history.trials.items():
        for measure in trial.measures:
            key = trial.seed, tuple(sorted(measure.mix.items()))
            first, digest = seen.setdefault(key, (name, measure.digest))
            where = f"{name} step {measure.step}: data as of {first}"
            found.check("data digests", where, measure.digest, digest)


def check_balance(found: Verification, written: Sequence[records.Record]) -> None:
    """No arm's search overspent. A trial in time may end a step later, as any may come to a rung within a step."""
    history = History()
    design = next(record.design for record in reversed(written) if isinstance(record, records.StudyRecord))
    if not design.search_budget:
        return
    unit, amount, late = design.unit, design.amount, 0.0
    for record in written:
        history.apply(record)
        if isinstance(record, records.MeasureRecord) and record.phase == "search" and unit in MEASURED_UNITS:
            late = max(late, history.trials[record.trial].spent.get(unit, 0.0) - amount)
    for arm in design.arms:
        paid = math.fsum(trial.progress for trial in history.trials_of("search", arm))
        most = design.search_budget + design.parallel * (late / amount + _beyond_rungs(history))
        where = f"{arm}: {paid:g} of {design.search_budget:g} trial budgets of search"
        found.check("budgets", where, paid <= most * (1 + TOLERANCE), True)


def _beyond_rungs(history: History) -> float:
    """By how much a search trial was beyond its rung when it got there, at most, in trial budgets."""
    assert history.study is not None
    fixed = protocol.value_of(history.study.protocol, "search.halving")
    rungs = dict(enumerate(HalvingSpec.model_validate(fixed or {}).fractions))
    measures = (measure for trial in history.trials_of("search") for measure in trial.measures)
    beyond = (measure.progress - rungs[measure.rung] for measure in measures if measure.rung in rungs)
    return max((0.0, *beyond))  # most come to it a part of a step before
