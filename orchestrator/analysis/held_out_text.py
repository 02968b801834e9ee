"""What held-out text adds to the chance in differences, by the scores of its documents or pairs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.statistics.evidence import Evidence, Items, by_cluster, difference, of_seeds, with_text
from orchestrator.analysis.worth import Pairs, Worth
from orchestrator.ledger.history import History
from orchestrator.ledger.items import influences, read_floors, read_items
from trainables.evaluation.item_scores import ItemScores


def evidence_of(history: History, yardstick: str, pairs: Pairs) -> Evidence:
    """Evidence of pairs of models, seed by seed.

    Text counts where every one of them has scores by item of this yardstick, of some units a language at the least:
    elsewhere it is taken as it is. Raises InputError where a file of such scores is gone or another.
    """
    items = [(items_of(history, yardstick, a), items_of(history, yardstick, b)) for a, b in pairs.values()]
    known = [(a, b) for a, b in items if a is not None and b is not None]
    found = of_seeds([difference(a.score, b.score) for a, b in pairs.values()])
    return found if not known or len(known) < len(pairs) else _with_text(found, known)


def evidence_of_items(pairs: Sequence[tuple[ItemScores, ItemScores]]) -> Evidence:
    """Likewise of models whose scores by item are given."""
    return _with_text(of_seeds([difference(a.overall, b.overall) for a, b in pairs]), pairs)


def _with_text(found: Evidence, pairs: Sequence[tuple[ItemScores, ItemScores]]) -> Evidence:
    a, b = zip(*pairs, strict=True)
    influence_SI = influences([*a, *b]).influence_SI
    return _with_units(found, a[0], influence_SI[: len(pairs)] - influence_SI[len(pairs) :])


def evidence_against(
    history: History, yardstick: str, models: Sequence[Worth], value: float, items: ItemScores | None
) -> Evidence:
    """Likewise of models against a fixed value; ``items`` are its own, None where text does not change it."""
    scores = [items_of(history, yardstick, worth) for worth in models]
    known = [own for own in scores if own is not None]
    if not known or len(known) < len(models):
        return of_seeds([difference(worth.score, value) for worth in models])
    return evidence_above(known, [worth.score for worth in models], value, items)


def evidence_above(
    known: Sequence[ItemScores], scores: Sequence[float], value: float, items: ItemScores | None
) -> Evidence:
    """Likewise of models whose scores by item are given, and what they come to."""
    found = of_seeds([difference(score, value) for score in scores])
    if items is None:
        return _with_units(found, known[0], influences(known).influence_SI)
    influence_SI = influences([*known, items]).influence_SI
    return _with_units(found, items, influence_SI[:-1] - influence_SI[-1])


def items_before(history: History, yardstick: str, worth: Worth) -> ItemScores | None:
    """Of the model that a run began with."""
    return None if history.folder is None else read_floors(history.folder, worth.of).get((yardstick, "untrained"))


def items_of(history: History, yardstick: str, worth: Worth) -> ItemScores | None:
    """By the scorer that the objective implies."""
    if worth.untrained:
        return items_before(history, yardstick, worth)
    own = {} if history.folder is None else read_items(history.folder, worth.of)
    return own.get((yardstick, worth.of.measures[-1].scorer or ""))


def _with_units(found: Evidence, scores: ItemScores, influence_SI: NDArray[np.float64]) -> Evidence:
    """The evidence with the chance of the text of those languages that have units enough, and none that outweighs the
    others; that of the others is taken as it is."""
    items: Items = by_cluster(influence_SI, scores.units, scores.language_I.tolist(), scores.weight_I)
    names = list(dict.fromkeys(scores.language_I.tolist()))  # in the order of the items' strata
    few = sorted(names[place] for place in np.flatnonzero(items.is_few_L))
    if not few:
        return with_text(found, items)
    kept_I = ~np.isin(scores.language_I, few)
    if not kept_I.any():
        return found
    units = [unit for unit, is_kept in zip(scores.units, kept_I, strict=True) if is_kept]
    items = by_cluster(influence_SI[:, kept_I], units, scores.language_I[kept_I].tolist(), scores.weight_I[kept_I])
    return with_text(found, items)._replace(fixed_text=tuple(few))


def text_error(a: ItemScores, b: ItemScores) -> float | None:
    """Standard error by text of the difference of two models; None where text has too few units to tell."""
    found = evidence_of_items([(a, b)])
    return float(found.text_variance) ** 0.5 if np.isfinite(found.text_degrees) else None
