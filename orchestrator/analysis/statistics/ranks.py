"""Rank stability: whether scores early in training order configurations as the final ones do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class RankStability:
    """Kendall's tau of early and final scores."""

    n: int
    """Configurations that have both scores."""
    tau: float | None
    """1: the same order, 0: none in common, -1: reversed. None of fewer than two, or where all tie."""
    p: float | None
    """Two-sided, of "no order in common"; exact for up to 33 configurations without ties."""


def rank_stability(early: Sequence[float], final: Sequence[float]) -> RankStability:
    """Kendall's tau-b, which allows for ties (Kendall 1945, "The treatment of ties in ranking problems").

    Only configurations that were trained to the end have a final score. Where a halving stopped the others for
    what they scored early, those left lie closer together than all did: their tau is rather too low.
    """
    n = len(early)
    if n < 2 or len(set(early)) < 2 or len(set(final)) < 2:
        return RankStability(n, None, None)
    result = stats.kendalltau(early, final)
    return RankStability(n, float(result.statistic), float(result.pvalue))
