"""Passes of held-out text through a model; yardsticks that need the same one share it. Letters: N sequences or rows of
a batch, L tokens each, K targets, D hidden size, V vocabulary, P minimal pairs, S sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainables.corpora.stream.manifest import Manifest
from trainables.evaluation.held_out import HeldOut, Targets, batches, framed
from trainables.evaluation.once import Once
from trainables.evaluation.registry import find_yardstick
from trainables.evaluation.yardstick import Items, Score
from trainables.objectives.learner import Learner
from trainables.objectives.loss import slice_rows
from trainables.objectives.objective import Scorer

SLICE_ELEMENTS = 1 << 24  # numbers of the last layers held at a time

Scored = tuple[NDArray[np.int64], Tensor, Tensor]
"""Whose sentence each of some tokens is, (K,), its hidden state, (K, D), and the token, (K,)."""


class Tokens(NamedTuple):
    """Held-out tokens that were to be recovered."""

    rank_K: NDArray[np.int64]  # among the whole vocabulary, 1 the best
    nats_K: NDArray[np.float64]  # negative log-likelihood over the whole vocabulary; infinite where the model gives NaN
    token_K: NDArray[np.int64]

    def some(self, number: NDArray[np.int64]) -> Tokens:
        """The tokens with these numbers, (k,)."""
        return Tokens(self.rank_K[number], self.nats_K[number], self.token_K[number])


class Passes:
    """The passes of held-out text through one model: each is made once for all yardsticks and scorers."""

    def __init__(self, learner: Learner, held_out: HeldOut, scorers: Sequence[Scorer]) -> None:
        self._learner, self.held_out, self.scorers = learner, held_out, scorers
        self.task = learner.objective.task
        self.once = Once()

    @property
    def learner(self) -> Learner:
        """The model."""
        return self._learner

    @cached_property
    def targets(self) -> Targets:
        return self.held_out.targets(self.task)

    @cached_property
    def own_of(self) -> dict[str, NDArray[np.int64]]:
        """Which of the targets are of each language, by number."""
        language_K = self.held_out.language_N[self.targets.sequence_K]
        return {language: np.flatnonzero(language_K == language) for language in self.held_out.corpus.languages}

    @cached_property
    def tokens(self) -> Mapping[str, Tokens]:
        return score_targets(self.learner, self.targets, self.scorers)

    @cached_property
    def documents(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """By language the numbers of documents, (I,), and which of them each target is of, (K,); those of one group are
        one."""
        corpus, split = self.held_out.corpus, self.held_out.split
        document_K = self.held_out.document_NL[self.targets.sequence_K, self.targets.place_K]
        units = {name: corpus.units(split, name, document_K[own]) for name, own in self.own_of.items()}
        found = {name: np.unique(unit_K, return_inverse=True) for name, unit_K in units.items()}
        return {name: (unit_I, place_K) for name, (unit_I, place_K) in found.items()}

    @cached_property
    def sentences(self) -> Mapping[str, NDArray[np.float64]]:
        """(Pseudo-)log-likelihoods of the sentences of minimal pairs."""
        held_out = self.held_out
        return log_likelihoods(self.learner, held_out.sentences, held_out.corpus.manifest, self.scorers)


class Taking:
    """One model in evaluation mode, at one moment, by one of its scorers."""

    def __init__(self, passes: Passes, scorer: str) -> None:
        self.held_out, self.task, self.scorer = passes.held_out, passes.task, scorer
        self._passes = passes

    @property
    def learner(self) -> Learner:
        """The model."""
        return self._passes.learner

    @property
    def once(self) -> Once:
        """For what does not depend on the scorer."""
        return self._passes.once

    @cached_property
    def tokens(self) -> dict[str, Tokens]:
        """By language the held-out tokens, and how well they were recovered."""
        found = self._passes.tokens[self.scorer]
        return {language: found.some(own) for language, own in self._passes.own_of.items()}

    @property
    def ranks(self) -> dict[str, NDArray[np.int64]]:
        """By language, ranks of the tokens, (K,), 1 the best."""
        return {language: tokens.rank_K for language, tokens in self.tokens.items()}

    @cached_property
    def pairs(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """By language, (pseudo-)log-likelihoods of the good and the bad sentences of minimal pairs, (P,) each."""
        languages, score = self.held_out.pair_languages, self._passes.sentences[self.scorer]
        good, bad = score[: len(languages)], score[len(languages) :]
        return {name: (good[languages == name], bad[languages == name]) for name in sorted(set(languages))}

    def by_document(
        self, value: Callable[[Tokens], NDArray[Any]], weight: Callable[[Tokens], NDArray[Any]] | None = None
    ) -> dict[str, Items]:
        """Values and weights of tokens, of 1 each if none is given, summed over the documents of a
        language, or their groups."""
        items = {}
        for language, tokens in self.tokens.items():
            document_I, place_K = self._passes.documents[language]
            weight_K = np.ones(len(place_K)) if weight is None else weight(tokens)
            value_I, weight_I = (
                np.bincount(place_K, own_K, len(document_I)).astype(np.float64) for own_K in (value(tokens), weight_K)
            )
            items[language] = Items(document_I, value_I, weight_I, is_common=True)
        return items

    def mean(self, values: Mapping[str, NDArray[Any] | float]) -> Score:
        """Of values by language the means, and over languages their mean: each counts the same."""
        languages = {name: float(np.mean(value)) for name, value in values.items()}
        return Score(overall=float(np.mean(list(languages.values()))), languages=languages)


Languages = Mapping[str, Items]
"""By language what a score is made of."""


class Taken(NamedTuple):
    """Yardsticks of one model by one scorer, by name."""

    scores: dict[str, Score]
    items: dict[str, Languages]
    """Of those that are made of items."""


def take(
    learner: Learner, held_out: HeldOut, names: Iterable[str], scorers: Sequence[Scorer] | None = None
) -> dict[Scorer, Taken]:
    """The named yardsticks by each of the model's scorers, or of some, in their order.

    The learner's mode (train, eval) is as before afterwards.
    """
    training = learner.training
    learner.eval()
    scorers = scorers or learner.objective.scorers
    passes, names = Passes(learner, held_out, scorers), tuple(names)
    found = {scorer: taken_by(passes, scorer, names) for scorer in scorers}
    learner.train(training)
    return found


def taken_by(passes: Passes, scorer: str, names: Iterable[str]) -> Taken:
    """The named yardsticks by one scorer."""
    taking, yardsticks = Taking(passes, scorer), [find_yardstick(name) for name in names]
    items = {yardstick.name: yardstick.items(taking) for yardstick in yardsticks}
    scores = {yardstick.name: yardstick.measure(taking) for yardstick in yardsticks}
    return Taken(scores, {name: own for name, own in items.items() if own is not None})


@torch.no_grad()
def score_targets(learner: Learner, targets: Targets, scorers: Sequence[Scorer]) -> dict[str, Tokens]:
    """How well each target is recovered by each of the scorers: one pass for all, slice by slice."""
    device, sequence_K, num_targets = learner.embedding_VD.device, targets.sequence_K, len(targets.target_K)
    num_sequences, length = targets.input_NL.shape
    sequences = max(1, SLICE_ELEMENTS // (length * learner.config.hidden_size * 16))
    positions = slice_rows(learner.config.vocab_size, learner.config.hidden_size, device)
    rank_SK = np.empty((len(scorers), num_targets), dtype=np.int64)
    nats_SK = np.empty((len(scorers), num_targets))
    for start in range(0, num_sequences, sequences):
        hidden_NLD = learner.hidden(torch.from_numpy(targets.input_NL[start : start + sequences]).to(device))
        first, end = np.searchsorted(sequence_K, [start, start + sequences])
        for begin in range(first, end, positions):
            part = slice(begin, min(begin + positions, end))
            hidden_KD = hidden_NLD[sequence_K[part] - start, targets.position_K[part]]
            target_K = torch.from_numpy(targets.target_K[part]).to(device)
            for number, logits_KV in enumerate(learner.scores(hidden_KD, scorers).values()):
                rank_SK[number, part] = ranks_of(logits_KV, target_K).cpu().numpy()
                nats_K = F.cross_entropy(logits_KV.float(), target_K, reduction="none")
                nats_SK[number, part] = np.nan_to_num(nats_K.cpu().numpy(), nan=np.inf, posinf=np.inf)
    found = zip(scorers, rank_SK, nats_SK, strict=True)
    return {scorer: Tokens(rank_K, nats_K, targets.target_K) for scorer, rank_K, nats_K in found}


def ranks_of(logits_KV: Tensor, target_K: Tensor) -> Tensor:
    """Rank of each target among all tokens, 1 the best, (K,). Ties, and NaN, count against the target."""
    target_logit_K1 = logits_KV.gather(1, target_K[:, None])
    lower_KV = logits_KV < target_logit_K1  # a byte each, which add up faster than as booleans
    return logits_KV.shape[1] - lower_KV.view(torch.uint8).sum(dim=1, dtype=torch.int32)


@torch.no_grad()
def log_likelihoods(
    learner: Learner, sentences: Sequence[Sequence[int]], manifest: Manifest, scorers: Sequence[Scorer]
) -> dict[str, NDArray[np.float64]]:
    """Log-likelihoods over the whole vocabulary, in nats, (S,), of sentences without special tokens, by each scorer.

    An encoder's are pseudo-log-likelihoods: each token masked in turn (arXiv 1910.14659).
    """
    rows = framed(sentences, manifest)
    found: dict[str, NDArray[np.float64]] = {scorer: np.zeros(len(rows)) for scorer in scorers}
    positions = slice_rows(learner.config.vocab_size, learner.config.hidden_size, learner.embedding_VD.device)
    batches_of = _causal if learner.objective.task == "causal" else _masked
    for owner_K, hidden_KD, target_K in batches_of(learner, rows, manifest):
        for begin in range(0, len(owner_K), positions):
            part = slice(begin, begin + positions)
            for scorer, logits_KV in learner.scores(hidden_KD[part], scorers).items():
                log_probability_K = -F.cross_entropy(logits_KV.float(), target_K[part], reduction="none")
                np.add.at(found[scorer], owner_K[part], log_probability_K.cpu().numpy())
    return found


def _masked(learner: Learner, rows: list[NDArray[np.int64]], manifest: Manifest) -> Iterator[Scored]:
    masked = np.array([(owner, place) for owner, row in enumerate(rows) for place in range(1, len(row) - 1)])
    for part in batches([len(rows[owner]) for owner, _ in masked]):
        owner_N, position_N = masked[part].T
        token_NL, mask_NL = _pad([rows[owner] for owner in owner_N], manifest, learner.embedding_VD.device)
        place = torch.arange(len(part)), torch.from_numpy(position_N)
        target_N = token_NL[place]
        token_NL[place] = manifest.required_mask_token
        yield owner_N, learner.hidden(token_NL, mask_NL)[place], target_N


def _causal(learner: Learner, rows: list[NDArray[np.int64]], manifest: Manifest) -> Iterator[Scored]:
    for part in batches([len(tokens) for tokens in rows]):
        token_NL, mask_NL = _pad([rows[i] for i in part], manifest, learner.embedding_VD.device)
        scored_NL = mask_NL[:, 1:].bool()
        hidden_KD = learner.hidden(token_NL, mask_NL)[:, :-1][scored_NL]
        yield np.repeat(part, scored_NL.sum(1).cpu().numpy()), hidden_KD, token_NL[:, 1:][scored_NL]


def _pad(rows: list[NDArray[np.int64]], manifest: Manifest, device: torch.device) -> tuple[Tensor, Tensor]:
    tokens = [torch.from_numpy(row) for row in rows]
    token_NL = pad_sequence(tokens, batch_first=True, padding_value=manifest.pad_token)
    mask_NL = pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
    return token_NL.to(device), mask_NL.to(device)
