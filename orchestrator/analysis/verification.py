"""``h2h verify``: does everything that a study reports follow from its raw ledger?

The comparison is made again from the records, and its main numbers a second time, by other code that reads the records
directly. What decides is held against the study's file: by the protocol, which changes only as extensions say. The
ledger is also held against itself: what trials spent, which data they saw, whose turn it was, what was confirmed.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.analysis.comparison import compare
from orchestrator.analysis.course import check_course
from orchestrator.config.files import frozen_content
from orchestrator.config.folder import STUDY_FILE, no_study
from orchestrator.config.study import HalvingSpec
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import (
    Protocol,
    deciding,
    is_fixed,
    protocol,
    protocol_digest,
    protocols_after,
    read_study_file,
    study_digest,
    value_of,
)
from orchestrator.ledger.segments import Record, read_ledger
from trainables.errors import InputError
from trainables.evaluation import find_yardstick
from trainables.storage import Location
from trainables.training.config import MEASURED_UNITS

TOLERANCE = 1e-9
"""Relative, of numbers that were computed on another machine."""

MOST_ENUMERATED = 13
"""Pairs of which all signings are gone through."""


class Mismatch(NamedTuple):
    """A number that is not what the ledger says."""

    where: str
    recorded: Any
    derived: Any


@dataclass
class Verification:
    """What was checked and what came of it."""

    checks: dict[str, int] = field(default_factory=dict)
    """How many numbers, by what they are."""
    mismatches: list[Mismatch] = field(default_factory=list)

    def check(self, kind: str, where: str, recorded: Any, derived: Any) -> None:
        """Compare two JSON values, numbers to within :data:`TOLERANCE`."""
        for path, one, other in _leaves(where, recorded, derived):
            self.checks[kind] = self.checks.get(kind, 0) + 1
            if not _same(one, other):
                self.mismatches.append(Mismatch(path, one, other))


@dataclass
class RawTrial:
    """A trial as its records tell, without :mod:`orchestrator.ledger.history`."""

    begin: Record
    measures: list[Record] = field(default_factory=list)
    outcome: str = "running"


def verify(folder: Location) -> Verification:
    """Check a study's folder.

    Raises:
        InputError: no study lies there, or its ledger cannot be read.
    """
    try:
        records = read_ledger(folder / "ledger")
    except ValueError as error:
        raise InputError(
            "the ledger cannot be read",
            where=str(folder / "ledger"),
            why=f"a line is not JSON: {error}",
            remedy="copy the folder again from where the study ran",
        ) from error
    if not any(record["kind"] == "study" for record in records):
        raise no_study(folder)
    file = read_study_file(folder)
    content = frozen_content(file, str(folder / STUDY_FILE))
    found = Verification()
    try:
        _check_protocol(found, records, file, protocol(content))
        trials = _raw_trials(records)
        _check_plan(found, records)
        check_course(found.check, records)
        _check_trials(found, records, trials)
        _check_data(found, trials)
        _check_balance(found, records, trials)
        _check_comparison(found, records)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise InputError(
            "the ledger is not as this program writes it",
            where=str(folder / "ledger"),
            why=f"a record, or a part of one, is missing or of another kind: {error!r}",
            remedy="verify it with the version of headtohead that wrote it; otherwise it was changed by hand",
        ) from error
    return found


def _raw_trials(records: list[Record]) -> dict[str, RawTrial]:
    trials: dict[str, RawTrial] = {}
    for record in records:
        _take(trials, record)
    return trials


def _take(trials: dict[str, RawTrial], record: Record) -> None:
    if record["kind"] == "trial":
        trial = trials.setdefault(record["trial"], RawTrial(record))
        # A new attempt goes on from a checkpoint: what came after that was rolled back.
        trial.measures = [m for m in trial.measures if m["step"] <= record["start_step"]]
        trial.outcome = "running"
    elif record["kind"] == "measure":
        trials[record["trial"]].measures.append(record)
    elif record["kind"] == "end":
        trials[record["trial"]].outcome = record["outcome"]


def _check_protocol(found: Verification, records: list[Record], file: bytes, fixed: Protocol) -> None:
    """What decides is what the study's file says, and was so from the beginning but for what extensions say.

    Args:
        found: takes the checks.
        records: the ledger.
        file: the study's.
        fixed: the protocol by that file.
    """
    number, digest = 0, ""
    for place, record in enumerate(records):
        known = protocols_after(records[:place]) if record["kind"] in ("study", "extension") else []
        if record["kind"] == "extension":
            before = {key: change[0] for key, change in record["changes"].items() if is_fixed(key)}
            derived = {key: value_of(known[-1], key) for key in before}
            found.check("protocol", "extension: before", before, derived)
        elif record["kind"] == "study":
            number += 1
            where, own = f"session {number}", record["protocol"]
            found.check("protocol", f"{where}: protocol", record["protocol_digest"], protocol_digest(own))
            follows = deciding(own)
            decides = {key: record[key] for key in follows}
            found.check("protocol", f"{where}: by its protocol", decides, follows)
            if known:
                _check_follows(found, f"{where}: protocol, by the session before", own, known)
            if len(known) == 1:
                found.check("study file", f"{where}: study.yaml", record["digest"], digest)
            digest = record["digest"]
    known = protocols_after(records)
    _check_follows(found, "study.yaml: protocol", fixed, known)
    if len(known) == 1:  # else it was extended, and has not gone on yet
        found.check("study file", "study.yaml", digest, study_digest(file))


def _check_follows(found: Verification, where: str, fixed: Protocol, known: list[Protocol]) -> None:
    found.check("protocol", where, fixed, fixed if fixed in known else known[-1])


def _check_plan(found: Verification, records: list[Record]) -> None:
    """Trials have the budgets and seeds of the protocol, and only the best of the search were confirmed."""
    fixed: Protocol = {}
    trials: dict[str, RawTrial] = {}
    for record in records:
        if record["kind"] == "study":
            fixed = record["protocol"]
        if record["kind"] == "trial" and record["trial"] not in trials:
            _check_begin(found, fixed, record)
            if record["phase"] == "confirm":
                best = _is_among_best(fixed, trials, record)
                where = f"{record['trial']}: among the best configurations of the search"
                found.check("confirmed configurations", where, best, True)
        _take(trials, record)


def _check_begin(found: Verification, fixed: Protocol, begin: Record) -> None:
    name, phase, confirm, decides = begin["trial"], begin["phase"], fixed["confirm"], deciding(fixed)
    amount = decides["budget"]["amount"]
    if phase != "search":
        amount = decides["confirm_amount"] * (1.0 if begin["share"] is None else begin["share"])
    found.check("budgets", f"{name}: its budget", begin["amount"], amount)
    after = begin["seed"] - fixed["seed"]
    planned = after == 0 if phase == "search" else 1 <= after <= confirm["seeds"]
    found.check("seeds", f"{name}: a seed of the protocol", planned, True)


def _is_among_best(fixed: Protocol, trials: dict[str, RawTrial], begin: Record) -> bool:
    """Whether fewer than ``confirm.top`` other configurations of the arm were better in the search.

    With ``search.cost`` those within the margin of the best come first, the cheapest ahead.
    """
    wanted = json.dumps(begin["configuration"], sort_keys=True)
    if not fixed["search"]["budget_per_arm"]:
        return wanted == "{}"
    primary, cost = fixed["yardsticks"]["primary"], fixed["search"]["cost"]
    sign = -1 if find_yardstick(primary).higher_is_better else 1
    completed = [
        (
            json.dumps(trial.begin["configuration"], sort_keys=True),
            sign * score["overall"],
            trial.measures[-1],
        )
        for trial in trials.values()
        if (trial.begin["phase"], trial.begin["arm"], trial.outcome) == ("search", begin["arm"], "completed")
        if (score := _last_score(trial, primary)) is not None
    ]
    least = min((loss for _, loss, _ in completed), default=math.inf)
    ranks: dict[str, tuple[int, float]] = {}
    for configuration, loss, measure in completed:
        alike = cost is not None and loss <= least + fixed["confirm"]["margin"]
        rank = (0, measure["spent"].get(cost, math.inf)) if alike else (1, loss)
        ranks[configuration] = min(rank, ranks.get(configuration, rank))
    return wanted in ranks and sum(r < ranks[wanted] for r in ranks.values()) < fixed["confirm"]["top"]


def _last_score(trial: RawTrial, yardstick: str) -> dict[str, Any] | None:
    scores = [m["yardsticks"][yardstick] for m in trial.measures if yardstick in m["yardsticks"]]
    return scores[-1] if scores else None


def _check_trials(found: Verification, records: list[Record], trials: dict[str, RawTrial]) -> None:
    """Steps and spending only rise, progress is spending over budget, and nothing is overspent.

    The last step of a trial may be reported twice, with more yardsticks when it turned out to be the last.
    """
    study = next(record for record in records if record["kind"] == "study")
    unit = study["budget"]["unit"]
    for name, trial in trials.items():
        amount = trial.begin["amount"]
        for before, after in itertools.pairwise(trial.measures):
            more = (after["step"], len(after["yardsticks"])) > (before["step"], len(before["yardsticks"]))
            rising = more and all(
                after["spent"].get(key) is None or value is None or after["spent"][key] >= value
                for key, value in before["spent"].items()
            )
            found.check("trials", f"{name} step {after['step']}: spending rises", rising, True)
        for measure in trial.measures:
            progress = min(1.0, measure["spent"][unit] / amount)
            found.check("trials", f"{name} step {measure['step']}: progress", measure["progress"], progress)
            # What a step costs in time is known when it is done: the last one may end beyond the budget.
            last = unit in MEASURED_UNITS and measure["step"] == trial.measures[-1]["step"]
            within = last or measure["spent"][unit] <= amount * (1 + TOLERANCE)
            found.check("trials", f"{name} step {measure['step']}: within its budget", within, True)
            for yardstick, score in measure["yardsticks"].items():
                languages = list(score["languages"].values())
                if languages and yardstick != "perplexity":
                    mean = math.fsum(languages) / len(languages)
                    where = f"{name} step {measure['step']}: {yardstick}"
                    found.check("yardsticks", where, score["overall"], mean)


def _check_data(found: Verification, trials: dict[str, RawTrial]) -> None:
    """Trials of one seed that saw as many sequences saw the same ones."""
    seen: dict[tuple[int, str], tuple[str, str]] = {}
    for name, trial in trials.items():
        for measure in trial.measures:
            key = trial.begin["seed"], json.dumps(measure["mix"], sort_keys=True)
            first, digest = seen.setdefault(key, (name, measure["digest"]))
            where = f"{name} step {measure['step']}: data as of {first}"
            found.check("data digests", where, measure["digest"], digest)


def _check_balance(found: Verification, records: list[Record], trials: dict[str, RawTrial]) -> None:
    """No arm's search spent more than it may, and at no moment was one ahead by more than it may be.

    That is a trial's budget for each trial at a time. A trial in time, and a part of one that pauses at a rung, may
    end a step later than it should; and of work that a failure took back an arm may have gone on while another still
    had it.
    """
    study = [record for record in records if record["kind"] == "study"][-1]
    if not study["search_budget"]:
        return
    unit, amount, concurrent = study["budget"]["unit"], study["budget"]["amount"], study["concurrent_per_arm"]
    halving = HalvingSpec.model_validate(study["protocol"]["search"]["halving"])
    spent: dict[str, dict[str, float]] = {arm: {} for arm in study["arms"]}
    widest = taken_back = late = 0.0
    for record in records:
        if record["kind"] == "measure" and record["phase"] == "search":
            own, name, now = spent[record["arm"]], record["trial"], record["spent"][unit]
            pauses = halving.kind == "promotion" and record["rung"] is not None
            if pauses or unit in MEASURED_UNITS:
                late = max(late, now - amount * (halving.fractions[record["rung"]] if pauses else 1.0))
            taken_back += max(0.0, own.get(name, 0.0) - now)
            own[name] = now
            totals = [math.fsum(each.values()) for each in spent.values()]
            widest = max(widest, max(totals) - min(totals))
    bound = concurrent * (amount + late)
    within = widest <= (bound + taken_back) * (1 + TOLERANCE)
    found.check("balance of the search", f"the widest lead was {widest:g} {unit} of {bound:g}", within, True)
    for arm in study["arms"]:
        searched = [t for t in trials.values() if (t.begin["phase"], t.begin["arm"]) == ("search", arm)]
        paid = math.fsum(trial.measures[-1]["progress"] for trial in searched if trial.measures)
        within = paid <= (study["search_budget"] + concurrent * late / amount) * (1 + TOLERANCE)
        where = f"{arm}: {paid:g} of {study['search_budget']:g} trial budgets of search"
        found.check("budgets", where, within, True)


def _check_comparison(found: Verification, records: list[Record]) -> None:
    answers = 0
    for record in records:
        answers += record["kind"] == "comparison"
        if (record["kind"], record.get("phase")) == ("phase", "compare"):
            if record["status"] == "end":
                found.check("comparison", "a comparison where the study came to its end", answers > 0, True)
            answers = 0
    places = [index for index, record in enumerate(records) if record["kind"] == "comparison"]
    if not places:
        return
    before, recorded = records[: places[-1]], records[places[-1]]
    recorded = {key: value for key, value in recorded.items() if key not in ("kind", "time")}
    derived = json.loads(json.dumps(compare(History.of(before))))
    found.check("comparison", "comparison", recorded, derived)
    session = [record for record in before if record["kind"] == "study"][-1]
    values = _final_values(_raw_trials(before), session["confirm_amount"])
    for pair in recorded["pairs"]:
        for name, row in pair["yardsticks"].items():
            where = f"{pair['a']} against {pair['b']}, {name}"
            found.check(
                "comparison, by other code", where, _shown(row), _by_other_code(values, pair, name, row)
            )


def _final_values(
    trials: dict[str, RawTrial], amount: float
) -> dict[tuple[str, str], dict[str, dict[int, float]]]:
    """Of each arm and yardstick: by configuration and seed, the last value of the completed runs of that budget."""
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for trial in trials.values():
        begin = trial.begin
        if (begin["phase"], begin["amount"], trial.outcome) == ("confirm", amount, "completed"):
            configuration = json.dumps(trial.begin["configuration"], sort_keys=True)
            for name, score in trial.measures[-1]["yardsticks"].items():
                values[trial.begin["arm"], name][configuration][trial.begin["seed"]] = score["overall"]
    return values


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("n", "mean_a", "mean_b", "difference", "p")}


def _by_other_code(
    values: dict[tuple[str, str], dict[str, dict[int, float]]],
    pair: dict[str, Any],
    yardstick: str,
    row: dict[str, Any],
) -> dict[str, Any]:
    """Means and the exact permutation test, from the raw values of the configurations with the means recorded."""
    matching: list[dict[str, Any]] = []
    for one in values[pair["a"], yardstick].values():
        for other in values[pair["b"], yardstick].values():
            seeds = sorted(one.keys() & other.keys())
            if not seeds:
                continue
            adaptive = pair["stopping"] is not None
            if adaptive:  # what was trained after the pair was settled is not in its numbers
                seeds = seeds[: row["n"]]
            n, differences = len(seeds), [one[seed] - other[seed] for seed in seeds]
            found = {
                "n": n,
                "mean_a": math.fsum(one[seed] for seed in seeds) / n,
                "mean_b": math.fsum(other[seed] for seed in seeds) / n,
                "difference": math.fsum(differences) / n,
                "p": row["p"] if adaptive or n > MOST_ENUMERATED else _exact_p(differences),
            }
            matching.append(found)
    agreeing = [found for found in matching if _same(found["difference"], row["difference"])]
    nothing = {"n": 0, "mean_a": None, "mean_b": None, "difference": None, "p": None}
    return (agreeing or matching or [nothing])[0]


def _exact_p(differences: list[float]) -> float:
    """Share of the signings of the differences whose sum is at least as far from zero."""
    observed, size = abs(math.fsum(differences)), math.fsum(map(abs, differences))
    signings = itertools.product((1, -1), repeat=len(differences))
    sums = (abs(math.fsum(s * d for s, d in zip(signs, differences, strict=True))) for signs in signings)
    extreme = sum(total >= observed - 1e-12 * size for total in sums)
    return float(extreme / 2 ** len(differences))


def _leaves(where: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _leaves(f"{where}.{key}", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _leaves(f"{where}[{index}]", left, right)
    else:
        yield where, one, other


def _same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    if numbers and not isinstance(one, bool) and not isinstance(other, bool):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)
