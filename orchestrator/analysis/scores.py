"""Two arms by their scores alone: the study's own rules for anybody's arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.analysis.statistics.evidence import Interval, by_cluster, of_seeds, with_text, without_rounding
from orchestrator.analysis.statistics.planning import Settling, what_would_settle
from orchestrator.analysis.statistics.rule import Rule
from trainables.config import LARGEST, Config
from trainables.errors import InputError


class ScoreComparison(Config):
    """What scores of two arms say of each other."""

    verdict: Literal["a", "b", "equivalent", "undecided"]
    seeds: int
    difference: float
    """Mean of a - b: over items in a stratum, strata, seeds."""
    interval: Interval | None
    """95%; it leaves out 0 just where an arm is named or would be, were its lead no smaller than the margin."""
    p: float | None
    seed_error: float
    """Standard error of the difference, by the seeds."""
    text_error: float
    """Standard error of the difference, by the text."""
    would_settle: Settling | None
    """Where it is undecided."""


def compare_scores(
    a: ArrayLike,
    b: ArrayLike,
    *,
    clusters: Sequence[Hashable] | None = None,
    strata: Sequence[Hashable] | None = None,
    margin: float = 0.0,
    lower_is_better: bool = False,
) -> ScoreComparison:
    """Compare scores by seed and item, (S, I) each: row s of both is of the same seed, column i of the same item.

    Items of one cluster vary together: those of a document, or the translations of a sentence, which have one name in
    several strata. Strata (languages) are fixed, and count the same; each has clusters that weigh as much as three of
    one size. Without clusters each item is its own. Raises InputError for arrays that do not fit.
    """
    a_SI, b_SI = _numbers(a), _numbers(b)
    bounded = all((np.abs(scores_SI) <= LARGEST).all() for scores_SI in (a_SI, b_SI))  # false of NaN too
    if a_SI.shape != b_SI.shape or a_SI.ndim != 2 or min(a_SI.shape) < 2 or not bounded:
        raise InputError(
            f"scores of shapes {a_SI.shape} and {b_SI.shape} cannot be compared",
            why="both have a row for each seed and a column for each item, two at least, and numbers of "
            f"{LARGEST:.0e} at most",
        )
    num_items = a_SI.shape[1]
    if not isinstance(margin, Real) or not 0 <= margin <= LARGEST:  # false of NaN too
        raise InputError(
            f"a margin of {margin!r} is none", where="margin", remedy="0, for none, or a difference above it"
        )
    own = list(range(num_items)) if clusters is None else _names(clusters)
    names = [0] * num_items if strata is None else _names(strata)
    if (len(own), len(names)) != (num_items, num_items):
        raise InputError(f"{len(own)} clusters and {len(names)} strata of {num_items} items", why="each item has one")
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    member_IL = np.eye(len(number))[[number[name] for name in names]]
    # Item by item: one of great numbers hides nothing of the others. In units of the largest difference, as squares of
    # very small or large ones are no numbers.
    difference_SI = without_rounding(a_SI - b_SI, np.maximum(np.abs(a_SI), np.abs(b_SI)))
    unit = float(np.abs(difference_SI).max()) or 1.0
    difference_SI = difference_SI / unit
    mean_SL = difference_SI @ member_IL / member_IL.sum(0)
    weight_I = 1 / (member_IL @ member_IL.sum(0) * len(number))
    items = by_cluster((difference_SI - mean_SL @ member_IL.T) * weight_I, own, names, weight_I)
    rule = Rule(len(a_SI), len(a_SI), margin / unit)
    scale_S = np.abs(difference_SI).max(1)
    found = with_text(of_seeds(without_rounding(mean_SL.mean(1), scale_S)), items)
    decision = rule.decide(lambda n: found, found.n, ended=True)
    better = {"a": "b", "b": "a"} if lower_is_better else {}
    return ScoreComparison(
        verdict=better.get(decision.verdict, decision.verdict),
        seeds=found.n,
        difference=float(found.mean) * unit,
        interval=None if decision.interval is None else (decision.interval[0] * unit, decision.interval[1] * unit),
        p=decision.p,
        seed_error=float(found.seed_variance) ** 0.5 * unit,
        text_error=float(found.text_variance) ** 0.5 * unit,
        would_settle=what_would_settle(rule, found) if decision.verdict == "undecided" else None,
    )


def _numbers(scores: ArrayLike) -> NDArray[np.float64]:
    if isinstance(scores, np.ma.MaskedArray):
        raise InputError("masked scores cannot be compared", remedy="leave the items out, in both arrays")
    try:
        values = np.asarray(scores)
        if values.dtype.kind in "cmM":
            raise TypeError(f"they are of type {values.dtype}")
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("the scores are no array of numbers", why=str(error)) from error


def _names(values: Sequence[Hashable]) -> list[Hashable]:
    try:
        names = list(values)
        hash(tuple(names))
    except TypeError as error:
        raise InputError("clusters and strata are named by numbers or words", why=str(error)) from error
    return names
