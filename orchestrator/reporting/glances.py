"""What a study says so far in a few words, a line for each pair of arms: on a terminal, a page and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator import formatting
from orchestrator.analysis.comparison import Comparison, Difference, Pair
from orchestrator.analysis.wording import barred_by

FEW_SEEDS = 3
"""With so many or fewer no interval should be leaned on (docs/statistics.md)."""

FEW = f"n <= {FEW_SEEDS}: do not lean on the interval"


@dataclass(frozen=True)
class Glance:
    """A pair of arms in a few words."""

    pair: str
    verdict: str
    decided: bool
    difference: str
    """The first minus the second, with the interval; empty before there is one."""
    said: str


def is_few(found: Difference) -> bool:
    """Whether its interval is of too few seeds to be leaned on."""
    return found.interval is not None and found.n <= FEW_SEEDS


def glances(comparison: Comparison) -> tuple[Glance, ...]:
    """Each pair of arms in a few words."""
    return tuple(_glance(comparison, pair) for pair in comparison.pairs)


def verdicts(comparison: Comparison) -> tuple[str, ...]:
    """A line for each pair of arms."""
    return tuple(
        f"{glance.pair}: {', '.join(filter(None, [glance.verdict, glance.difference]))}"
        for glance in glances(comparison)
    )


def _glance(comparison: Comparison, pair: Pair) -> Glance:
    row = pair.yardsticks[comparison.primary]
    decided = pair.verdict in (pair.a, pair.b)
    words = f"{pair.verdict} is ahead" if decided else pair.verdict
    if pair.pending:
        words += " so far"
    if pair.barred and not decided:
        words += f" ({barred_by(pair)})"
    said = [f"n = {formatting.plural(row.n, 'seed')}" if row.n else "no seed has ended in both arms"]
    if row.p_adjusted is not None:
        said.append(f"p {formatting.p_value(row.p_adjusted, '= ')}")
    if is_few(row):
        said.append("too few to lean on the interval")
    if pair.standing == "exploratory":
        said.append("exploratory")
    if pair.pending:
        said.append(f"{pair.pending} yet to end")
    said.append(f"{comparison.primary}{' (lower is better)' if row.lower_is_better else ''}")
    return Glance(
        pair=f"{pair.a} – {pair.b}",
        verdict=words,
        decided=decided or pair.verdict == "equivalent",
        difference="" if row.difference is None else formatting.difference(row.difference, row.interval),
        said=", ".join(said),
    )
