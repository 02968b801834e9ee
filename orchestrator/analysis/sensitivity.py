"""What the second half of a run's budget brings: the scale of the margin, and what a yardstick must be able to tell.

Arms may be called equivalent only on a yardstick that tells each from itself half way, by more than the margin: one
that sees no difference where there is one makes all arms alike, and so does a margin that is as large (assay
sensitivity, ICH E10).
"""

from collections.abc import Iterable

import numpy as np

from orchestrator.analysis.selection import Runs, final_values
from orchestrator.analysis.statistics.evidence import difference, of_seeds
from orchestrator.config.confirmation import MARGIN_SHARE
from orchestrator.ledger.history import History
from trainables.evaluation import YARDSTICKS, find_yardstick

HALF = 0.5


def gains(history: History, runs: Runs) -> list[float]:
    """By completed run that was evaluated by the half of its budget, what the primary yardstick gained from there to
    the end, on the same text; positive is better. Of a yardstick that is an exponential, as perplexity, in logarithms.
    """
    primary, found = history.design.yardsticks.primary, []
    sign = -1.0 if history.design.lower_is_better(primary) else 1.0
    for _, run in sorted(runs.items()):
        course = run.course(primary) if run.outcome == "completed" else []
        if len(course) > 1 and course[0][0] <= HALF:
            progress, scores = zip(*course, strict=True)
            values = np.log(scores) if _is_exponential(history) else np.array(scores)
            found.append(sign * difference(values[-1], np.interp(HALF, progress, values)))
    return found


def margin_of(history: History, sides: Iterable[Runs]) -> float:
    """The study's margin, or its share of what the second half brings the arm that gains less, by the median of its
    runs; 0, which is none, where nothing is known of that or it brings nothing."""
    if history.design.margin is not None:
        return history.design.margin
    sides = list(sides)
    known = [gains(history, runs) for runs in sides]
    if not all(known):
        return 0.0
    gain = MARGIN_SHARE * max(0.0, min(float(np.median(own)) for own in known))
    return gain if not _is_exponential(history) else _best(history, sides) * float(np.expm1(gain))


def is_sensitive(history: History, sides: Iterable[Runs], level: float) -> bool:
    """Whether each side's runs are surely better at their end than half way, by more than the margin: one-sided at this
    level, over seeds."""
    sides = list(sides)
    margin = margin_of(history, sides)
    if _is_exponential(history):
        margin = float(np.log1p(margin / _best(history, sides)))
    found = [of_seeds(gains(history, runs)) for runs in sides]
    return all(side.n > 1 and side.interval(2 * level)[0] > margin for side in found)


def _is_exponential(history: History) -> bool:
    primary = history.design.yardsticks.primary
    return primary in YARDSTICKS.names() and find_yardstick(primary).transform == "exp"


def _best(history: History, sides: Iterable[Runs]) -> float:
    """Of a yardstick that is an exponential: the lowest of the final values."""
    return min(value for runs in sides for value in final_values(runs, history.design.yardsticks.primary).values())
