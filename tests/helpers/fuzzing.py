"""Fuzzed inputs, tried in a process that is watched: for errors that are not ours, hangs, memory and signals.

``H2H_FUZZ`` is the number of cases of each kind, ``H2H_FUZZ_SEED`` their seed. A case is named by seed and number, and
``H2H_FUZZ_CASE`` runs that one alone.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from trainables.errors import InputError

SEED = int(os.environ.get("H2H_FUZZ_SEED", 0))
MOST_SECONDS = 10.0
MOST_KILOBYTES = 1 << 20
"""Over what the process had at its start."""
START_SECONDS = 120.0
"""To import everything, and to prepare what is to be changed."""
LEAST_SHARE = 0.05
"""Of the cases that are refused, and of those that are read."""

Case = Callable[[Path, random.Random], None]
"""Changes an input with the generator and reads it, all in the folder. An :class:`InputError` refuses the input."""


Prepare = Callable[[Path], None]
"""What a process does once, before its memory and time are watched, with a folder that stays to its end."""


class Begun(NamedTuple):
    """A case begins; the first two fields are those of every message."""

    number: int
    name: str


class Ended(NamedTuple):
    """A case has ended."""

    number: int
    outcome: str
    """``read``, ``refused``, or the traceback of an error that is not ours."""
    seconds: float
    """Computed, or waited where that is less: a machine that is busy with something else makes no hang."""
    kilobytes: int
    """Most memory so far over the start."""


@dataclass
class Outcomes:
    """What came of all cases."""

    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    longest: tuple[float, int] = (0.0, 0)
    """Seconds and number of a case."""
    largest: tuple[int, int] = (0, 0)
    """Kilobytes and number of a case."""

    def fail(self, number: int, name: str, what: str) -> None:
        self.failures.append(f"{name}: {what}\n  again: H2H_FUZZ_SEED={SEED} H2H_FUZZ_CASE={number}")
        self.counts["failed"] += 1
        print(self.failures[-1], flush=True)

    def __str__(self) -> str:
        seconds, kilobytes = self.longest, self.largest
        return (
            f"seed {SEED}: {dict(sorted(self.counts.items()))}; longest {seconds[0]:.1f} s (case {seconds[1]}), most "
            f"memory {kilobytes[0] / 1024:.0f} MB over the start (case {kilobytes[1]})"
        )


def fuzz(cases: Sequence[Case], folder: Path, default: int, prepare: Prepare | None = None) -> None:
    """Try the cases, in any mixture; a process that dies, hangs or takes too much memory is replaced.

    Args:
        cases: functions at the top of a module, one often if it is to be tried often.
        folder: for what the cases write.
        default: number of cases, where ``H2H_FUZZ`` says none.
    """
    number = int(os.environ.get("H2H_FUZZ", default))
    alone = os.environ.get("H2H_FUZZ_CASE")
    first, last = (0, number) if alone is None else (int(alone), int(alone) + 1)
    outcomes = Outcomes()
    place = first
    while place < last:
        place = _watched(tuple(cases), prepare, place, last, folder / str(place), outcomes)
    print(outcomes)
    assert not outcomes.failures, "\n\n".join(outcomes.failures)
    if last - first >= 50:  # else the changes are too mild, or too wild
        assert min(outcomes.counts["refused"], outcomes.counts["read"]) > LEAST_SHARE * number, outcomes


def _watched(
    cases: tuple[Case, ...], prepare: Prepare | None, first: int, last: int, folder: Path, outcomes: Outcomes
) -> int:
    """Run cases in a process until one ends it, or all are done; the number of the next."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(cases, prepare, SEED, first, last, folder, sender))
    process.start()
    sender.close()
    number, name = first, "start"
    try:
        while number < last:
            if not _answers(receiver, process, START_SECONDS if name == "start" else MOST_SECONDS):
                outcomes.fail(number, name, "a hang")
                return number + 1
            try:
                message: Begun | Ended = receiver.recv()
            except EOFError:
                process.join()
                assert name != "start", f"the cases could not be started: exit code {process.exitcode}"
                outcomes.fail(number, name, f"ended the process with {process.exitcode}")
                return number + 1
            if isinstance(message, Begun):
                number, name = message
                continue
            number = message.number + 1
            _take_in(outcomes, name, message)
            if message.kilobytes > MOST_KILOBYTES:
                return number
        return number
    finally:
        process.kill()
        process.join()


