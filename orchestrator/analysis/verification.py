"""``h2h verify``: does everything that a study reports follow from its raw ledger?

The comparison is made again from the records, and its main numbers a second time, by other code that reads the records
directly. What decides is held against the study's file: by the protocol, which changes only as extensions say. The
ledger is also held against itself: what trials spent, which data they saw, what was confirmed.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue
from scipy import special

from orchestrator.analysis.answer import TOLERANCE, leaves, same
from orchestrator.analysis.compare import compare
from orchestrator.analysis.comparison import Comparison, Pair, Row
from orchestrator.analysis.selection import best_trials, same_configuration
from orchestrator.analysis.statistics.rule import FEWEST
from orchestrator.config.files import frozen_content, read_frozen
from orchestrator.config.folder import LEDGER, STUDY_FILE, no_study
from orchestrator.config.search import HalvingSpec
from orchestrator.ledger import protocol, records
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_items
from orchestrator.ledger.protocol import Protocol
from orchestrator.ledger.segments import LedgerReader, parse_line
from trainables.errors import InputError
from trainables.evaluation.yardstick import Score, transformed
from trainables.storage import Location
from trainables.training.config import MEASURED_UNITS


class Mismatch(NamedTuple):
    """A number that is not what the ledger says."""

    where: str
    recorded: JsonValue
    derived: JsonValue


@dataclass
class Verification:
    """What was checked and what came of it."""

    records: int = 0  # whole ones
    damaged: list[str] = field(default_factory=list)  # places of lines that are none, and why
    checks: dict[str, int] = field(default_factory=dict)  # how many numbers, by what they are
    mismatches: list[Mismatch] = field(default_factory=list)

    def check(self, kind: str, where: str, recorded: JsonValue, derived: JsonValue) -> None:
        """Compare two JSON values."""
        for path, one, other in leaves(recorded, derived, where):
            self.checks[kind] = self.checks.get(kind, 0) + 1
            if not same(one, other):
                self.mismatches.append(Mismatch(path, one, other))

    def in_words(self) -> str:
        """A line for each kind of check and each mismatch, or for each damaged line; and what all came to."""
        if self.damaged:
            whole = f"{self.records:,} records are whole, {len(self.damaged):,} are not: nothing is derived from them"
            return "\n".join([*(f"damaged: {line}" for line in self.damaged), whole])
        lines = [f"{count:>8,}  {kind}" for kind, count in self.checks.items()]
        lines += [f"mismatch: {m.where}: recorded {m.recorded}, the ledger says {m.derived}" for m in self.mismatches]
        ending = f"{len(self.mismatches)} mismatches" if self.mismatches else "all as recorded"
        total = sum(self.checks.values())
        return "\n".join([*lines, f"{self.records:,} records are whole; {total:,} values derived again: {ending}"])


def verify(folder: Location) -> Verification:
    """Check a study's folder; of a damaged ledger, which records are whole. Raises InputError if there is no study."""
    found, written, history = Verification(), list[records.Record](), History()
    for line in LedgerReader(folder / LEDGER).lines():
        try:
            record = parse_line(line)
            history.apply(record)
            written.append(record)
        except InputError as error:
            found.damaged.append(f"{line.place}: {error.why}")
    found.records = len(written)
    if found.damaged:
        return found
    if history.study is None:
        raise no_study(folder)
    data = read_frozen(folder)
    _check_protocol(found, written, data, protocol.protocol(frozen_content(data, str(folder / STUDY_FILE))))
    _check_plan(found, written)
    _check_trials(found, history)
    _check_data(found, history)
    _check_balance(found, written)
    if _check_items(found, history, folder):
        _check_comparison(found, written, folder)
    return found


def _check_protocol(found: Verification, written: Sequence[records.Record], file: bytes, fixed: Protocol) -> None:
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


def _check_plan(found: Verification, written: Sequence[records.Record]) -> None:
    """Trials have the protocol's budgets and seeds, only the search's best were confirmed, attempts are their own."""
    history = History()
    for record in written:
        if isinstance(record, records.TrialRecord) and record.trial not in history.trials:
            _check_begin(found, history, record)
        history.apply(record)
        if isinstance(record, records.TrialRecord | records.BegunRecord | records.MeasureRecord | records.EndRecord):
            trial, own = history.trials[record.trial], f"{record.phase} {record.arm} {record.attempt}"
            found.check("attempts", f"{trial.trial}: whose", own, f"{trial.phase} {trial.arm} {trial.attempts}")


def _check_begin(found: Verification, history: History, begin: records.TrialRecord) -> None:
    name, design = begin.trial, history.design
    amount = design.amount if begin.phase == "search" else design.confirm_amount * (begin.share or 1.0)
    found.check("budgets", f"{name}: its budget", begin.amount, amount)
    after = begin.seed - design.seed
    planned = after == 0 if begin.phase == "search" else 1 <= after <= design.seeds
    found.check("seeds", f"{name}: a seed of the protocol", planned, True)
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


