"""A comparison in a line for each pair of arms."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator import formatting
from orchestrator.analysis.comparison import Comparison, Pair


@dataclass(frozen=True)
class Glance:
    """A pair of arms in a few words."""

    pair: str
    verdict: str
    decided: bool
    difference: str
    said: str


def glances(comparison: Comparison) -> tuple[Glance, ...]:
    """Each pair of arms in a few words."""
    return tuple(_glance(comparison, pair) for pair in comparison.pairs)


def verdicts(comparison: Comparison) -> tuple[str, ...]:
    """A line for each pair of arms."""
    return tuple(f"{glance.pair}: {glance.verdict}, {glance.difference}" for glance in glances(comparison))


def _glance(comparison: Comparison, pair: Pair) -> Glance:
    row = pair.yardsticks[comparison.primary]
    decided = pair.verdict in (pair.a, pair.b)
    words = f"{pair.verdict} is ahead" if decided else pair.verdict
    p = "" if row.p_adjusted is None else f", p {formatting.p_value(row.p_adjusted, '= ')}"
    standing = ", exploratory" if pair.standing == "exploratory" else ""
    said = f"{comparison.primary}, n = {formatting.plural(row.n, 'seed')}{p}{standing}"
    return Glance(
        pair=f"{pair.a} – {pair.b}",
        verdict=words,
        decided=decided or pair.verdict == "equivalent",
        difference=formatting.difference(row.difference, row.interval),
        said=said,
    )
