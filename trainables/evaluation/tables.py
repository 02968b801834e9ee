"""What counting alone makes of text: tables of single tokens and of pairs of neighbours, scored as a model is.

A yardstick's value says that a model has learned something only where it is above theirs. Letters: V vocabulary,
K targets, P pairs of neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from trainables.evaluation.held_out import HeldOut, framed
from trainables.evaluation.passes import Passes, Taken, Tokens, taken_by
from trainables.models.config import Task

if TYPE_CHECKING:
    from trainables.corpora.stream.packed import PackedCorpus
    from trainables.objectives.learner import Learner

MOST_TOKENS = 1 << 24  # of a language's training split, whose neighbours are counted

Ints = NDArray[np.int64]
Kind = Literal["unigram", "bigram"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class NoModel(Exception):  # noqa: N818
    """A yardstick asked for the model, where there is a table."""


class TokenTable:
    """One language's table: how often each token comes, and each after another.

    The probability of w after v is (c(v, w) + T(v) p(w)) / (c(v) + T(v)), with T(v) the number of different tokens that
    came after v (Witten and Bell 1991, method C), and p(w) = (c(w) + 1) / (N + V). Without neighbours it is p(w).

    Args:
        count_V: how often each token comes.
        before_P: the first token of each pair of neighbours, each pair as often as it comes.
        after_P: the second.
    """

    def __init__(self, count_V: Ints, before_P: Ints, after_P: Ints) -> None:
        self._size = len(count_V)
        self._log_unigram_V = np.log(count_V + 1.0) - np.log(count_V.sum() + self._size)
        self._probability_V = np.exp(self._log_unigram_V)
        self._pair, self._times = np.unique(before_P * self._size + after_P, return_counts=True)
        self._kinds_V = np.bincount(self._pair // self._size, minlength=self._size)
        self._seen_V = np.bincount(before_P, minlength=self._size)
        self._ends_V = np.cumsum(self._kinds_V)

    @cached_property
    def _ascending_V(self) -> NDArray[np.float64]:
        return np.sort(self._probability_V)

    def tokens(self, before_K: Ints, token_K: Ints) -> Tokens:
        """How well each token is recovered from the one before it: its rank among all, 1 the best and ties against it,
        and its nats."""
        pair_N, whose_K = np.unique(before_K * self._size + token_K, return_inverse=True)
        before_N, token_N = np.divmod(pair_N, self._size)
        kinds_N = self._kinds_V[before_N]
        score_N = self._times_of(pair_N) + kinds_N * self._probability_V[token_N]
        nats_N = -self._log_unigram_V[token_N]
        came_N = kinds_N > 0
        nats_N[came_N] = np.log((self._seen_V[before_N] + kinds_N)[came_N] / score_N[came_N])
        # Among tokens that never came after v the order is that of p: ranks need a look at the others alone.
        rank_N = self._size - np.searchsorted(self._ascending_V, self._threshold(score_N, kinds_N, token_N))
        for number in np.flatnonzero(kinds_N):
            came = slice(self._ends_V[before_N[number]] - kinds_N[number], self._ends_V[before_N[number]])
            plain = kinds_N[number] * self._probability_V[self._pair[came] % self._size]
            rank_N[number] += np.count_nonzero(plain + self._times[came] >= score_N[number])
            rank_N[number] -= np.count_nonzero(plain >= score_N[number])
        return Tokens(rank_N[whose_K], nats_N[whose_K], token_K)

    def _times_of(self, pair_N: Ints) -> Ints:
        """How often each pair came."""
        if not len(self._pair):
            return np.zeros(len(pair_N), dtype=np.int64)
        place_N = np.minimum(np.searchsorted(self._pair, pair_N), len(self._pair) - 1)
        return np.where(self._pair[place_N] == pair_N, self._times[place_N], 0)

    def _threshold(self, score_N: NDArray[np.float64], kinds_N: Ints, token_N: Ints) -> NDArray[np.float64]:
        """The probability from which on a token that never came after v is at least as likely as the target."""
        plain_N = self._probability_V[token_N]
        came_N = (kinds_N > 0) & (score_N > kinds_N * plain_N)
        return np.where(came_N, score_N / np.maximum(kinds_N, 1), plain_N)


class _TablePasses(Passes):
    """Held-out text through the tables of its languages: a target is found by the token before it, if that is shown."""

    def __init__(self, held_out: HeldOut, task: Task, tables: dict[str, dict[Kind, TokenTable]]) -> None:
        self.held_out, self.task, self._tables = held_out, task, tables

    @property
    def learner(self) -> Learner:
        raise NoModel

    @cached_property
    def tokens(self) -> dict[str, Tokens]:
        targets = self.targets
        shown_K = targets.input_NL[targets.sequence_K, np.maximum(targets.place_K, 1) - 1]
        size = len(shown_K)
        found: dict[str, Tokens] = {
            kind: Tokens(np.empty(size, np.int64), np.empty(size), targets.target_K) for kind in KINDS
        }
        for language, own in self.own_of.items():
            for kind, table in self._tables[language].items():
                part = table.tokens(shown_K[own], targets.target_K[own])
                found[kind].rank_K[own], found[kind].nats_K[own] = part.rank_K, part.nats_K
        return found

    @cached_property
    def sentences(self) -> dict[str, NDArray[np.float64]]:
        """The likelihood of each token but the first after the one before it, as a decoder's; an encoder's, too, has no
        more of it."""
        rows = framed(self.held_out.sentences, self.held_out.corpus.manifest)
        languages = np.tile(self.held_out.pair_languages, 2)
        found: dict[str, NDArray[np.float64]] = {kind: np.empty(len(rows)) for kind in KINDS}
        for number, (row, language) in enumerate(zip(rows, languages.tolist(), strict=True)):
            for kind, table in self._tables[language].items():
                found[kind][number] = -table.tokens(row[:-1], row[1:]).nats_K.sum()
        return found


def take_of_tables(held_out: HeldOut, task: Task, names: Sequence[str]) -> dict[str, Taken]:
    """The named yardsticks of the tables, by the table's kind; without those that need a model."""
    corpus = held_out.corpus
    passes = _TablePasses(
        held_out, task, {language: tables_of(corpus, language, task) for language in corpus.languages}
    )
    found: dict[str, Taken] = {}
    for kind in KINDS:
        taken = Taken({}, {})
        for name in names:
            try:
                own = taken_by(passes, kind, (name,))
            except NoModel:
                continue
            taken = Taken(taken.scores | own.scores, taken.items | own.items)
        found[kind] = taken
    return found


def tables_of(corpus: PackedCorpus, language: str, task: Task) -> dict[Kind, TokenTable]:
    """The tables of a language's training text: ``unigram``, of all of it, and ``bigram``, of as much as
    :data:`MOST_TOKENS`. Raises InputError for a damaged shard."""
    count_V, nothing = corpus.token_counts.of(language), np.empty(0, dtype=np.int64)
    if task == "masked":  # special tokens are never masked: a table that expects them is no floor
        count_V[list(corpus.manifest.special_tokens)] = 0
    most = max(1, min(corpus.sequences("train", language), MOST_TOKENS // corpus.manifest.sequence_length))
    token_NL = corpus.take("train", language, np.arange(most)).astype(np.int64)
    neighbours = token_NL[:, :-1].ravel(), token_NL[:, 1:].ravel()
    return {"unigram": TokenTable(count_V, nothing, nothing), "bigram": TokenTable(count_V, *neighbours)}
