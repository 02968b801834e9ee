"""Which learning rate an arm's models are fine-tuned with: chosen by its search models, then frozen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from orchestrator.analysis.statistics.evidence import TINY
from orchestrator.ledger.history import History
from trainables.errors import InputError


class DevScore(NamedTuple):
    """What one fine-tuning of a search model scores on a task's dev split."""

    model: str
    """The search trial."""
    rate: float
    seed: int
    score: float
    """Higher is better; of a run that diverged, chance."""


class ChosenRate(NamedTuple):
    """A task's, for one arm."""

    rate: float
    score: float
    """Its mean on the dev split: seeds within a model, then models."""
    at_edge: bool
    """Whether it is the first or last of the grid's rates: a better one may lie beyond."""


def dev_scores(history: History, arm: str, task: str) -> list[DevScore]:
    """What an arm's search models choose a task's rate by; none where there was one rate."""
    return [
        DevScore(record.trial, record.rate, 0, record.score)
        for record in history.tunings.values()
        if (record.arm, record.task, record.split) == (arm, task, "dev")
    ]


def choose_rate(results: Sequence[DevScore]) -> ChosenRate:
    """The rate with the highest mean score: over seeds within each model, then over models. Of rates that tie, the
    lowest. Raises InputError: there is no result, a score is no number, or rates were not tried on the same models."""
    models: dict[float, dict[str, list[float]]] = {}
    for result in results:
        models.setdefault(result.rate, {}).setdefault(result.model, []).append(result.score)
    tried = [{name: len(scores) for name, scores in own.items()} for own in models.values()]
    if not tried or any(own != tried[0] for own in tried) or not all(math.isfinite(r.score) for r in results):
        raise InputError(
            "no learning rate can be chosen for fine-tuning",
            why="each rate needs numbers of the same search models, from as many seeds; of a run that diverged, chance",
            remedy="fine-tune every search model with every rate",
        )
    means = {rate: fmean(fmean(scores) for scores in models[rate].values()) for rate in sorted(models)}
    best = max(means.values())
    rate = next(rate for rate, mean in means.items() if mean >= best - TINY * max(1.0, abs(best)))
    return ChosenRate(rate, means[rate], len(means) > 1 and rate in (min(means), max(means)))
