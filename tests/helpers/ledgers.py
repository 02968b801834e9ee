"""Records of made-up studies: a function for each kind, which fills in what a test does not care about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.ledger.protocol import protocol, protocol_digest
from orchestrator.ledger.records import (
    ArmDesign,
    AttemptOutcome,
    BegunRecord,
    CapRecord,
    Design,
    EndRecord,
    EventRecord,
    MachineRecord,
    MeasureRecord,
    Phase,
    PhaseRecord,
    Record,
    Status,
    StudyRecord,
    TrainingPhase,
    TrialRecord,
    YardstickDesign,
    to_line,
)
from search_spaces import Configuration
from trainables.evaluation import Score
from trainables.training.config import Unit
from trainables.training.state import Spent

MASKED = {
    "headless": ArmDesign(objective="headless_mlm", task="masked", headless=True),
    "vanilla": ArmDesign(objective="mlm", task="masked", headless=False),
}
NOISE = (0.001, -0.002, 0.003, 0.0, -0.001, 0.002)
AMOUNT = 2e6
"""Tokens of a run."""

MEASURED: tuple[Unit, ...] = ("tokens", "steps", "flops", "hardware_flops", "device_seconds", "wall_seconds")
"""What every machine tells."""


def design(arms: Mapping[str, ArmDesign] = MASKED, **changes: Any) -> Design:
    """Of six seeds, 1 to 6."""
    yardsticks = {
        name: changes.pop(name) for name in ("primary", "others", "target", "lower_is_better") if name in changes
    }
    fields = {
        "question": "?",
        "seed": 0,
        "unit": "tokens",
        "amount": AMOUNT,
        "confirm_amount": AMOUNT,
        "search_budget": 4.0,
        "parallel": 1,
        "arms": dict(arms),
        "seeds": 6,
        "minimum_seeds": None,
        "anytime": (),
        "margin": 0.005,
        "yardsticks": YardstickDesign(
            **{"primary": "accuracy", "others": ("mrr",), "target": None, "lower_is_better": ()} | yardsticks
        ),
    }
    return Design.model_validate(fields | changes)


def study(
    arms: Mapping[str, ArmDesign] = MASKED,
    *,
    time: float = 0.0,
    name: str = "s",
    usd_per_hour: float | None = None,
    fixed: Mapping[str, Any] | None = None,
    digest: str = "0" * 16,
    versions: Mapping[str, str] | None = None,
    of: Design | None = None,
    **of_design: Any,
) -> StudyRecord:
    """A session's beginning.

    Args:
        arms: of the design, as all further keys.
        time: of the record.
        name: the study's.
        usd_per_hour: price of a worker.
        fixed: what a frozen study's file has, of which the protocol is made.
        digest: of that file.
        versions: of the packages.
        of: the design itself, in place of its keys.
        **of_design: see :func:`design`.
    """
    content = protocol(fixed) if fixed is not None else {}
    return StudyRecord(
        time=time,
        name=name,
        folder="studies/s",
        digest=digest,
        protocol=content,
        protocol_digest=protocol_digest(content),
        design=of if of is not None else design(arms, **of_design),
        versions=dict(versions or {"headtohead": "0.1.0"}),
        machine=MachineRecord(system="a machine", cpus=2),
        usd_per_hour=usd_per_hour,
    )


def phase(name: Phase, status: Status, time: float = 1.0) -> PhaseRecord:
    return PhaseRecord(time=time, phase=name, status=status)


def event(message: str, time: float = 1.0) -> EventRecord:
    return EventRecord(time=time, message=message)


def cap(phase: TrainingPhase, seeds: int | None, message: str = "", time: float = 1.0) -> CapRecord:
    return CapRecord(time=time, message=message, phase=phase, seeds=seeds)


def trial(
    phase: TrainingPhase,
    arm: str,
    number: int,
    *,
    name: str | None = None,
    seed: int | None = None,
    configuration: Configuration | None = None,
    **fields: Any,
) -> TrialRecord:
    """An attempt, by default the first, at a trial whose seed is its number."""
    return TrialRecord(
        **{
            "time": 1.0,
            "phase": phase,
            "arm": arm,
            "trial": name or f"{phase}-{arm}-{number:03d}",
            "attempt": 1,
            "number": number,
            "configuration": configuration if configuration is not None else {},
            "seed": number if seed is None else seed,
            "amount": AMOUNT,
            "start_step": 0,
            "workers": 1,
            **fields,
        }
    )


def _of(attempt: TrialRecord, time: float | None) -> dict[str, Any]:
    keys = {key: getattr(attempt, key) for key in ("phase", "arm", "trial", "attempt")}
    return keys | {"time": attempt.time if time is None else time}


def spent(**known: float) -> Spent:
    """Nothing in every unit but those that are known."""
    return {**dict.fromkeys(MEASURED, 0.0), **known}  # type: ignore[dict-item]


def begun(attempt: TrialRecord, *, time: float | None = None, **fields: Any) -> BegunRecord:
    """The attempt's process has built the trial, with nothing spent."""
    defaults = {"step": attempt.start_step, "workers": attempt.workers, "spent": spent(), "overhead": {}}
    return BegunRecord(**_of(attempt, time) | defaults | fields)


