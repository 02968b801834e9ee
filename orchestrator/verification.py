"""``h2h verify``: does everything that a study reports follow from its raw ledger?

The comparison is made again from the records, and its main numbers a second time, by other code that reads the records
directly. The ledger is also held against itself: what trials spent, which data they saw, whose turn it was.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.comparison import compare
from orchestrator.history import History
from orchestrator.ledger import Record, read_ledger
from orchestrator.protocol import protocol_digest
from trainables.errors import InputError
from trainables.storage import Location

TOLERANCE = 1e-9
"""Relative, of numbers that were computed on another machine."""

MOST_ENUMERATED = 13
"""Pairs of which all signings are gone through."""

TIMED_UNITS = ("device_seconds", "wall_seconds", "joules", "usd")
"""Known after a step only, so a trial may end a step later than its budget."""


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
    """A trial as its records tell, without :mod:`orchestrator.history`."""

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
        raise InputError(f"no study lies in {folder}", where=str(folder / "ledger"), remedy="h2h list")
    if not (folder / "study.yaml").exists():
        raise InputError(
            "the study itself is missing",
            where=str(folder / "study.yaml"),
            why="the ledger's first record has its digest",
            remedy="copy the folder again from where the study ran",
        )
    found = Verification()
    try:
        _check_protocol(found, folder, records)
        trials = _raw_trials(records)
        _check_trials(found, records, trials)
        _check_data(found, trials)
        _check_balance(found, records)
        _check_comparison(found, records)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
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
        if record["kind"] == "trial":
            trial = trials.setdefault(record["trial"], RawTrial(record))
            # A new attempt goes on from a checkpoint: what came after that was rolled back.
            trial.measures = [m for m in trial.measures if m["step"] <= record["start_step"]]
            trial.outcome = "running"
        elif record["kind"] == "measure":
            trials[record["trial"]].measures.append(record)
        elif record["kind"] == "end":
            trials[record["trial"]].outcome = record["outcome"]
    return trials


def _check_protocol(found: Verification, folder: Location, records: list[Record]) -> None:
    sessions = [record for record in records if record["kind"] == "study"]
    digest = hashlib.blake2b((folder / "study.yaml").read_bytes(), digest_size=8).hexdigest()
    kinds = [record["kind"] for record in records if record["kind"] in ("study", "extension")]
    if kinds[-1] == "study":  # else it was extended, and has not gone on yet
        found.check("study file", "study.yaml", sessions[-1]["digest"], digest)
    for number, session in enumerate(sessions):
        where = f"session {number + 1}: protocol"
        found.check("protocol", where, session["protocol_digest"], protocol_digest(session["protocol"]))
    changed = {session["protocol_digest"] for session in sessions}
    extensions = [record for record in records if record["kind"] == "extension"]
    found.check("protocol", "protocols without an extension", max(0, len(changed) - 1 - len(extensions)), 0)


def _check_trials(found: Verification, records: list[Record], trials: dict[str, RawTrial]) -> None:
    """Steps and spending only rise, progress is spending over budget, and nothing is overspent."""
    study = next(record for record in records if record["kind"] == "study")
    unit = study["budget"]["unit"]
    for name, trial in trials.items():
        amount = trial.begin["amount"]
        for before, after in itertools.pairwise(trial.measures):
            rising = after["step"] >= before["step"] and all(
                after["spent"].get(key) is None or value is None or after["spent"][key] >= value
                for key, value in before["spent"].items()
            )
            found.check("trials", f"{name} step {after['step']}: spending rises", rising, True)
        for measure in trial.measures:
            progress = min(1.0, measure["spent"][unit] / amount)
            found.check("trials", f"{name} step {measure['step']}: progress", measure["progress"], progress)
            within = unit in TIMED_UNITS or measure["spent"][unit] <= amount * (1 + TOLERANCE)
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


def _check_balance(found: Verification, records: list[Record]) -> None:
    """At no moment of the search was an arm ahead by more than a trial's budget for each trial at a time.

    But for work that a failure took back: an arm may have gone on while another still had it.
    """
    study = next(record for record in records if record["kind"] == "study")
    if not study["search_budget"]:
        return
    unit, bound = study["budget"]["unit"], study["budget"]["amount"] * study["concurrent_per_arm"]
    spent: dict[str, dict[str, float]] = {arm: {} for arm in study["arms"]}
    widest, slack = 0.0, study["budget"]["amount"] if unit in TIMED_UNITS else 0.0
    for record in records:
        if record["kind"] == "measure" and record["phase"] == "search":
            slack += max(0.0, spent[record["arm"]].get(record["trial"], 0.0) - record["spent"][unit])
            spent[record["arm"]][record["trial"]] = record["spent"][unit]
            totals = [math.fsum(own.values()) for own in spent.values()]
            widest = max(widest, max(totals) - min(totals))
        if record["kind"] == "phase" and record["phase"] == "search" and record["status"] == "end":
            break
    within = widest <= (bound + slack) * (1 + TOLERANCE)
    found.check("balance of the search", f"the widest lead was {widest:g} {unit} of {bound:g}", within, True)


def _check_comparison(found: Verification, records: list[Record]) -> None:
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
