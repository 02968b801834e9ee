"""Several tests at once."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979, "A simple sequentially rejective multiple test..."): the k-th
    smallest of m is multiplied by m - k + 1, and none comes out below a smaller one's, nor above 1."""
    adjusted, floor = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        floor = max(floor, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = floor
    return adjusted
