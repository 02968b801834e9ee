"""What the scores of fine-tuned models vary by: pretraining seeds, fine-tuning seeds within each, and items.

A score is ``mean + P_s + F_sk + I_i + (PI)_si + e_ski``: a pretrained model's part, that of its k-th fine-tuning, an
item's, what an item has in common with a pretrained model alone, and the rest. Fine-tunings are nested in pretrained
models, items are crossed with both, all are drawn at random. The components are those of the analysis of variance: what
mean squares are expected to be, solved for them (Searle, Casella & McCulloch 1992, "Variance Components", chapter 4).
Letters: S pretraining seeds, K fine-tunings of each, I items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.analysis.statistics.evidence import TINY, Floats, Interval
from trainables.errors import InputError

DRAWS = 20_000  # for the intervals


class Component(NamedTuple):
    """A variance."""

    estimate: float
    """At least 0."""
    interval: Interval
    """95%."""


class Shares(NamedTuple):
    """Of the variance of a mean score."""

    pretraining: float
    """With what an item has in common with a pretrained model."""
    fine_tuning: float
    """What more fine-tunings of each model would take away."""
    items: float


class Components(NamedTuple):
    """Of scores, (S, K, I)."""

    seeds: int
    tunings: int
    items: int
    pretraining: Component
    fine_tuning: Component
    item: Component
    item_by_pretraining: Component
    rest: Component
    """Of a single fine-tuning and item."""

    def variance(self, seeds: int | None = None, tunings: int | None = None) -> float:
        """Of the mean score, with these numbers of seeds and fine-tunings of each instead."""
        S, K = seeds or self.seeds, tunings or self.tunings
        own = self.pretraining.estimate + self.item_by_pretraining.estimate / self.items
        return self.item.estimate / self.items + (own + self._of_tuning / K) / S

    @property
    def _of_tuning(self) -> float:
        """What a fine-tuning adds to the variance of its own mean over the items."""
        return self.fine_tuning.estimate + self.rest.estimate / self.items

    @property
    def shares(self) -> Shares:
        """What the mean's variance comes of; nothing where it does not vary."""
        whole = self.variance()
        if whole <= 0:
            return Shares(0.0, 0.0, 0.0)
        tuning = self._of_tuning / (self.seeds * self.tunings)
        items = self.item.estimate / self.items
        return Shares((whole - tuning - items) / whole, tuning / whole, items / whole)


def variance_components(scores: ArrayLike) -> Components:
    """The components of scores by pretraining seed, fine-tuning within it and item, (S, K, I): of an arm's, or of two
    arms' differences.

    Intervals are generalised ones (Weerahandi 1993, "Generalized confidence intervals"): a mean square is its
    expectation times a chi-square over its degrees of freedom, so dividing by drawn ones shows which expectations fit.
    They assume normal effects; the draws are always the same. Raises InputError for less than two of each.
    """
    score_SKI = np.asarray(scores, dtype=np.float64)
    if score_SKI.ndim != 3 or min(score_SKI.shape) < 2 or not np.isfinite(score_SKI).all():
        raise InputError(
            f"scores of shape {score_SKI.shape} have no variance components",
            why="there must be two pretraining seeds, two fine-tunings of each and two items, and numbers alone",
            remedy="fine-tune each model with two seeds or more",
        )
    S, K, I = score_SKI.shape  # noqa: E741
    square_Q, degrees_Q = _mean_squares(score_SKI)
    square_Q[square_Q <= score_SKI.size * (TINY * np.abs(score_SKI).max()) ** 2] = 0.0  # rounding
    # Rows: pretraining, fine-tuning, item, item by pretraining, rest. Columns: the mean squares of the same.
    weight_RQ = np.array(
        [
            [1 / (K * I), -1 / (K * I), 0, -1 / (K * I), 1 / (K * I)],
            [0, 1 / I, 0, 0, -1 / I],
            [0, 0, 1 / (S * K), -1 / (S * K), 0],
            [0, 0, 0, 1 / K, -1 / K],
            [0, 0, 0, 0, 1],
        ]
    )
    drawn_BQ = degrees_Q * square_Q / np.random.default_rng(0).chisquare(degrees_Q, (DRAWS, len(degrees_Q)))
    low_R, high_R = np.maximum(np.quantile(drawn_BQ @ weight_RQ.T, [0.025, 0.975], axis=0), 0.0)
    estimate_R = np.maximum(weight_RQ @ square_Q, 0.0)
    found = (
        Component(float(estimate), (float(low), float(high)))
        for estimate, low, high in zip(estimate_R, low_R, high_R, strict=True)
    )
    return Components(S, K, I, *found)


def _mean_squares(score_SKI: Floats) -> tuple[Floats, Floats]:
    """Of pretraining, fine-tuning, items, items by pretraining, the rest; and their degrees of freedom."""
    S, K, I = score_SKI.shape  # noqa: E741
    mean = score_SKI.mean()
    mean_S, mean_I = score_SKI.mean((1, 2)), score_SKI.mean((0, 1))
    mean_SK, mean_SI = score_SKI.mean(2), score_SKI.mean(1)
    rest_SKI = score_SKI - mean_SK[:, :, None] - mean_SI[:, None, :] + mean_S[:, None, None]
    both_SI = mean_SI - mean_S[:, None] - mean_I + mean
    sums_Q = np.array(
        [
            K * I * ((mean_S - mean) ** 2).sum(),
            I * ((mean_SK - mean_S[:, None]) ** 2).sum(),
            S * K * ((mean_I - mean) ** 2).sum(),
            K * (both_SI**2).sum(),
            (rest_SKI**2).sum(),
        ]
    )
    degrees_Q = np.array([S - 1, S * (K - 1), I - 1, (S - 1) * (I - 1), S * (K - 1) * (I - 1)], dtype=np.float64)
    return sums_Q / degrees_Q, degrees_Q
