"""What a study cannot do, though nothing in it is wrong."""

from __future__ import annotations

import math
from itertools import combinations

from orchestrator import formatting
from orchestrator.analysis.statistics import fewest_pairs
from orchestrator.config.confirmation import ALPHA
from orchestrator.config.study import StudySpec


def num_compared_pairs(spec: StudySpec) -> int:
    """Pairs of arms that have the same task."""
    tasks = [arm.learned.task for arm in spec.arms.values()]
    return sum(a == b for a, b in combinations(tasks, 2))


def warnings_of(spec: StudySpec) -> list[str]:
    """A sentence on each thing that the study cannot do."""
    num_pairs = num_compared_pairs(spec)
    fewest = fewest_pairs(max(num_pairs, 1))
    warnings = []
    if len(spec.arms) < 2:
        warnings.append("There is one arm, and nothing to compare it with.")
    elif not num_pairs:
        warnings.append("No two arms have the same task, masked or causal: they cannot be compared.")
    elif num_pairs < math.comb(len(spec.arms), 2):
        warnings.append("Arms of different tasks, masked and causal, are not compared with each other.")
    if num_pairs and spec.confirm.seeds < fewest:
        warnings.append(
            f"No arm can win: with {formatting.plural(spec.confirm.seeds, 'seed')} and "
            f"{formatting.plural(num_pairs, 'pair')} of arms p cannot reach {ALPHA}. "
            f"It takes {fewest}: --set confirm.seeds={fewest}"
        )
    if num_pairs and spec.confirm.top > 1:
        warnings.append(
            f"The verdict will be exploratory: of confirm.top={spec.confirm.top} configurations of an arm the best is "
            "chosen by the values that are compared."
        )
    return warnings