def measure(
    attempt: TrialRecord,
    step: int,
    progress: float = 0.0,
    *,
    time: float | None = None,
    scores: Mapping[str, float | Score] | None = None,
    **fields: Any,
) -> MeasureRecord:
    """A report; ``scores`` are yardsticks, overall or with their languages."""
    yardsticks = {
        name: score if isinstance(score, Score) else Score(overall=score, languages={})
        for name, score in (scores or {}).items()
    }
    defaults: dict[str, Any] = {
        "step": step,
        "progress": progress,
        "spent": spent(tokens=progress * attempt.amount, steps=step),
        "overhead": {},
        "loss": 1.0,
        "learning_rate": 1e-3,
        "digest": "0" * 16,
        "mix": {},
        "rung": None,
        "yardsticks": yardsticks,
    }
    return MeasureRecord(**_of(attempt, time) | defaults | fields)


def end(
    attempt: TrialRecord,
    outcome: AttemptOutcome = "completed",
    reason: str = "",
    *,
    time: float | None = None,
    **fields: Any,
) -> EndRecord:
    return EndRecord(**_of(attempt, time) | {"outcome": outcome, "reason": reason} | fields)


def run(
    arm: str,
    seed: int,
    score: float,
    *,
    outcome: AttemptOutcome | None = "completed",
    phase: TrainingPhase = "confirm",
    configuration: Configuration | None = None,
    speed: float = 1.0,
    evaluations: int = 2,
    yardsticks: Sequence[str] = ("accuracy", "mrr"),
    number: int | None = None,
    **of_trial: Any,
) -> Iterator[Record]:
    """One run's records: ``evaluations`` of them, the yardsticks growing in a straight line.

    Without an outcome it still runs, without a number its seed is its number.
    """
    configuration = configuration or {"learning_rate": 0.001}
    mark = hashlib.blake2b(json.dumps(configuration, sort_keys=True).encode(), digest_size=3).hexdigest()
    fields: dict[str, Any] = {"name": f"{phase}-{arm}-{seed}-{mark}", "configuration": configuration, **of_trial}
    begin = trial(phase, arm, seed if number is None else number, seed=seed, **fields)
    yield begin
    for step in range(1, evaluations + 1):
        share = step / evaluations
        value = Score(overall=score * share, languages={"en": score * share, "fr": 0.5 * score * share})
        amounts = spent(
            tokens=begin.amount * share,
            steps=step,
            flops=1e12 * share,
            hardware_flops=1e12 * share,
            device_seconds=100 * share / speed,
            wall_seconds=100 * share / speed,
        )
        yield measure(begin, step, share, scores=dict.fromkeys(yardsticks, value), spent=amounts)
    if outcome is not None:
        yield end(begin, outcome, "" if outcome == "completed" else "told so")


def run_with_branches(arm: str, seed: int, score: float, *, speed: float = 1.0, **of_run: Any) -> Iterator[Record]:
    """A run and, if it completed, its branches, whose scores are in a straight line with its own."""
    yield from run(arm, seed, score, speed=speed, evaluations=4, **of_run)
    if of_run.get("outcome", "completed") == "completed":
        for share in (0.25, 0.5, 0.75):
            amounts = spent(tokens=AMOUNT * share, flops=1e12 * share, device_seconds=100 * share / speed)
            branch = trial("anytime", arm, seed, share=share, name=f"anytime-{arm}-{seed}-{share}")
            yield from (branch, measure(branch, 1, 1.0, scores={"accuracy": score * share}, spent=amounts), end(branch))


def around(level: float, noise: Sequence[float] = NOISE) -> tuple[float, ...]:
    return tuple(level + n for n in noise)


def changed(record: Record, **fields: Any) -> Any:
    """The record with other fields, checked like any other."""
    return type(record).model_validate(record.model_dump() | fields)


def write_ledger(folder: Path, records: Iterable[Record], segment: int = 1) -> Path:
    """Write a study's records; gives the file."""
    file = folder / "ledger" / f"{segment:06d}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        lines.writelines(map(to_line, records))
    return file
