"""Whether arms have learned anything: their runs against what counting, chance and the model they began with come to.

An arm can be named only where it or the other is surely above the highest of these: chance, the unigram table, the
models that the two began with. The bigram table is no such bar: below it the answer says how little was learned.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from orchestrator.analysis.comparison import Floor, FloorName, Trend
from orchestrator.analysis.held_out_text import evidence_against, items_before
from orchestrator.analysis.selection import Runs, final_values
from orchestrator.analysis.statistics.evidence import Evidence
from orchestrator.analysis.worth import Pairs, Worth, untrained, untrained_worth
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.items import read_floors
from trainables.evaluation import find_yardstick
from trainables.evaluation.item_scores import ItemScores

MOST_TIMES = 1000.0
LATER = 0.5
"""Of a run's course what comes from that share of its budget on: a yardstick there is worse than that of a run which
ends there, and equal at the end, so that the course gains more than longer runs would."""
FEWEST = 2  # runs of an arm: of one nothing shows how much they vary


class _Known(NamedTuple):
    """A floor on the primary yardstick."""

    name: FloorName
    value: float
    items: ItemScores | None


def floors_of(history: History, arm: str, runs: Runs) -> Mapping[FloorName, Floor]:
    """By name, where the arm's completed runs stand to its floors on the primary yardstick; empty where no run of the
    study measured any. Raises InputError where a file of item scores is gone or another."""
    values = final_values(runs, history.design.yardsticks.primary)
    models = [Worth(values[seed], runs[seed], False) for seed in sorted(values)]
    return {floor.name: _floor(history, arm, models, floor) for floor in _known(history, arm)}


def below(
    history: History, arms: tuple[str, str], pairs: Pairs, *, level: float = ALPHA, both: bool = False
) -> dict[FloorName, float]:
    """The floors that neither arm's models are surely above (with ``both``: not both arms'), by value: of those that
    bar a verdict at most the highest, and the bigram table. None of fewer than two pairs. ``level``: of the tests."""
    if len(pairs) < FEWEST:
        return {}
    sign = -1 if history.design.lower_is_better(history.design.yardsticks.primary) else 1
    known = [floor for arm in arms for floor in _known(history, arm)]
    bars = [floor for floor in known if floor.name != "bigram"]
    highest = [max(bars, key=lambda floor: sign * floor.value)] if bars else []
    bigram = [floor for floor in known if floor.name == "bigram"][:1]
    sides = list(zip(*pairs.values(), strict=True))
    return {
        floor.name: floor.value
        for floor in (*highest, *bigram)
        if not (all if both else any)(_is_above(history, side, floor, level) for side in sides)
    }


def _known(history: History, arm: str) -> list[_Known]:
    design = history.design
    primary, found = design.yardsticks.primary, list[_Known]()
    if (own := untrained_worth(history, primary, arm)) is not None:
        found.append(_Known("untrained", own.score, items_before(history, primary, own)))
    # Tables and text are the same for all arms of a task.
    same = [name for name, other in design.arms.items() if other.task == design.arms[arm].task]
    measured = (untrained(history, name) for name in sorted(same, key=lambda name: name != arm))
    run = next((run for run in measured if run is not None), None)
    if run is None or run.floors is None:
        return found
    files = {} if history.folder is None else read_floors(history.folder, run)
    for name in ("unigram", "bigram"):
        if name in run.floors.tables and primary in run.floors.tables[name]:
            found.append(_Known(name, run.floors.tables[name][primary].overall, files.get((primary, name))))
    chance = find_yardstick(primary, "primary").chance
    return found if chance is None else [*found, _Known("chance", chance, None)]


def _floor(history: History, arm: str, models: Sequence[Worth], floor: _Known) -> Floor:
    if len(models) < FEWEST:
        return Floor(value=floor.value, difference=None, interval=None, above=None, times_budget=None, trend=None)
    found = evidence_against(history, history.design.yardsticks.primary, models, floor.value, floor.items)
    above = _is_better(history, found, ALPHA)
    times, trend = (None, None) if above else _times_budget(history, arm, models, floor.value)
    return Floor(
        value=floor.value,
        difference=float(found.mean),
        interval=found.interval(ALPHA),
        above=above,
        times_budget=times,
        trend=trend,
    )


def _is_above(history: History, models: Sequence[Worth], floor: _Known, level: float) -> bool:
    found = evidence_against(history, history.design.yardsticks.primary, models, floor.value, floor.items)
    return _is_better(history, found, level)


def _is_better(history: History, found: Evidence, level: float) -> bool:
    """Whether models surely are: one-sided, over seeds and text."""
    low, high = found.interval(2 * level)
    return high < 0 if history.design.lower_is_better(history.design.yardsticks.primary) else low > 0


def _times_budget(
    history: History, arm: str, models: Sequence[Worth], value: float
) -> tuple[float, Trend] | tuple[None, None]:
    """Where the mean of the arm's models at the whole budget comes to the value, growing with the logarithm of what is
    spent as it does over a trend."""
    primary = history.design.yardsticks.primary
    mean = float(np.mean([worth.score for worth in models]))
    trend: Trend = "branches"
    points = [
        (branch.share, score)
        for branch in history.trials_of("anytime", arm)
        if branch.outcome == "completed" and branch.share is not None and (score := branch.score(primary)) is not None
    ]
    if points:
        points += [(1.0, mean)]
    else:
        trend = "course"
        runs = (run for run in history.trials_of("confirm", arm) if run.outcome == "completed")
        course = (point for run in runs for point in run.course(primary))
        # Runs are evaluated at the first step that comes to a share: by a step's part later in one than in another.
        points = [(round(progress, 2), score) for progress, score in course if progress >= LATER]
    scores = defaultdict[float, list[float]](list)
    for share, score in points:
        scores[share].append(score)
    if len(scores) < 2:
        return None, None
    slope, _ = np.polyfit(np.log(list(scores)), [np.mean(found) for found in scores.values()], 1)
    missing = value - mean
    better = -1.0 if history.design.lower_is_better(primary) else 1.0
    if better * missing <= 0 or better * slope <= 0:  # it is there in the mean, or does not come nearer
        return None, None
    with np.errstate(over="ignore"):
        times = float(np.exp(missing / slope))
    return (times, trend) if 1.0 < times <= MOST_TIMES else (None, None)
