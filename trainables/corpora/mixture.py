"""Mixing languages: p_l proportional to n_l^alpha, exact in every stretch of the stream.

The exponent is that of multilingual pretraining since mBERT (arXiv 1901.07291, section 3.1); a cap keeps small
languages from being repeated too often.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PERIOD = 4096
"""Sequences after which the order of languages repeats; shares are met to within 1/PERIOD."""


def mixture_shares(size_l: NDArray[np.int64], alpha: float, maximum_repetition: float) -> NDArray[np.float64]:
    """Each language's share of the stream, (languages,), summing to 1.

    Args:
        size_l: sequences each language has.
        alpha: 1 keeps the corpora's proportions, 0 gives every language the same.
        maximum_repetition: in one pass over a stream as long as all corpora together, no language is seen more
            often than this; what a capped language gives up goes to the others in proportion.
    """
    natural_l = size_l / size_l.sum()
    cap_l = maximum_repetition * natural_l
    weight_l = size_l.astype(np.float64) ** alpha
    share_l = weight_l / weight_l.sum()
    capped_l = np.zeros(len(size_l), dtype=bool)
    while (over_l := (share_l > cap_l * (1 + 1e-12)) & ~capped_l).any():
        capped_l |= over_l
        if capped_l.all():
            break
        free_l = np.where(capped_l, 0.0, weight_l)
        share_l = np.where(capped_l, cap_l, free_l / free_l.sum() * (1.0 - cap_l[capped_l].sum()))
    return np.asarray(share_l / share_l.sum())


class Pattern:
    """Which language each place of the stream has, and which of that language's sequences: O(1), without state.

    Quotas are rounded by largest remainder and each language's places are spread evenly over the period, so the
    realised mix is within a few sequences of the target at every moment.

    Args:
        share_l: shares of the languages, summing to 1.
    """

    def __init__(self, share_l: NDArray[np.float64]) -> None:
        exact_l = share_l * PERIOD
        # However small its share, every language has a place: it counts in the yardsticks too.
        quota_l = np.maximum(1, np.floor(exact_l).astype(np.int64))
        short = PERIOD - int(quota_l.sum())
        quota_l[np.argsort(quota_l - exact_l, kind="stable")[: max(0, short)]] += 1
        quota_l[quota_l.argmax()] += min(0, short)
        self.quota_l = quota_l
        language = np.repeat(np.arange(len(quota_l)), quota_l)
        rank = np.concatenate([np.arange(quota) for quota in quota_l])
        order = np.argsort((rank + 0.5) / quota_l[language], kind="stable")
        self._language, self._rank = language[order], rank[order]

    def locate(self, number: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Language index and how many of that language came before, for each place in the stream."""
        period, place = np.divmod(number, PERIOD)
        language = self._language[place]
        return language, period * self.quota_l[language] + self._rank[place]
