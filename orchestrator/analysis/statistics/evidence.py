"""What paired runs say of a difference, with its two sources of chance: other seeds, and other text.

Scores of seeds crossed with units of text (documents, pairs of sentences) vary with the seed, with the text, and with
both at once. The variance of their mean is that of the seeds' means plus what the text adds to all of them alike; its
degrees of freedom are Satterthwaite's (1946). This is the quasi-F of Clark 1973 ("The language-as-fixed-effect
fallacy") in t statistics. Letters: S seeds, I items, C clusters of items, L strata; ``...`` any number of studies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Interval = tuple[float, float]

TINY = 1e-12
"""Of the greatest value: spreads below it are rounding, as of equal numbers summed in another order."""


class Evidence(NamedTuple):
    """A mean difference of some pairs. Numbers, or arrays of them: of many studies."""

    n: int
    """Pairs."""
    mean: Floats
    seed_variance: Floats
    """Of the mean, as estimated from the spread over seeds; with what seeds and text share."""
    text_variance: Floats
    """Of the mean, from the choice of text alone; 0 where text was not sampled, or nobody knows."""
    text_degrees: Floats
    """Of freedom."""

    @property
    def variance(self) -> Floats:
        """Of the mean."""
        return self.seed_variance + self.text_variance

    @property
    def degrees(self) -> Floats:
        """Satterthwaite's, of the variance."""
        if not np.any(self.text_variance):
            return np.float64(max(self.n - 1, 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = self.seed_variance**2 / max(self.n - 1, 1) + self.text_variance**2 / self.text_degrees
            found = self.variance**2 / parts
        return np.where(parts > 0, found, max(self.n - 1, 1))

    def p(self, difference: float | Floats = 0.0) -> Floats:
        """Two-sided, of this true difference: by Student's t."""
        error, distance = np.sqrt(self.variance), np.abs(self.mean - difference)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = 2 * special.stdtr(self.degrees, -distance / error)
        return np.where(error > 0, found, np.where(distance > 0, 0.0, 1.0))

    def reach(self, level: float) -> Floats:
        """Half the width of the interval that misses the truth with this chance."""
        if level <= 0:
            return np.full_like(np.asarray(self.mean, dtype=np.float64), np.inf)
        found: Floats = special.stdtrit(self.degrees, 1 - level / 2) * np.sqrt(self.variance)
        return found

    def interval(self, level: float) -> Interval:
        """Of one study, as :meth:`reach` has it."""
        reach = float(self.reach(level))
        return float(self.mean) - reach, float(self.mean) + reach


def of_seeds(differences: Sequence[float] | Floats) -> Evidence:
    """Of differences by seed, (..., S), on text that is taken as it is."""
    values = np.asarray(differences, dtype=np.float64)
    n = values.shape[-1]
    mean = values.mean(-1)
    variance = values.var(-1, ddof=1) / n if n > 1 else np.full_like(mean, np.inf)
    rounding = (TINY * np.abs(values).max(-1)) ** 2
    return Evidence(n, mean, np.where(variance > rounding, variance, 0.0), np.zeros_like(mean), np.ones_like(mean))


class Items(NamedTuple):
    """Differences by seed, taken apart into units of text."""

    influence_SC: Floats
    """What each cluster adds to a seed's difference beyond its mean: a row sums to 0 in each stratum."""
    stratum_C: NDArray[np.intp]

    def first(self, n: int) -> Items:
        """Of the first n seeds."""
        return Items(self.influence_SC[:n], self.stratum_C)


def by_cluster(
    influence_SI: Floats, clusters: Sequence[Hashable] | NDArray, strata: Sequence[Hashable] | NDArray
) -> Items:
    """Influences of items summed over clusters, each inside one stratum."""
    keys = list(zip(np.asarray(strata).tolist(), np.asarray(clusters).tolist(), strict=True))
    names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    cluster_I = np.array([names[key] for key in keys], dtype=np.intp)
    influence_SC = np.zeros((len(influence_SI), len(names)))
    np.add.at(influence_SC.T, cluster_I, influence_SI.T)
    stratum_of = {stratum: number for number, stratum in enumerate(dict.fromkeys(stratum for stratum, _ in names))}
    return Items(influence_SC, np.array([stratum_of[stratum] for stratum, _ in names], dtype=np.intp))


def with_text(seeds: Evidence, items: Items) -> Evidence:
    """The evidence with what its text adds.

    The clusters' mean influences over seeds vary by the text and by a share 1 / S of what seeds and text have in
    common, which the seeds' spread has already: products of different seeds have the first alone. In each stratum of C
    clusters the sum has C - 1 degrees of freedom; a stratum of one cluster says nothing of the others, and is refused.

    Raises ValueError for a stratum of one cluster.
    """
    count_L = np.bincount(items.stratum_C)
    if (count_L < 2).any():
        raise ValueError("a stratum has a single cluster: how much text varies cannot be seen in it")
    num_seeds = len(items.influence_SC)
    larger_C = (count_L / (count_L - 1))[items.stratum_C]
    own_C = (items.influence_SC**2).sum(0)
    whole_C = items.influence_SC.sum(0) ** 2
    of_mean_C = larger_C * whole_C / num_seeds**2
    # Of one seed nothing tells the two apart: all counts as the text's.
    shared_C = larger_C * (whole_C - own_C) / (num_seeds * (num_seeds - 1)) if num_seeds > 1 else of_mean_C
    variance_L = np.maximum(np.bincount(items.stratum_C, of_mean_C), 0.0)
    text = max(float(shared_C.sum()), 0.0)
    spread = float((variance_L**2 / (count_L - 1)).sum())
    degrees = float(variance_L.sum()) ** 2 / spread if spread > 0 else math.inf
    return seeds._replace(text_variance=np.float64(text), text_degrees=np.float64(degrees))
