"""Records of a made-up study and its runs."""

from __future__ import annotations

import json

MASKED = {"headless": {"objective": "headless_mlm", "task": "masked", "headless": True},
          "vanilla": {"objective": "mlm", "task": "masked", "headless": False}}  # fmt: skip
NOISE = (0.001, -0.002, 0.003, 0.0, -0.001, 0.002)


def study(arms=MASKED, seeds=6, margin=0.005):
    return {
        "kind": "study", "time": 0.0, "name": "s", "question": "?", "arms": arms,
        "seeds": seeds, "margin": margin, "protocol": {"seed": -1},
        "budget": {"unit": "tokens", "amount": 2e6}, "search_budget": 4.0,
        "yardsticks": {"primary": "accuracy", "others": ["mrr"]},
    }  # fmt: skip


def run(arm, seed, score, *, outcome="completed", phase="confirm", configuration=None, speed=1.0, evaluations=2):
    """One run's records: ``evaluations`` of them, the yardstick growing in a straight line."""
    configuration = configuration or {"learning_rate": 0.001}
    same = {"phase": phase, "arm": arm, "trial": f"{phase}-{arm}-{seed}-{json.dumps(configuration)}",
            "attempt": 1, "time": 1.0}  # fmt: skip
    yield {"kind": "trial", **same, "number": seed, "seed": seed, "configuration": configuration, "start_step": 0}
    for step in range(1, evaluations + 1):
        share = step / evaluations
        value = {"overall": score * share, "languages": {"en": score * share, "fr": 0.5 * score * share}}
        spent = {"tokens": 2e6 * share, "flops": 1e12 * share, "device_seconds": 100 * share / speed}
        yield {"kind": "measure", **same, "step": step, "progress": share, "spent": spent, "loss": 1.0,
               "yardsticks": {"accuracy": value, "mrr": value}}  # fmt: skip
    if outcome is not None:
        yield {"kind": "end", **same, "outcome": outcome, "reason": "" if outcome == "completed" else "told so"}


def around(level: float, noise=NOISE) -> tuple[float, ...]:
    return tuple(level + n for n in noise)
