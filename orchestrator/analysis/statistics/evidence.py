"""What paired runs say of a difference, with its two sources of chance: other seeds, and other text.

Scores of seeds crossed with units of text (documents, pairs of sentences) vary with the seed, with the text, and with
both at once. The variance of their mean is that of the seeds' means plus what the text adds to all of them alike; its
degrees of freedom are Satterthwaite's (1946), of the mean squares that it is made of. This is the quasi-F of Clark 1973
("The language-as-fixed-effect fallacy") in t statistics. Letters: S seeds, I items, C clusters of items, L strata;
``...`` any number of studies.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from trainables.errors import InputError

Floats = NDArray[np.float64]
Numbers = float | np.float64 | Floats  # of one study, or of many
Interval = tuple[float, float]

FEWEST_UNITS = 3
"""Of text in a stratum: fewer hardly show how much it varies."""
TINY = 1e-12
"""Of the greatest value: spreads and differences below it are rounding, as of equal numbers summed in another order."""


class Evidence(NamedTuple):
    """A mean difference of some pairs."""

    n: int
    """Pairs."""
    mean: Numbers
    seed_variance: Numbers
    """Of the mean, as estimated from the spread over seeds; with what seeds and text share."""
    text_variance: Numbers
    """Of the mean, from the choice of text alone; 0 where text was not sampled, or nobody knows."""
    text_degrees: Numbers
    """Of freedom."""
    unit_variance: Numbers = 0.0
    """Of the mean, as the units' means over these seeds vary: the text's, with what seeds and text have in common."""
    fixed_text: tuple[str, ...] = ()
    """The languages whose text is taken as it is beside others that were sampled: it has too few units."""

    @property
    def variance(self) -> Numbers:
        """Of the mean."""
        return self.seed_variance + self.text_variance

    @property
    def degrees(self) -> Numbers:
        """Of freedom, of the variance."""
        seeds, text = (self.seed_variance, max(self.n - 1, 1)), (self.text_variance, self.text_degrees)
        return satterthwaite(*seeds, *text, self.unit_variance)

    def p(self) -> Numbers:
        """Two-sided, of no difference: by Student's t."""
        error, distance = np.sqrt(self.variance), np.abs(self.mean)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = 2 * special.stdtr(np.asarray(self.degrees), -distance / error)
        return np.where(error > 0, found, np.where(distance > 0, 0.0, 1.0))

    def reach(self, level: float) -> Numbers:
        """Half the width of the interval that misses the truth with this chance."""
        if level <= 0:
            return np.full_like(self.mean, np.inf)
        quantile: Floats = special.stdtrit(np.asarray(self.degrees), 1 - level / 2).astype(np.float64)
        return quantile * np.sqrt(self.variance)

    def interval(self, level: float) -> Interval:
        """Of one study, as :meth:`reach` has it."""
        reach = float(self.reach(level))
        return float(self.mean) - reach, float(self.mean) + reach


def satterthwaite(
    seeds: Numbers, seed_degrees: Numbers, text: Numbers, text_degrees: Numbers, units: Numbers
) -> Numbers:
    """Degrees of freedom of the sum of two variances, of seeds and of text.

    The text's is what is left of its units' when what seeds and text have in common is taken away, and is as uncertain
    as all that it was left of: by its own size alone it would have too many degrees where little is left. Where it
    comes out small by chance it has too little say in them, the more the fewer its own: it counts 1 + 2 / degrees
    times. The sum has no fewer than the lesser of the two.
    """
    units = np.maximum(units, text)
    if not np.any(units):
        return seed_degrees
    counted = _counted(text_degrees) * units
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (seeds + text) ** 2 / (seeds**2 / seed_degrees + counted**2 / text_degrees)
    found = np.maximum(found, np.minimum(seed_degrees, text_degrees))
    return np.where(units == 0, seed_degrees, np.where(np.equal(seeds, 0), text_degrees, found))


def _counted(degrees: Numbers) -> Numbers:
    """How many times a variance of these degrees of freedom counts in those of a sum of several."""
    return 1.0 + 2.0 / degrees


def without_rounding(differences: Numbers, scale: Numbers) -> Floats:
    """Differences of numbers of this scale: 0 where they are but rounding, which has a sign too, the same for all seeds
    if their scores are."""
    return np.where(np.abs(differences) > TINY * np.abs(scale), differences, 0.0)


def difference(a: float, b: float) -> float:
    """a - b, as :func:`without_rounding`."""
    return float(without_rounding(a - b, max(abs(a), abs(b))))


def of_seeds(differences: Sequence[float] | Floats) -> Evidence:
    """Of differences by seed, (..., S), on text that is taken as it is."""
    values = np.asarray(differences, dtype=np.float64)
    n = values.shape[-1]
    if n == 0:
        return Evidence(0, np.float64(0.0), np.float64(np.inf), np.float64(0.0), np.float64(np.inf))
    mean = values.mean(-1)
    variance = values.var(-1, ddof=1) / n if n > 1 else np.full_like(mean, np.inf)
    rounding = (TINY * np.abs(values).max(-1)) ** 2
    return Evidence(
        n, mean, np.where(variance > rounding, variance, 0.0), np.zeros_like(mean), np.full_like(mean, np.inf)
    )


def of_first(values_SN: NDArray[np.floating[Any]]) -> tuple[Floats, Floats]:
    """Means of the first n values of each study, and variances of these means, (S, N) both; of one value 0."""
    n = np.arange(1, values_SN.shape[1] + 1)
    mean_SN = values_SN.cumsum(1) / n
    return mean_SN, ((values_SN**2).cumsum(1) - n * mean_SN**2) / np.maximum(n - 1, 1) / n


