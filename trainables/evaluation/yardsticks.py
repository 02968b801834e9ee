"""The yardsticks by name, and the evaluator that takes them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from trainables.config import Config
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import token_bytes
from trainables.evaluation.likelihood import bits_per_byte, perplexity, target_nats
from trainables.evaluation.minimal_pairs import log_likelihoods
from trainables.evaluation.recovery import recovery_ranks
from trainables.models.learner import Learner


@dataclass(frozen=True)
class Yardstick:
    """What a yardstick says, and which way is up."""

    description: str
    higher_is_better: bool = True


YARDSTICKS: dict[str, Yardstick] = {
    "recovery_accuracy": Yardstick(
        "share of held-out tokens that are the model's first choice among the whole vocabulary"
    ),
    "recovery_mrr": Yardstick("mean reciprocal rank of held-out tokens among the whole vocabulary"),
    "perplexity": Yardstick(
        "exp of the mean negative log-likelihood of held-out tokens: all for a decoder, masked ones for an encoder",
        higher_is_better=False,
    ),
    "bits_per_byte": Yardstick(
        "the same likelihood in bits, over the UTF-8 bytes of the tokens: a decoder's does not depend on the tokenizer",
        higher_is_better=False,
    ),
    "minimal_pair_accuracy": Yardstick(
        "share of minimal pairs whose grammatical sentence is likelier (embedded grammars)"
    ),
}
"""By name. Those of which higher is better are shares between 0 and 1."""

_LIKELIHOODS = ("perplexity", "bits_per_byte")


class Score(TypedDict):
    """A yardstick's value."""

    overall: float
    languages: dict[str, float]


class EvaluationConfig(Config):
    """On what the yardsticks are taken."""

    sequences_per_language: int = Field(32, ge=1)
    """Held-out sequences of each language: as many for a small language as for a large one."""
    mask_rate: float = Field(0.15, gt=0, le=0.9)
    """Share of their tokens that must be recovered."""


@dataclass
class Evaluator:
    """Takes yardsticks of a learner.

    Args:
        corpus: holds the held-out text.
        config: how much of it.
        split: ``validation`` while searching, ``test`` when confirming: what was tuned on is not what is reported.
        device: where the learner is.
    """

    corpus: PackedCorpus
    config: EvaluationConfig
    split: Literal["validation", "test"]
    device: torch.device

    def take(self, learner: Learner, names: tuple[str, ...]) -> dict[str, Score]:
        """The named yardsticks, by name. The learner's mode (train, eval) is as before afterwards."""
        training = learner.training
        learner.eval()
        scores: dict[str, Score] = {}
        if any(name.startswith("recovery_") for name in names):
            scores |= self._recovery(learner)
        if any(name in _LIKELIHOODS for name in names):
            scores |= self._likelihood(learner, "bits_per_byte" in names)
        if "minimal_pair_accuracy" in names:
            scores["minimal_pair_accuracy"] = self._minimal_pairs(learner)
        learner.train(training)
        return {name: scores[name] for name in names}

    @cached_property
    def _held_out(self) -> tuple[NDArray[np.int64], list[str]]:
        """Sequences, (N, L), and the language of each."""
        tokens, language_N = [], []
        for language in self.corpus.languages:
            available = self.corpus.sequences(self.split, language)
            index = np.arange(min(available, self.config.sequences_per_language))
            tokens.append(self.corpus.take(self.split, language, index))
            language_N += [language] * len(index)
        return np.concatenate(tokens).astype(np.int64), language_N

    @cached_property
    def _token_bytes_V(self) -> NDArray[np.int64]:
        return token_bytes(self.corpus.tokenizer())

    def _recovery(self, learner: Learner) -> dict[str, Score]:
        token_NL, language_N = self._held_out
        ranks_NT = recovery_ranks(learner, token_NL, self.corpus.manifest, self.config.mask_rate, self.device)
        by_language: dict[str, list[NDArray[np.int64]]] = defaultdict(list)
        for language, ranks_T in zip(language_N, ranks_NT, strict=True):
            by_language[language].append(ranks_T[ranks_T > 0])
        ranks = {language: np.concatenate(parts) for language, parts in by_language.items()}
        return {
            "recovery_accuracy": _score({name: rank == 1 for name, rank in ranks.items()}),
            "recovery_mrr": _score({name: 1.0 / rank for name, rank in ranks.items()}),
        }

    def _likelihood(self, learner: Learner, with_bytes: bool) -> dict[str, Score]:
        token_NL, language_N = self._held_out
        found = target_nats(learner, token_NL, self.corpus.manifest, self.config.mask_rate, self.device)
        language_K = np.array(language_N)[found.sequence_K]
        own = {language: language_K == language for language in self.corpus.languages}
        mean_nats = {language: float(np.mean(found.nats_K[own_K])) for language, own_K in own.items()}
        scores: dict[str, Score] = {
            "perplexity": {
                # The geometric mean of the languages' perplexities: each counts the same.
                "overall": perplexity(float(np.mean(list(mean_nats.values())))),
                "languages": {language: perplexity(nats) for language, nats in mean_nats.items()},
            }
        }
        if with_bytes:
            bytes_K = self._token_bytes_V[found.target_K]
            bits = {name: bits_per_byte(found.nats_K[own_K], bytes_K[own_K]) for name, own_K in own.items()}
            scores["bits_per_byte"] = {"overall": float(np.mean(list(bits.values()))), "languages": bits}
        return scores

    def _minimal_pairs(self, learner: Learner) -> Score:
        pairs = self.corpus.minimal_pairs()
        tokenizer = self.corpus.tokenizer()

        def encode(sentences: list[str]) -> list[list[int]]:
            return [list(ids) for ids in tokenizer(sentences, add_special_tokens=False)["input_ids"]]

        sentences = encode([pair.good for pair in pairs] + [pair.bad for pair in pairs])
        scores = log_likelihoods(learner, sentences, self.corpus.manifest, self.device)
        right = scores[: len(pairs)] > scores[len(pairs) :]
        language_P = np.array([pair.language for pair in pairs])
        return _score({language: right[language_P == language] for language in sorted(set(language_P))})


def _score(values: dict[str, NDArray[Any]]) -> Score:
    """Overall: the mean over languages, each counting the same."""
    languages = {name: float(np.mean(value)) for name, value in values.items()}
    return {"overall": float(np.mean(list(languages.values()))), "languages": languages}
