"""Learning-rate schedules: functions of budget progress, so that a run bounded by FLOPs or seconds anneals too."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "constant", "wsd"]


def learning_rate_share(
    progress: float, warmup: float, schedule: Schedule, floor: float, cooldown: float = 0.2
) -> float:
    """Share of the peak learning rate when this share of the budget is spent.

    Args:
        warmup: share of the budget over which the rate rises linearly from 0 to its peak.
        schedule: how it falls from there to the end.
            ``wsd`` (warm-up, stable, decay) stays at the peak until the cooldown, which falls as 1 - sqrt
            (arXiv 2405.18392, section 4): what came before it is part of any longer run too.
        floor: the share of the peak at the end (not for ``constant``).
        cooldown: share of the budget, its last, over which ``wsd`` falls.
    """
    if progress < warmup:
        return progress / warmup
    if schedule == "constant":
        return 1.0
    if schedule == "wsd":
        into = min(1.0, max(0.0, (progress - (1.0 - cooldown)) / cooldown))
        return floor + (1.0 - floor) * (1.0 - math.sqrt(into))
    left = min(1.0, max(0.0, (1.0 - progress) / (1.0 - warmup)))
    shape = left if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * left))
    return floor + (1.0 - floor) * shape