def _take_in(outcomes: Outcomes, name: str, ended: Ended) -> None:
    number, outcome = ended.number, ended.outcome
    outcomes.longest = max(outcomes.longest, (ended.seconds, number))
    outcomes.largest = max(outcomes.largest, (ended.kilobytes, number))
    if outcome not in ("read", "refused"):
        outcomes.fail(number, name, outcome)
    elif ended.seconds > MOST_SECONDS:
        outcomes.fail(number, name, f"took {ended.seconds:.1f} s")
    elif ended.kilobytes > MOST_KILOBYTES:
        outcomes.fail(number, name, f"took {ended.kilobytes} KB")
    else:
        outcomes.counts.update([outcome, f"{name} {outcome}"])


def _answers(receiver: Connection, process: SpawnProcess, seconds: float) -> bool:
    """Whether the process says something before it has computed for so long, or waited for twelve times as long."""
    watched = psutil.Process(process.pid)
    began, begun = time.monotonic(), _computed_seconds(watched)
    while not receiver.poll(0.5):
        if _computed_seconds(watched) - begun > seconds or time.monotonic() - began > 12 * seconds:
            return False
    return True


def _computed_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _run(
    cases: tuple[Case, ...], prepare: Prepare | None, seed: int, first: int, last: int, folder: Path, report: Connection
) -> None:
    """In a process of its own: says when each case begins and what came of it."""
    if prepare is not None:
        (folder / "shared").mkdir(parents=True)
        prepare(folder / "shared")
    start = _most_kilobytes()
    for number in range(first, last):
        generator = random.Random(f"{seed}/{number}")
        case = generator.choice(cases)
        own = folder / str(number)
        own.mkdir(parents=True)
        report.send(Begun(number, case.__name__))
        began, computed = time.monotonic(), time.process_time()
        outcome = _outcome(case, own, generator)
        seconds = min(time.monotonic() - began, time.process_time() - computed)
        report.send(Ended(number, outcome, seconds, _most_kilobytes() - start))
        shutil.rmtree(own)


def _outcome(case: Case, folder: Path, generator: random.Random) -> str:
    try:
        case(folder, generator)
    except InputError as error:
        try:
            require_readable(error)
        except AssertionError:
            return traceback.format_exc()
        return "refused"
    except BaseException:  # noqa: BLE001 -- whatever it is, it is what is looked for
        return traceback.format_exc()
    return "read"


def try_all(steps: Iterable[Callable[[], object]]) -> None:
    """Each may refuse the input, and all are tried. Raises InputError: the first refusal."""
    errors = []
    for step in steps:
        try:
            step()
        except InputError as error:
            require_readable(error)
            errors.append(error)
    if errors:
        raise errors[0]


def places_in(content: Any) -> list[tuple[Any, Any]]:
    """Every list or dictionary in JSON, with each of its positions or keys."""
    places: list[tuple[Any, Any]] = []
    waiting = [content]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else list(range(len(item))) if isinstance(item, list) else []
        places += [(item, key) for key in keys]
        waiting += [item[key] for key in keys]
    return places


def require_readable(error: InputError) -> None:
    """It is a message for a person at a terminal, not the file that it is about."""
    text = str(error)
    assert all(character.isprintable() or character in "\n\t" for character in text), repr(text)
    assert len(text) < 10_000, "a message, not the file"
    text.encode()


def _most_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
