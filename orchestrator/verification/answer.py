"""The answer, derived from the records again; its main numbers a second time, by code that reads them directly."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue
from scipy import special

from orchestrator.analysis.answer import same
from orchestrator.analysis.compare import compare
from orchestrator.analysis.comparison import Comparison, Pair, Row
from orchestrator.analysis.selection import same_configuration
from orchestrator.analysis.statistics.rule import FEWEST
from orchestrator.ledger import records
from orchestrator.ledger.history import History
from orchestrator.verification.findings import Verification
from trainables.errors import InputError
from trainables.storage import Location


def check_comparison(found: Verification, written: Sequence[records.Record], folder: Location) -> None:
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
    try:
        derived = compare(history).to_json()
    except InputError as error:  # files of item scores that are whole, and not of one study
        found.check("comparison", error.where or "comparison", error.what, "a comparison")
        return
    found.check("comparison", "comparison", record.comparison, derived)
    recorded = Comparison.from_json(record.comparison)
    if recorded is None:
        found.check("comparison", "the comparison's form", "unknown to this version", "known")
        return
    raw = _raw(before, history.design.confirm_amount)
    for pair in recorded.pairs:
        for name, row in pair.yardsticks.items():
            where, shown = (
                f"{pair.a} against {pair.b}, {name}",
                {"n", "mean_a", "mean_b", "difference", "seed_error", "p"},
            )
            derived = _by_other_code(raw, pair, name, row)
            found.check("comparison, by other code", where, row.model_dump(include=shown), derived)


class _Raw(NamedTuple):
    """What the records themselves say of the confirmation, not by way of :class:`History`."""

    values: dict[tuple[str, str], dict[str, dict[int, float]]]
    """Of each arm and yardstick: by configuration and seed, the last value of the completed runs."""
    broken: dict[str, dict[str, set[int]]]
    """Of each arm: by configuration, the seeds at which it diverged or failed."""
    untrained: dict[tuple[str, str], float]
    """Of each arm and yardstick, before training."""


def _raw(written: Sequence[records.Record], amount: float) -> _Raw:
    begun: dict[str, records.TrialRecord] = {}
    last: dict[str, records.MeasureRecord] = {}
    raw = _Raw(defaultdict(lambda: defaultdict(dict)), defaultdict(lambda: defaultdict(set)), {})
    for record in written:
        if isinstance(record, records.TrialRecord):
            begun.setdefault(record.trial, record)
        elif isinstance(record, records.MeasureRecord):
            last[record.trial] = record
        elif isinstance(record, records.BegunRecord) and record.phase == "confirm" and record.floors is not None:
            for name, score in record.floors.untrained.items():
                raw.untrained.setdefault((record.arm, name), score.overall)
        elif isinstance(record, records.EndRecord) and record.phase == "confirm":
            begin = begun[record.trial]
            configuration = same_configuration(begin.configuration)
            if begin.amount != amount:
                continue
            if record.outcome in records.BROKEN:
                raw.broken[begin.arm][configuration].add(begin.seed)
            elif record.outcome == "completed":
                for name, score in last[record.trial].yardsticks.items():
                    raw.values[begin.arm, name][configuration][begin.seed] = score.overall
    return raw


def _worth(raw: _Raw, pair: Pair, yardstick: str, chosen: tuple[str, str], row: Row) -> list[dict[int, float]]:
    """What the two arms' configurations are worth by seed: where they broke, the worst of all that is known."""
    arms = (pair.a, pair.b)
    own = [dict(raw.values[arm, yardstick][which]) for arm, which in zip(arms, chosen, strict=True)]
    gone = [raw.broken[arm][which] for arm, which in zip(arms, chosen, strict=True)]
    before = [raw.untrained[arm, yardstick] for arm in arms if (arm, yardstick) in raw.untrained]
    if not before:
        gone = [set(), set()]
    seeds = sorted((own[0].keys() | gone[0]) & (own[1].keys() | gone[1]))
    if pair.stopping is not None:  # what was trained after the pair was settled is not in its numbers
        seeds = seeds[: row.n]
    own = [{seed: value for seed, value in side.items() if seed <= seeds[-1]} for side in own] if seeds else own
    worst = (max if row.lower_is_better else min)(
        [*before, *(value for side in own for value in side.values())], default=0.0
    )
    return [{seed: side.get(seed, worst) for seed in seeds} for side in own]


def _by_other_code(raw: _Raw, pair: Pair, yardstick: str, row: Row) -> dict[str, JsonValue]:
    """Means and the t-test, from the raw values of the configurations with the means recorded."""
    matching: list[dict[str, JsonValue]] = []
    known = [raw.values[arm, yardstick].keys() | raw.broken[arm].keys() for arm in (pair.a, pair.b)]
    for one_chosen, other_chosen in itertools.product(*map(sorted, known)):
        one, other = _worth(raw, pair, yardstick, (one_chosen, other_chosen), row)
        if not one:
            continue
        n, differences = len(one), [_difference(one[seed], other[seed]) for seed in one]
        # Of text, whose scores are in files of their own, other code would be the same once more.
        given = row.text_error is not None or (row.role == "primary" and (pair.stopping is not None or pair.pending))
        matching.append(
            {
                "n": n,
                "mean_a": math.fsum(one.values()) / n,
                "mean_b": math.fsum(other.values()) / n,
                "difference": math.fsum(differences) / n,
                "seed_error": (_spread(differences) / n) ** 0.5 if n > 1 else None,
                "p": row.p if given else _student_p(differences),
            }
        )
    agreeing = [found for found in matching if same(found["difference"], row.difference)]
    nothing: dict[str, JsonValue] = dict.fromkeys(("mean_a", "mean_b", "difference", "seed_error", "p"))
    return (agreeing or matching or [{"n": 0, **nothing}])[0]


def _difference(one: float, other: float) -> float:
    """0 where it is but rounding."""
    return 0.0 if math.isclose(one, other, rel_tol=1e-12) else one - other


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
