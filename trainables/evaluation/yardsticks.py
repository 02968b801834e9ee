"""The yardsticks by name, and the evaluator that takes them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from trainables.config import Config
from trainables.corpora.packed import PackedCorpus
from trainables.evaluation.minimal_pairs import log_likelihoods
from trainables.evaluation.recovery import recovery_ranks
from trainables.models.learner import Learner

YARDSTICKS: dict[str, str] = {
    "recovery_accuracy": "share of held-out tokens that are the model's first choice among the whole vocabulary",
    "recovery_mrr": "mean reciprocal rank of held-out tokens among the whole vocabulary",
    "minimal_pair_accuracy": "share of minimal pairs whose grammatical sentence is likelier (embedded grammars)",
}
"""All are shares between 0 and 1, higher is better."""


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
        if "minimal_pair_accuracy" in names:
            scores["minimal_pair_accuracy"] = self._minimal_pairs(learner)
        learner.train(training)
        return {name: scores[name] for name in names}

    def _recovery(self, learner: Learner) -> dict[str, Score]:
        tokens, language_N = [], []
        for language in self.corpus.languages:
            available = self.corpus.sequences(self.split, language)
            index = np.arange(min(available, self.config.sequences_per_language))
            tokens.append(self.corpus.take(self.split, language, index))
            language_N += [language] * len(index)
        token_NL = np.concatenate(tokens).astype(np.int64)
        ranks_NT = recovery_ranks(learner, token_NL, self.corpus.manifest, self.config.mask_rate, self.device)
        by_language: dict[str, list[NDArray[np.int64]]] = defaultdict(list)
        for language, ranks_T in zip(language_N, ranks_NT, strict=True):
            by_language[language].append(ranks_T[ranks_T > 0])
        ranks = {language: np.concatenate(parts) for language, parts in by_language.items()}
        return {
            "recovery_accuracy": _score({name: rank == 1 for name, rank in ranks.items()}),
            "recovery_mrr": _score({name: 1.0 / rank for name, rank in ranks.items()}),
        }

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
