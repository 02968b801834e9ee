"""Mixing languages: p_l proportional to n_l^alpha, exact in every stretch of the stream.

The exponent is that of multilingual pretraining since mBERT (arXiv 1901.07291, section 3.1); a cap keeps small
languages from being repeated too often.
"""

import numpy as np
from numpy.typing import NDArray

PERIOD = 4096  # sequences after which every language has had its share, rounded; of a mixture of many languages more

_KEPT_PERIODS = 8


def mixture_shares(size_l: NDArray[np.int64], alpha: float, maximum_repetition: float) -> NDArray[np.float64]:
    """Each language's share of the stream, (languages,), summing to 1, by the sequences that each has. With ``alpha`` 1
    the corpora keep their proportions, with 0 every language has the same. In one pass over a stream as long as all
    corpora together, no language is seen more often than ``maximum_repetition``; what it gives up goes to the others in
    proportion."""
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

    It is made of the languages' shares, which sum to 1.
    At any place each of L languages has had its share p of the stream to within 3 (1 + p L) sequences, however long
    the stream: at the periods' ends the languages' cumulative shares, times the place, are rounded down. Within a
    period each language's places are spread evenly. A language with less than one place in a period has none in some.
    """

    def __init__(self, share_l: NDArray[np.float64]) -> None:
        # Of a language with less than two places in a period, a difference of rounded sums could fall: it is rounded
        # by itself, and what is left is the others'. With four places for each language, half the period is left
        # even where all small ones have two at once, and that no large one's count falls.
        self.period = max(PERIOD, 1 << (4 * len(share_l) - 1).bit_length())
        self._small_l = share_l < 2 / self.period
        self._small_share_l = np.where(self._small_l, share_l, 0.0)
        large_share_l = np.where(self._small_l, 0.0, share_l) / (1.0 - self._small_share_l.sum())
        self._edge_l = np.minimum(large_share_l.cumsum(), 1.0)
        self._edge_l[np.flatnonzero(~self._small_l)[-1] :] = 1.0
        self._orders: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def before_l(self, period: int) -> NDArray[np.int64]:
        """How many sequences of each language come before a period."""
        place = period * self.period
        small_l = np.floor(self._small_share_l * place).astype(np.int64)
        edge_l = np.floor(self._edge_l * (place - int(small_l.sum()))).astype(np.int64)
        before_l: NDArray[np.int64] = small_l + np.diff(edge_l, prepend=np.int64(0))
        return before_l

    def _order(self, period: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Language of each place of a period, and how many of that language came before it, (period,) each."""
        if (known := self._orders.get(period)) is not None:
            return known
        before_l = self.before_l(period)
        quota_l = self.before_l(period + 1) - before_l
        language = np.repeat(np.arange(len(quota_l)), quota_l)
        rank = np.concatenate([np.arange(quota) for quota in quota_l])
        order = np.argsort((rank + 0.5) / quota_l[language], kind="stable")
        if len(self._orders) >= _KEPT_PERIODS:
            self._orders = {}
        self._orders[period] = made = language[order], (before_l[language] + rank)[order]
        return made

    def locate(self, number_N: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Language index and how many of that language came before, for each place in the stream, (N,) each."""
        period_N, place_N = np.divmod(number_N, self.period)
        language_N, count_N = np.empty_like(number_N), np.empty_like(number_N)
        for period in np.unique(period_N):
            here = period_N == period
            language, count = self._order(int(period))
            language_N[here], count_N[here] = language[place_N[here]], count[place_N[here]]
        return language_N, count_N
