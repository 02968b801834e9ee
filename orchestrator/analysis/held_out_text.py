"""What held-out text adds to the chance in two arms' differences, by the scores of its documents or pairs."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.selection import Runs, untrained, worth
from orchestrator.analysis.statistics.evidence import Evidence, Items, by_cluster, of_seeds, with_text
from orchestrator.ledger.history import History
from orchestrator.ledger.items import influences, read_floors, read_items
from orchestrator.ledger.trials import TrialHistory
from trainables.evaluation.item_scores import ItemScores

FEWEST_UNITS = 3  # of a language, of equal weight: of fewer it hardly shows how much its text varies


def evidence_of(
    history: History, yardstick: str, a: Runs, b: Runs, values_a: dict[int, float], values_b: dict[int, float]
) -> Callable[[int], Evidence]:
    """Evidence of the first n pairs of runs that have both a value, in the order of their seeds.

    Text counts where every one of them has scores by item of this yardstick, of two units a language at the least:
    elsewhere it is taken as it is. Raises InputError where a file of such scores is gone or another.
    """
    seeds = sorted(values_a.keys() & values_b.keys())
    differences = [values_a[seed] - values_b[seed] for seed in seeds]
    items = _items(history, yardstick, [a[seed] for seed in seeds], [b[seed] for seed in seeds]) if seeds else None

    def evidence(n: int) -> Evidence:
        found = of_seeds(differences[:n])
        return found if items is None else with_text(found, items._replace(influence_SC=items.influence_SC[:n]))

    return evidence


def of_runs(history: History, yardstick: str, a: Runs, b: Runs) -> Evidence:
    """The same of all pairs of runs that are worth something."""
    values = worth(history, a, yardstick), worth(history, b, yardstick)
    return evidence_of(history, yardstick, a, b, *values)(len(values[0].keys() & values[1].keys()))


def _items(history: History, yardstick: str, a: Sequence[TrialHistory], b: Sequence[TrialHistory]) -> Items | None:
    """What each document does to the differences of runs, seed by seed."""
    scores: list[ItemScores] = []
    for run in (*a, *b):
        found = _scores(history, yardstick, run)
        if found is None:
            return None
        scores.append(found)
    found_SI = influences(scores)
    difference_SI = found_SI.influence_SI[: len(a)] - found_SI.influence_SI[len(a) :]
    return _units(scores[0], difference_SI)


def of_differences(
    history: History, yardstick: str, runs: Runs, differences: Mapping[int, float], fixed: ItemScores | None
) -> Evidence:
    """Evidence of runs' differences, by seed, to a fixed value whose items are ``fixed``; without these, of seeds."""
    seeds = sorted(differences)
    found = of_seeds([differences[seed] for seed in seeds])
    scores = [own for seed in seeds if (own := _scores(history, yardstick, runs[seed])) is not None]
    if fixed is None or len(scores) < len(seeds):
        return found
    influence_SI = influences([*scores, fixed]).influence_SI
    items = _units(fixed, influence_SI[:-1] - influence_SI[-1])
    return found if items is None else with_text(found, items)


def _scores(history: History, yardstick: str, run: TrialHistory) -> ItemScores | None:
    """Of a run that is worth something: a completed one's, by the scorer that its objective implies; those of its arm's
    untrained model, where it diverged."""
    if run.outcome == "diverged":
        before = untrained(history, run.arm)
        known = {} if before is None or history.folder is None else read_floors(history.folder, before)
        return known.get((yardstick, "untrained"))
    own = {} if history.folder is None else read_items(history.folder, run)
    return own.get((yardstick, run.measures[-1].scorer or ""))


def _units(scores: ItemScores, influence_SI: NDArray[np.float64]) -> Items | None:
    """None where a language has too few units of text, or a few that outweigh the others."""
    found = by_cluster(influence_SI, scores.units, scores.language_I.tolist(), scores.weight_I)
    return found if found.effective_L.min() >= FEWEST_UNITS else None
