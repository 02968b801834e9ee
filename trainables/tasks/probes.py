"""Probes: what a linear classifier reads from a model's frozen features, whatever its head is. Letters: H layers with
the embedding, I examples, K their labels (a text has one, a sentence one a word), F features.

Logistic regression on standardised features with an L2 penalty, as SentEval has it (Conneau and Kiela 2018, arXiv
1803.05449). Layer and penalty are chosen on a split of their own: the layer at a middling penalty, then the penalty at
that layer, which is a fraction of all pairs of them. Nothing is drawn by chance. Ridge regression takes a fraction of
the time, and tells 6 to 8 in 100 words fewer of a tiny model's parts of speech.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from trainables.evaluation.held_out import batches
from trainables.tasks.config import Split
from trainables.tasks.examples import Example
from trainables.tasks.features import Floats
from trainables.tasks.kinds import KINDS, Kind
from trainables.tasks.metrics import labels_of, right_of
from trainables.tasks.model import Ints, LanguageModel
from trainables.tasks.prepared import Tasks

TRAINING_EXAMPLES, TRAINING_LABELS = 2000, 10_000
"""What a probe is fitted to, at most, and at most what its layer and penalty are chosen on. Of tags, more labels bring
little: 35,000 of English gain a point of accuracy and take four times as long."""
INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0)
"""scikit-learn's ``C``: the strongest penalty first."""
MIDDLING = 0.1
TOLERANCE, ITERATIONS = 1e-3, 1000


class Probed(NamedTuple):
    """What a probe gets right of one language's examples, of each the share of its labels, (I,)."""

    right_I: NDArray[np.float64]
    layer: int
    """The one that was chosen: 0 is the embedding's output."""
    inverse_penalty: float
    told_K: Ints
    """The class that is told of each label, example by example."""
    bag_right_I: NDArray[np.float64]
    """The bag of embeddings, a control: the same on the embedding's output alone, which has seen no other word."""


class _Labelled(NamedTuple):
    """Features and what they are to tell."""

    feature_HKF: Floats
    label_K: Ints


def probe(
    model: LanguageModel,
    kind: Kind,
    train: Sequence[Example],
    chosen_on: Sequence[Example],
    tested: Mapping[str, Sequence[Example]],
) -> Mapping[str, Probed]:
    """By language what probes get right that were fitted to ``train``: the one whose layer and penalty did best on
    ``chosen_on``, and the best of the embedding alone. Of layers and of penalties that tie it is the lower, and the
    stronger one."""
    with threadpool_limits(1, user_api="blas"):  # sums in another order are other sums
        fitted_to, on = _labelled(model, kind, train), _labelled(model, kind, chosen_on)

        @cache
        def fitted(layer: int, inverse_penalty: float) -> ClassifierMixin:
            return _fitted(fitted_to.feature_HKF[layer], fitted_to.label_K, inverse_penalty)

        def score(layer: int, inverse_penalty: float) -> float:
            return float((fitted(layer, inverse_penalty).predict(on.feature_HKF[layer]) == on.label_K).mean())

        def penalty(layer: int) -> float:
            return max(INVERSE_PENALTIES, key=lambda own: score(layer, own))

        layer = max(range(len(fitted_to.feature_HKF)), key=lambda own: score(own, MIDDLING))
        found = {}
        for language, own in tested.items():
            best, bag = ((number, fitted(number, penalty(number))) for number in (layer, 0))
            told_K, bag_told_K = _told(model, kind, own, [best, bag])
            right_I, bag_right_I = right_of(own, told_K), right_of(own, bag_told_K)
            found[language] = Probed(right_I, layer, penalty(layer), told_K, bag_right_I)
        return found


def probe_task(
    model: LanguageModel, tasks: Tasks, name: str, split: Split, examples: Mapping[str, Sequence[Example]]
) -> Mapping[str, Probed]:
    """By language how a task's examples are told by probes that are fitted to its training split, of each language its
    own, or that of the language of transfer. They are chosen on the dev split, or where that is the one asked for, or
    there is none, on a fifth of the training split."""
    entry = tasks.manifest.tasks[name]
    kind, transfer = KINDS.find(entry.kind)(), entry.transfer
    found: dict[str, Probed] = {}
    for language in (transfer,) if transfer else tuple(examples):
        train = _some(tasks, name, "train", language)
        if split == "dev" or not entry.counts["dev"].get(language):
            part = max(1, len(train) // 5)
            train, chosen_on = train[part:] or train, train[:part]
        else:
            chosen_on = _some(tasks, name, "dev", language)
        found |= probe(model, kind, train, chosen_on, examples if transfer else {language: examples[language]})
    return found


def _some(tasks: Tasks, name: str, split: Split, language: str) -> list[Example]:
    found = tasks.first(name, split, language, TRAINING_EXAMPLES)
    within = np.cumsum([len(example.labels) for example in found]) <= TRAINING_LABELS
    return found[: max(1, int(within.sum()))]


def _featured(model: LanguageModel, kind: Kind, examples: Sequence[Example]) -> Iterator[tuple[Ints, Floats, Ints]]:
    """Numbers of examples of similar lengths, their features, (H, K, F), and labels, (K,), batch by batch. Features
    that are no numbers, as a broken model's, are 0: nothing is read from them."""
    for number_I in batches([sum(map(len, example.texts)) for example in examples]):
        own = [examples[number] for number in number_I]
        feature_HKF = np.nan_to_num(kind.features(model, own), nan=0.0, posinf=0.0, neginf=0.0)
        yield number_I, feature_HKF, labels_of(own)


def _labelled(model: LanguageModel, kind: Kind, examples: Sequence[Example]) -> _Labelled:
    _, features, labels = zip(*_featured(model, kind, examples), strict=True)
    return _Labelled(np.concatenate(features, axis=1), np.concatenate(labels))


def _fitted(feature_KF: Floats, label_K: Ints, inverse_penalty: float) -> ClassifierMixin:
    if len(np.unique(label_K)) == 1:
        return DummyClassifier().fit(feature_KF, label_K)
    return make_pipeline(
        StandardScaler(), LogisticRegression(C=inverse_penalty, tol=TOLERANCE, max_iter=ITERATIONS)
    ).fit(feature_KF, label_K)


def _told(
    model: LanguageModel, kind: Kind, examples: Sequence[Example], probes: Sequence[tuple[int, ClassifierMixin]]
) -> list[Ints]:
    """Of probes, each of a layer, the class that it tells of each label, (K,), example by example."""
    size_I = np.array([len(example.labels) for example in examples])
    first_I = np.cumsum(size_I) - size_I
    found = [np.zeros(size_I.sum(), dtype=np.int64) for _ in probes]
    for number_I, feature_HKF, _ in _featured(model, kind, examples):
        place_K = np.concatenate([np.arange(first_I[n], first_I[n] + size_I[n]) for n in number_I])
        for told_K, (layer, probe) in zip(found, probes, strict=True):
            told_K[place_K] = probe.predict(feature_HKF[layer])
    return found
