"""Metrics of a task's field that are no means over its examples. Letters: K labels, I examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainables.tasks.config import MetricName
from trainables.tasks.examples import Example

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.tasks.prepared import TaskEntry

    Ints = NDArray[np.int64]

NOTHING = -1
"""What is told of a word that was cut off: it is wrong, and no class."""


def labels_of(examples: Sequence[Example]) -> Ints:
    """All that they have, example by example, (K,)."""
    import numpy as np

    return np.array([label for example in examples for label in example.labels], dtype=np.int64)


def right_of(examples: Sequence[Example], told_K: Ints) -> NDArray[np.float64]:
    """Of each example the share of its labels that is right, (I,)."""
    import numpy as np

    size_I = np.array([len(example.labels) for example in examples])
    is_right_K = (told_K == labels_of(examples)).astype(np.float64)
    found: NDArray[np.float64] = (
        np.bincount(np.repeat(np.arange(len(size_I)), size_I), is_right_K, len(size_I)) / size_I
    )
    return found


def metric_of(entry: TaskEntry, examples: Sequence[Example], told_K: Ints) -> float:
    """What a task's metric makes of what was told of the examples' labels."""
    return measured(entry.metric, labels_of(examples), told_K, entry.positive)


def measured(metric: MetricName, label_K: Ints, told_K: Ints, positive: int | None) -> float:
    """Matthews correlation (0 where only one class is or is told), the F1 of the positive class, or the mean F1 of the
    classes that are or are told."""
    import numpy as np
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    if metric == "accuracy":
        return float(accuracy_score(label_K, told_K))
    if metric == "matthews":
        apart = len(np.unique(label_K)) > 1 and len(np.unique(told_K)) > 1  # else scikit-learn warns, and says 0
        return float(matthews_corrcoef(label_K, told_K)) if apart else 0.0
    classes = [positive] if metric == "f1" else sorted({*label_K.tolist(), *told_K.tolist()} - {NOTHING})
    return float(f1_score(label_K, told_K, labels=classes, average="macro", zero_division=0.0))


def metric_chance(metric: MetricName, examples: Sequence[Example], positive: int | None) -> float:
    """The most that one and the same answer to all comes to."""
    import numpy as np

    label_K = labels_of(examples)
    return max(measured(metric, label_K, np.full_like(label_K, one), positive) for one in np.unique(label_K))
