"""Learning curves of arms in a line of text, all on one scale."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator import formatting
from orchestrator.analysis.learning_curves import learning_curves
from orchestrator.analysis.selection import best_of_search
from orchestrator.ledger.history import History

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Curve:
    """The primary yardstick of an arm on the validation split, by the share of a run's budget."""

    points: tuple[tuple[float, float], ...]
    """Shares, ascending, and values."""
    of: str
    """Which runs these are."""

    @property
    def said(self) -> str:
        """Where it is now, and whose it is."""
        return f"{formatting.score(self.points[-1][1])} at {self.points[-1][0]:.0%}, {self.of}"

    def at(self, share: float) -> float | None:
        """The value there, between evaluations in a straight line; None outside of them."""
        place = bisect_right(self.points, (share, float("inf")))
        if not place or (place == len(self.points) and share > self.points[-1][0]):
            return None
        (x, y), (x_next, y_next) = self.points[place - 1], self.points[min(place, len(self.points) - 1)]
        return y if x_next == x else y + (y_next - y) * (share - x) / (x_next - x)


def curves(history: History) -> dict[str, Curve]:
    """Of each arm that was evaluated: the mean of its completed confirmation runs; before, the run that is furthest;
    and before that its best search trial."""
    confirmed = {curve.arm: curve for curve in learning_curves(history)}
    found = {}
    for arm in history.design.arms:
        own = confirmed.get(arm)
        if own is not None and own.mean:
            points = [(point.progress, point.value) for point in own.mean]
            found[arm] = Curve(tuple(points), f"mean of {formatting.plural(own.n, 'run')}")
        elif own is not None and any(run.points for run in own.runs):
            run = max(own.runs, key=lambda run: run.points[-1].progress if run.points else 0.0)
            found[arm] = Curve(tuple((point.progress, point.value) for point in run.points), f"seed {run.seed}")
        elif (best := best_of_search(history, arm)) is not None:
            found[arm] = Curve(tuple(best.course(history.design.yardsticks.primary)), f"best trial, #{best.number}")
    return {arm: curve for arm, curve in found.items() if curve.points}


def sparkline(curve: Curve, scale: tuple[float, float], width: int) -> str:
    """The curve from the beginning of a run to its end, in so many cells, blank where it is not known; ``scale``: the
    values of the lowest and of the highest bar."""
    low, high = scale
    values = (curve.at((cell + 0.5) / width) for cell in range(width))
    return "".join(" " if value is None else BARS[_level(value, low, high)] for value in values)


def _level(value: float, low: float, high: float) -> int:
    share = (value - low) / (high - low) if high > low else 0.5
    return min(len(BARS) - 1, max(0, int(share * len(BARS))))


def scales(found: Mapping[str, Curve], history: History) -> dict[str, tuple[float, float]]:
    """By arm, the least and the greatest value of the arms of its task, whose yardsticks mean the same."""
    arms = history.design.arms
    by_task: dict[str, list[float]] = {}
    for arm, curve in found.items():
        by_task.setdefault(arms[arm].task, []).extend(value for _, value in curve.points)
    return {arm: (min(by_task[arms[arm].task]), max(by_task[arms[arm].task])) for arm in found}