def _check_trials(found: Verification, history: History) -> None:
    """Steps and spending only rise, progress is spending over budget, and nothing is overspent. The last step may be
    reported twice, with more yardsticks when it turned out to be the last."""
    unit = history.design.unit
    for name, trial in history.trials.items():
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
                languages = list(score.languages.values())
                if languages and yardstick != "perplexity":
                    mean = math.fsum(languages) / len(languages)
                    found.check("yardsticks", f"{where}: {yardstick}", score.overall, mean)


def _check_items(found: Verification, history: History, folder: Location) -> bool:
    """The scores of a trial's items are those that it reported, and add up to its yardsticks. Whether all are there."""
    before = len(found.mismatches)
    for trial in history.trials.values():
        try:
            items = read_items(folder, trial)
        except InputError as error:
            found.check("item scores", error.where, error.what, "the file of its report")
            continue
        last = trial.measures[-1] if trial.measures else None
        for (yardstick, scorer), own in items.items():
            assert last is not None, "its report named the file"
            scores = last.yardsticks if scorer == last.scorer else last.other_scorers.get(scorer, {})
            recorded = scores[yardstick].model_dump(mode="json") if yardstick in scores else None
            languages = {name: transformed(own.transform, part.ratio) for name, part in own.languages.items()}
            derived = Score(overall=own.overall, languages=languages).model_dump(mode="json")
            found.check("item scores", f"{trial.trial}: {yardstick} by {scorer}", recorded, derived)
    return len(found.mismatches) == before


def _check_data(found: Verification, history: History) -> None:
    """Trials of one seed that saw as many sequences saw the same ones."""
    seen: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[str, str]] = {}
    for name, trial in history.trials.items():
        for measure in trial.measures:
            key = trial.seed, tuple(sorted(measure.mix.items()))
            first, digest = seen.setdefault(key, (name, measure.digest))
            where = f"{name} step {measure.step}: data as of {first}"
            found.check("data digests", where, measure.digest, digest)


def _check_balance(found: Verification, written: Sequence[records.Record]) -> None:
    """No arm's search overspent, nor was ever ahead by more than a trial's budget for each trial at a time. A trial in
    time may end a step later, as any may come to a rung within a step; and an arm may have gone on while another still
    had work that a failure took back."""
    history = History()
    design = next(record.design for record in reversed(written) if isinstance(record, records.StudyRecord))
    if not design.search_budget:
        return
    unit, amount = design.unit, design.amount
    spent: dict[str, dict[str, float]] = {arm: {} for arm in design.arms}
    widest = taken_back = late = 0.0
    for record in written:
        history.apply(record)
        if isinstance(record, records.TrialRecord | records.MeasureRecord) and record.phase == "search":
            own, now = spent[record.arm], history.trials[record.trial].spent.get(unit, 0.0)
            if unit in MEASURED_UNITS:
                late = max(late, now - amount)
            taken_back += max(0.0, own.get(record.trial, 0.0) - now)
            own[record.trial] = now
            totals = [math.fsum(each.values()) for each in spent.values()]
            widest = max(widest, max(totals) - min(totals))
    bound = design.concurrent_per_arm * (amount + late)
    within = widest <= (bound + taken_back) * (1 + TOLERANCE)
    found.check("balance of the search", f"the widest lead was {widest:g} {unit} of {bound:g}", within, True)
    for arm in design.arms:
        paid = math.fsum(trial.progress for trial in history.trials_of("search", arm))
        most = design.search_budget + design.concurrent_per_arm * (late / amount + _beyond_rungs(history))
        where = f"{arm}: {paid:g} of {design.search_budget:g} trial budgets of search"
        found.check("budgets", where, paid <= most * (1 + TOLERANCE), True)


def _beyond_rungs(history: History) -> float:
    """By how much a search trial was beyond its rung when it got there, at most, in trial budgets."""
    assert history.study is not None
    fixed = protocol.value_of(history.study.protocol, "search.halving")
    rungs = dict(enumerate(HalvingSpec.model_validate(fixed or {}).fractions))
    measures = (measure for trial in history.trials_of("search") for measure in trial.measures)
    return max((measure.progress - rungs[measure.rung] for measure in measures if measure.rung in rungs), default=0.0)