class Items(NamedTuple):
    """Differences by seed, taken apart into units of text: clusters, or what of a cluster lies in one stratum."""

    influence_SC: Floats
    """What each adds to a seed's difference beyond its mean, (..., S, C): a row sums to 0 in each stratum."""
    stratum_C: NDArray[np.intp]
    share_C: Floats
    """Of its stratum's weight: they sum to 1 in each."""
    cluster_C: NDArray[np.intp] | None = None
    """Units of one cluster vary together, as the translations of a sentence do; None: each is its own."""

    @property
    def effective_L(self) -> Floats:
        """How many units of equal weight would be as many, by stratum."""
        return 1.0 / np.bincount(self.stratum_C, self.share_C**2)

    @property
    def is_few_L(self) -> NDArray[np.bool_]:
        """Whether a stratum has fewer than :data:`FEWEST_UNITS`."""
        return self.effective_L < FEWEST_UNITS - 1e-9


def by_cluster(
    influence_SI: Floats,
    clusters: Sequence[Hashable] | NDArray[Any],
    strata: Sequence[Hashable] | NDArray[Any],
    weight_I: Floats,
) -> Items:
    """Influences of items summed over what of a cluster lies in one stratum; shares are their items' weights."""
    number: dict[Hashable, int] = {}
    cluster_I = np.array([number.setdefault(name, len(number)) for name in clusters])
    places: dict[Hashable, int] = {}
    stratum_I = np.array([places.setdefault(name, len(places)) for name in strata])
    pairs_C2, unit_I = np.unique(np.stack([cluster_I, stratum_I], 1), axis=0, return_inverse=True)
    cluster_C, stratum_C = pairs_C2.T
    influence_SC = np.zeros((len(influence_SI), len(pairs_C2)))
    np.add.at(influence_SC.T, unit_I, influence_SI.T)
    weight_C = np.bincount(unit_I, weight_I)
    share_C = weight_C / np.bincount(stratum_C, weight_C)[stratum_C]
    return Items(influence_SC, stratum_C, share_C, cluster_C if len(number) < len(pairs_C2) else None)


def with_text(seeds: Evidence, items: Items) -> Evidence:
    """The evidence with what its text adds.

    The clusters' mean influences over seeds vary by the text and by a share 1 / S of what seeds and text have in
    common, which the seeds' spread has already: products of different seeds have the first alone. Deviations from the
    mean are too small, the more the larger a unit's share s of its stratum: by 1 - 2 s + sum of s^2, in squares. A
    stratum's sum has 1 / sum of s^2 - 1 degrees of freedom, C - 1 of C equal units. So a small stratum has few,
    whatever it shares with a large one. Where strata share clusters, theirs count as if they varied as one there, which
    is the least that they may have.

    Strata count in the degrees of the whole as text does in :func:`satterthwaite`: a small one would by chance have too
    little say.

    Raises InputError for a stratum of too few units: they hardly show how much text varies.
    """
    num_seeds, effective_L = items.influence_SC.shape[-2], items.effective_L
    if items.is_few_L.any():
        few = (np.bincount(items.stratum_C) < FEWEST_UNITS).any()
        weigh = f"the clusters of a stratum weigh as much as {effective_L.min():.3g} equal ones"
        raise InputError(
            f"a stratum has fewer than {FEWEST_UNITS} clusters" if few else weigh,
            why=f"how much text varies cannot be seen in fewer than {FEWEST_UNITS}",
            remedy="smaller clusters, or fewer strata",
        )
    larger_C = 1.0 / (1.0 - 2.0 * items.share_C + 1.0 / effective_L[items.stratum_C])
    corrected_SC = np.sqrt(larger_C) * items.influence_SC
    variance_L = (corrected_SC.mean(-2) ** 2) @ np.eye(len(effective_L))[items.stratum_C]
    whole_SC = _summed(corrected_SC, items.cluster_C)
    whole_C, own_C = whole_SC.sum(-2) ** 2, (whole_SC**2).sum(-2)
    # Of one seed nothing tells the two apart: all counts as the text's.
    shared_C = (whole_C - own_C) / (num_seeds * (num_seeds - 1)) if num_seeds > 1 else whole_C
    of_stratum_C = effective_L[items.stratum_C] * items.share_C**2  # sums to 1 in each
    own_L = effective_L - 1.0
    fewer_L = _counted(own_L) ** 2 / (own_L * np.bincount(items.stratum_C, of_stratum_C**2))
    deviation_C = np.sqrt(variance_L[..., items.stratum_C] * of_stratum_C)
    variance_C = _summed(deviation_C, items.cluster_C) ** 2
    spread = (_summed(deviation_C * fewer_L[items.stratum_C] ** 0.25, items.cluster_C) ** 4).sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        together = np.maximum(variance_C.sum(-1) ** 2 / spread, own_L.min())
        degrees = np.where(spread > 0, together, np.inf)
    return seeds._replace(
        text_variance=np.maximum(shared_C.sum(-1), 0.0),
        text_degrees=degrees,
        unit_variance=whole_C.sum(-1) / num_seeds**2,
    )


def _summed(values_C: Floats, cluster_C: NDArray[np.intp] | None) -> Floats:
    """Over the units of a cluster, (..., C)."""
    if cluster_C is None:
        return values_C
    found = np.zeros((*values_C.shape[:-1], int(cluster_C.max()) + 1))
    np.add.at(np.moveaxis(found, -1, 0), cluster_C, np.moveaxis(values_C, -1, 0))
    return found
