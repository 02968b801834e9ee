"""The ledger of a made-up study, whole: what the dashboard and the results are shown on."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache

from orchestrator.analysis.compare import compare
from orchestrator.ledger.history import History
from orchestrator.ledger.records import (
    BegunRecord,
    ComparisonRecord,
    EndRecord,
    MeasureRecord,
    Record,
    ResourcesRecord,
    StudyRecord,
    TrainingPhase,
    TrialRecord,
)
from tests.helpers.ledgers import MASKED, begun, changed, end, event, measure, phase, spent, study, trial
from trainables.evaluation import Score
from trainables.training.config import Unit

TOKENS = 2_000_000
"""The budget of a trial."""

START = 1_700_000_000.0
"""Time of the first record, seconds since the epoch."""

LEVEL = {"headless": 0.41, "vanilla": 0.37}
"""Where an arm's accuracy ends, but for its configuration and its seed."""

FLOPS_PER_TOKEN = {"headless": 1.1e6, "vanilla": 1.7e6}
TOKENS_PER_SECOND = {"headless": 9100.0, "vanilla": 6400.0}
REPORTS, RUNGS = 12, (4, 8)


@cache
def records(seeds: int = 6, num_search: int = 9) -> tuple[Record, ...]:
    """The ledger of a whole study, in order; the same at every call."""
    clock, history, whole = START, History(), list[Record]()
    for record in _timeless(seeds, num_search):
        clock += 5.0 if isinstance(record, MeasureRecord) else 0.5
        fields = {"time": round(clock, 3)}
        if isinstance(record, ComparisonRecord):
            fields["comparison"] = compare(history).to_json()
        whole.append(record.model_copy(update=fields))
        history.apply(whole[-1])
    return tuple(whole)


def the_study(seeds: int = 6) -> StudyRecord:
    return study(
        name="headless-vs-vanilla",
        question="Does headless pretraining recover tokens better at the same compute?",
        search_budget=6.0,
        seeds=seeds,
        primary="recovery_accuracy",
        others=("recovery_mrr",),
    )


def _timeless(seeds: int, num_search: int) -> Iterator[Record]:
    yield the_study(seeds)
    yield phase("prepare", "begin")
    yield event("tokenizer trained: unigram, 32k tokens, 3 languages")
    yield phase("prepare", "end")
    yield ResourcesRecord(cluster={"CPU": (8, 16), "GPU": (4, 4)})
    phases: tuple[tuple[TrainingPhase, int], ...] = (("search", num_search), ("confirm", seeds))
    for name, count in phases:
        yield phase(name, "begin")
        yield from _at_once([_trial(name, arm, number) for number in range(count) for arm in MASKED], 4)
        yield phase(name, "end")
    yield phase("compare", "begin")
    yield ComparisonRecord(comparison={})
    yield phase("compare", "end")


def _at_once(trials: Iterable[Iterator[Record]], most: int) -> Iterator[Record]:
    """Records of trials that run ``most`` at a time, the next beginning where one ends."""
    waiting = deque(trials)
    running: deque[Iterator[Record]] = deque()
    while waiting or running:
        if waiting and len(running) < most:
            running.append(waiting.popleft())
        one = running.popleft()
        if (record := next(one, None)) is not None:
            yield record
            running.append(one)


def _trial(name: TrainingPhase, arm: str, number: int) -> Iterator[Record]:
    chance = random.Random(f"{name} {arm} {number}")
    learning_rate = 6e-4 if name == "confirm" else 10 ** chance.uniform(-4, -2.5)
    configuration = {"learning_rate": learning_rate, "warmup_share": 0.06}
    if MASKED[arm].headless:
        configuration["temperature"] = 0.07
    begin = trial(name, arm, number, configuration=dict(configuration), amount=TOKENS)
    overhead = {"startup": 1.5, "compile": 0.0, "data_wait": 0.1, "evaluation": 0.0, "checkpoint": 0.0}
    yield begin
    yield begun(begin, overhead={"startup": 1.5})
    final = LEVEL[arm] - 0.1 * (math.log10(learning_rate) + 3.2) ** 2 + chance.gauss(0, 0.004)
    for report in range(1, REPORTS + 1):
        progress = report / REPORTS
        accuracy = final * (1 - math.exp(-4 * progress))
        scores = {
            yardstick: Score(overall=value, languages={"en": value + 0.03, "fr": value, "sw": value - 0.03})
            for yardstick, value in (("recovery_accuracy", accuracy), ("recovery_mrr", accuracy + 0.09))
        }
        tokens = TOKENS * progress
        seconds = tokens / TOKENS_PER_SECOND[arm] * chance.uniform(0.98, 1.02)
        flops = tokens * FLOPS_PER_TOKEN[arm]
        amounts: dict[Unit, float] = {"tokens": tokens, "steps": report * 10, "flops": flops, "hardware_flops": flops}
        yield measure(
            begin,
            report * 10,
            progress,
            spent=spent(**amounts, device_seconds=seconds, wall_seconds=seconds),
            overhead=overhead | {"evaluation": 0.2 * report, "checkpoint": 0.1 * report},
            loss=7 * math.exp(-progress) + chance.gauss(0, 0.05),
            learning_rate=learning_rate * (1 - progress),
            mix={"en": report * 100, "fr": report * 70, "sw": report * 40},
            rung=RUNGS.index(report) if report in RUNGS else None,
            scores=scores if report % 2 == 0 else {},
        )
        if name == "search" and report in RUNGS and final < LEVEL[arm] - 0.01 * (RUNGS.index(report) + 1):
            yield end(begin, "pruned", f"rung {RUNGS.index(report)}")
            return
        if name == "search" and number == 5 and arm == "vanilla" and report == 3:
            yield event(f"{begin.trial} failed: the loss is not a number")
            yield end(begin, "diverged", "the loss is not a number")
            return
    yield end(begin)


def with_branches(share: float = 0.5, diverged: str = "") -> list[Record]:
    """The study with a branch of each confirmation run, which has the same reports.

    Args:
        share: of the budget, at which the branches are compared.
        diverged: last digits of the numbers of the runs whose branches diverge.
    """
    answered = next(i for i, r in enumerate(records()) if isinstance(r, ComparisonRecord))
    whole = list(records()[:answered])
    for record in records()[:answered]:
        if isinstance(record, TrialRecord | BegunRecord | MeasureRecord | EndRecord) and record.phase == "confirm":
            fields: dict[str, object] = {"phase": "anytime", "trial": record.trial.replace("confirm", "anytime")}
            if isinstance(record, TrialRecord):
                fields |= {"share": share}
            if isinstance(record, EndRecord) and record.trial[-1] in diverged:
                fields |= {"outcome": "diverged"}
            whole.append(changed(record, **fields))
    comparison = compare(History.of(whole)).to_json()
    return [*whole, changed(records()[answered], comparison=comparison), *records()[answered + 1 :]]