def _check_comparison(found: Verification, written: Sequence[records.Record], folder: Location) -> None:
    """Every end of the comparison has one; the last follows from the records before it."""
    answers, last = 0, None
    for place, record in enumerate(written):
        if isinstance(record, records.ComparisonRecord):
            answers, last = answers + 1, place
        elif isinstance(record, records.PhaseRecord) and record.phase == "compare":
            if record.status == "end":
                found.check("comparison", "a comparison where the study came to its end", answers > 0, True)
            answers = 0
    if last is None:
        return
    before, record = written[:last], written[last]
    assert isinstance(record, records.ComparisonRecord)
    history = History.of(before, folder)
    found.check("comparison", "comparison", record.comparison, compare(history).to_json())
    recorded = Comparison.from_json(record.comparison)
    if recorded is None:
        found.check("comparison", "the comparison's form", "unknown to this version", "known")
        return
    values = _final_values(before, history.design.confirm_amount)
    for pair in recorded.pairs:
        for name, row in pair.yardsticks.items():
            where, shown = (
                f"{pair.a} against {pair.b}, {name}",
                {"n", "mean_a", "mean_b", "difference", "seed_error", "p"},
            )
            derived = _by_other_code(values, pair, name, row)
            found.check("comparison, by other code", where, row.model_dump(include=shown), derived)


Values = dict[tuple[str, str], dict[str, dict[int, float]]]
"""Of each arm and yardstick: by configuration and seed, the last value of the completed runs, and what the untrained
model has of those that diverged."""


def _final_values(written: Sequence[records.Record], amount: float) -> Values:
    """From the records themselves, not by way of :class:`History`."""
    begun: dict[str, records.TrialRecord] = {}
    diverged: list[records.TrialRecord] = []
    untrained: dict[str, Mapping[str, Score]] = {}
    last: dict[str, records.MeasureRecord] = {}
    values: Values = defaultdict(lambda: defaultdict(dict))
    for record in written:
        if isinstance(record, records.TrialRecord):
            begun.setdefault(record.trial, record)
        elif isinstance(record, records.MeasureRecord):
            last[record.trial] = record
        elif isinstance(record, records.BegunRecord) and record.floors is not None:
            untrained.setdefault(record.arm, record.floors.untrained)
        elif isinstance(record, records.EndRecord) and record.outcome == "diverged" and record.phase == "confirm":
            diverged.append(begun[record.trial])
        elif isinstance(record, records.EndRecord) and record.outcome == "completed" and record.phase == "confirm":
            begin = begun[record.trial]
            if begin.amount == amount:
                for name, score in last[record.trial].yardsticks.items():
                    own = values[begin.arm, name][same_configuration(begin.configuration)]
                    own[begin.seed] = score.overall
    for begin in diverged:
        if begin.amount == amount:
            for name, score in untrained.get(begin.arm, {}).items():
                values[begin.arm, name][same_configuration(begin.configuration)][begin.seed] = score.overall
    return values


def _by_other_code(values: Values, pair: Pair, yardstick: str, row: Row) -> dict[str, JsonValue]:
    """Means and the t-test, from the raw values of the configurations with the means recorded."""
    matching: list[dict[str, JsonValue]] = []
    for one, other in itertools.product(values[pair.a, yardstick].values(), values[pair.b, yardstick].values()):
        seeds = sorted(one.keys() & other.keys())
        if not seeds:
            continue
        adaptive = pair.stopping is not None
        if adaptive:  # what was trained after the pair was settled is not in its numbers
            seeds = seeds[: row.n]
        n, differences = len(seeds), [one[seed] - other[seed] for seed in seeds]
        # Of text, whose scores are in files of their own, other code would be the same once more.
        given = row.text_error is not None or (row.role == "primary" and (adaptive or pair.pending))
        matching.append(
            {
                "n": n,
                "mean_a": math.fsum(one[seed] for seed in seeds) / n,
                "mean_b": math.fsum(other[seed] for seed in seeds) / n,
                "difference": math.fsum(differences) / n,
                "seed_error": (_spread(differences) / n) ** 0.5 if n > 1 else None,
                "p": row.p if given else _student_p(differences),
            }
        )
    agreeing = [found for found in matching if same(found["difference"], row.difference)]
    nothing: dict[str, JsonValue] = dict.fromkeys(("mean_a", "mean_b", "difference", "seed_error", "p"))
    return (agreeing or matching or [{"n": 0, **nothing}])[0]


def _spread(differences: Sequence[float]) -> float:
    """Their variance; 0 where it is but rounding."""
    mean = math.fsum(differences) / len(differences)
    spread = math.fsum((d - mean) ** 2 for d in differences) / (len(differences) - 1)
    return spread if spread > (1e-12 * max(map(abs, differences))) ** 2 else 0.0


def _student_p(differences: Sequence[float]) -> float | None:
    """Two-sided p of a mean of zero, by the density of Student's t (Student 1908) alone."""
    n, mean = len(differences), math.fsum(differences) / len(differences)
    if n < FEWEST:
        return None
    spread = _spread(differences)
    if spread == 0:
        return 0.0 if mean else 1.0
    square = mean**2 * n / spread
    # With x = t^2 / (df + t^2), p is the regularised incomplete beta function of 1 - x.
    return float(special.betainc((n - 1) / 2, 0.5, (n - 1) / (n - 1 + square)))
