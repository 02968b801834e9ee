"""The runs that an answer rests on, seed by seed and language by language. Beside the primary row it is exploratory."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.analysis.compare import settled_runs
from orchestrator.analysis.comparison import Difference
from orchestrator.analysis.held_out_text import evidence_of_items, items_of
from orchestrator.analysis.rows import mean
from orchestrator.analysis.statistics.evidence import Evidence, difference, of_seeds
from orchestrator.analysis.worth import Pairs, Worth, pairs_of
from orchestrator.config.confirmation import ALPHA
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BROKEN
from trainables.config import Config


class Seed(Config):
    """The primary yardstick of two arms' models at one seed."""

    seed: int
    a: float
    b: float
    difference: float
    """a - b."""
    broken: tuple[str, ...]
    """The arms whose run diverged or failed, and counts as the worst model known."""


class LanguageDifference(Difference):
    """The primary yardstick on one language's text."""

    language: str
    text: bool
    """Whether the chance of the text is in the interval beside that of the seeds."""


class PairedSeeds(Config):
    """A pair of arms."""

    a: str
    b: str
    seeds: tuple[Seed, ...]
    languages: tuple[LanguageDifference, ...]
    """Empty where there is one language, or a model was not scored by language."""


def paired_seeds(history: History) -> tuple[PairedSeeds, ...]:
    """Of every pair of arms. Raises InputError where a file of item scores is gone or another."""
    primary, found = history.design.yardsticks.primary, []
    for (a, b), runs in settled_runs(history).items():
        pairs = pairs_of(history, primary, *runs)
        seeds = tuple(
            Seed(
                seed=seed,
                a=one.score,
                b=other.score,
                difference=difference(one.score, other.score),
                broken=tuple(arm for arm, own in zip((a, b), runs, strict=True) if own[seed].outcome in BROKEN),
            )
            for seed, (one, other) in pairs.items()
        )
        found.append(PairedSeeds(a=a, b=b, seeds=seeds, languages=tuple(_languages(history, primary, pairs))))
    return tuple(found)


def _languages(history: History, yardstick: str, pairs: Pairs) -> Iterator[LanguageDifference]:
    scores = [tuple(_by_language(worth, yardstick) for worth in both) for both in pairs.values()]
    names = [name for name in (scores[0][0] if scores else ()) if all(name in own for both in scores for own in both)]
    for name in names if len(names) > 1 else ():
        a, b = ([both[side][name] for both in scores] for side in (0, 1))
        found = _evidence(history, yardstick, pairs, name)
        text = found is not None
        found = found or of_seeds([difference(one, other) for one, other in zip(a, b, strict=True)])
        yield LanguageDifference(
            language=name,
            n=found.n,
            mean_a=mean(a),
            mean_b=mean(b),
            difference=float(found.mean),
            interval=found.interval(ALPHA) if found.n > 1 else None,
            text=text,
        )


def _by_language(worth: Worth, yardstick: str) -> dict[str, float]:
    if worth.untrained:
        return dict(worth.of.floors.untrained[yardstick].languages) if worth.of.floors is not None else {}
    last = next(m for m in reversed(worth.of.measures) if yardstick in m.yardsticks)
    return dict(last.yardsticks[yardstick].languages)


def _evidence(history: History, yardstick: str, pairs: Pairs, language: str) -> Evidence | None:
    """With the chance of the language's text; None where that is not known, or its units are too few to show it."""
    items = [(items_of(history, yardstick, a), items_of(history, yardstick, b)) for a, b in pairs.values()]
    own = [
        (a.some(a.language_I == language), b.some(b.language_I == language))
        for a, b in items
        if a is not None and b is not None
    ]
    if not own or len(own) < len(pairs):
        return None
    found = evidence_of_items(own)
    return None if found.fixed_text or not float(found.text_degrees) < float("inf") else found
