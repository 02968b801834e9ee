"""Learning-rate schedules: functions of budget progress, so that a run bounded by FLOPs or seconds anneals too."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "constant"]


def learning_rate_share(progress: float, warmup: float, schedule: Schedule, floor: float) -> float:
    """Share of the peak learning rate at ``progress``.

    Args:
        progress: share of the budget that is spent, 0 to 1.
        warmup: share of the budget over which the rate rises linearly from 0 to its peak.
        schedule: how it falls from there to the end.
        floor: the share of the peak at the end (not for ``constant``).
    """
    if progress < warmup:
        return progress / warmup
    if schedule == "constant":
        return 1.0
    left = min(1.0, max(0.0, (1.0 - progress) / (1.0 - warmup)))
    shape = left if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * left))
    return floor + (1.0 - floor) * shape
