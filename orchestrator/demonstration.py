"""A made-up study's ledger: for the dashboard's demonstration and for whoever wants to see the records."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Iterator

from orchestrator.ledger.segments import Record

TOKENS = 2_000_000
"""The budget of a trial."""

START = 1_700_000_000.0
"""Time of the first record, seconds since the epoch."""

ARMS = {
    "headless": {"objective": "headless_mlm", "task": "masked", "headless": True},
    "vanilla": {"objective": "mlm", "task": "masked", "headless": False},
}
LEVEL = {"headless": 0.41, "vanilla": 0.37}
"""Where an arm's accuracy ends, but for its configuration and its seed."""

FLOPS_PER_TOKEN = {"headless": 1.1e6, "vanilla": 1.7e6}
TOKENS_PER_SECOND = {"headless": 9100.0, "vanilla": 6400.0}
REPORTS, RUNGS = 12, (4, 8)


def records(seeds: int = 6, num_search: int = 9) -> Iterator[Record]:
    """The ledger of a whole study, in order; the same at every call."""
    clock = START
    for record in _timeless(seeds, num_search):
        clock += 5.0 if record["kind"] == "measure" else 0.5
        yield {"time": round(clock, 3), **record}


def _timeless(seeds: int, num_search: int) -> Iterator[Record]:
    yield {
        "kind": "study",
        "name": "headless-vs-vanilla",
        "question": "Does headless pretraining recover tokens better at the same compute?",
        "digest": "0" * 16,
        "budget": {"unit": "tokens", "amount": float(TOKENS)},
        "search_budget": 6.0,
        "arms": ARMS,
        "seeds": seeds,
        "margin": 0.005,
        "yardsticks": {"primary": "recovery_accuracy", "others": ["recovery_mrr"]},
        "versions": {},
        "machine": {},
        "folder": "studies/headless-vs-vanilla",
    }
    yield {"kind": "phase", "phase": "prepare", "status": "begin"}
    yield {"kind": "event", "message": "tokenizer trained: unigram, 32k tokens, 3 languages"}
    yield {"kind": "phase", "phase": "prepare", "status": "end"}
    yield {"kind": "resources", "cluster": {"CPU": [8, 16], "GPU": [4, 4]}}
    for phase, count in (("search", num_search), ("confirm", seeds)):
        yield {"kind": "phase", "phase": phase, "status": "begin"}
        yield from _at_once([_trial(phase, arm, number) for number in range(count) for arm in ARMS], 4)
        yield {"kind": "phase", "phase": phase, "status": "end"}
    yield {"kind": "phase", "phase": "compare", "status": "begin"}
    yield {"kind": "comparison"}
    yield {"kind": "phase", "phase": "compare", "status": "end"}


def _at_once(trials: Iterable[Iterator[Record]], most: int) -> Iterator[Record]:
    """Records of trials that run ``most`` at a time, the next beginning where one ends."""
    waiting = deque(trials)
    running: deque[Iterator[Record]] = deque()
    while waiting or running:
        if waiting and len(running) < most:
            running.append(waiting.popleft())
        trial = running.popleft()
        if (record := next(trial, None)) is not None:
            yield record
            running.append(trial)


def _trial(phase: str, arm: str, number: int) -> Iterator[Record]:
    chance = random.Random(f"{phase} {arm} {number}")
    learning_rate = 6e-4 if phase == "confirm" else 10 ** chance.uniform(-4, -2.5)
    configuration: dict[str, float] = {"learning_rate": learning_rate, "warmup_share": 0.06}
    if ARMS[arm]["headless"]:
        configuration["temperature"] = 0.07
    same = {"phase": phase, "arm": arm, "trial": f"{phase}-{arm}-{number:03d}", "attempt": 1}
    overhead = {"startup": 1.5, "compile": 0.0, "data_wait": 0.1, "evaluation": 0.0, "checkpoint": 0.0}
    yield {
        "kind": "trial",
        **same,
        "number": number,
        "configuration": configuration,
        "seed": number,
        "start_step": 0,
        "workers": 1,
    }
    end = LEVEL[arm] - 0.1 * (math.log10(learning_rate) + 3.2) ** 2 + chance.gauss(0, 0.006)
    for report in range(1, REPORTS + 1):
        progress = report / REPORTS
        accuracy = end * (1 - math.exp(-4 * progress))
        yardsticks = {
            name: {"overall": value, "languages": {"en": value + 0.03, "fr": value, "sw": value - 0.03}}
            for name, value in (("recovery_accuracy", accuracy), ("recovery_mrr", accuracy + 0.09))
        }
        tokens = TOKENS * progress
        seconds = tokens / TOKENS_PER_SECOND[arm] * chance.uniform(0.98, 1.02)
        yield {
            "kind": "measure",
            **same,
            "step": report * 10,
            "progress": progress,
            "spent": {
                "tokens": tokens,
                "steps": report * 10,
                "flops": tokens * FLOPS_PER_TOKEN[arm],
                "hardware_flops": tokens * FLOPS_PER_TOKEN[arm],
                "device_seconds": seconds,
                "wall_seconds": seconds,
            },
            "overhead": overhead | {"evaluation": 0.2 * report, "checkpoint": 0.1 * report},
            "loss": 7 * math.exp(-progress) + chance.gauss(0, 0.05),
            "learning_rate": learning_rate * (1 - progress),
            "digest": "0" * 16,
            "mix": {"en": report * 100, "fr": report * 70, "sw": report * 40},
            "rung": RUNGS.index(report) if report in RUNGS else None,
            "yardsticks": yardsticks if report % 2 == 0 else {},
        }
        if phase == "search" and report in RUNGS and end < LEVEL[arm] - 0.01 * (RUNGS.index(report) + 1):
            yield {"kind": "end", **same, "outcome": "pruned", "reason": f"rung {RUNGS.index(report)}"}
            return
        if phase == "search" and number == 5 and arm == "vanilla" and report == 3:
            yield {"kind": "event", "message": f"{same['trial']} failed: the loss is not a number"}
            yield {"kind": "end", **same, "outcome": "diverged", "reason": "the loss is not a number"}
            return
    yield {"kind": "end", **same, "outcome": "completed", "reason": ""}
