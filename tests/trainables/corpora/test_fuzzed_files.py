"""Whatever a file holds, reading it gives documents or an InputError: no other error, no hang, no signal, no flood.

``H2H_FUZZ`` is the number of cases, ``H2H_FUZZ_SEED`` their seed; a case is named by both.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import psutil

from tests.helpers.fuzzed_files import run_cases

CASES = int(os.environ.get("H2H_FUZZ", 60))
SEED = int(os.environ.get("H2H_FUZZ_SEED", 0))
MOST_SECONDS = 10.0
MOST_KILOBYTES = 1 << 20


def test_fuzzed_files(tmp_path: Path) -> None:
    failures: list[str] = []
    outcomes: Counter[str] = Counter()
    first = 0
    while first < CASES:
        first = run(first, tmp_path / str(first), failures, outcomes)
    print(dict(outcomes))
    assert not failures, "\n\n".join(failures)
    assert outcomes["refused"] > 0.2 * CASES
    assert outcomes["read"] > 0.1 * CASES


def run(first: int, folder: Path, failures: list[str], outcomes: Counter[str]) -> int:
    """Run cases from ``first`` on until one ends its process, or all are done; the number of the next."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_cases, args=(SEED, first, CASES, folder, sender))
    process.start()
    sender.close()
    number, name, start_kilobytes = first, "start", 0
    try:
        while True:
            if not answers(receiver, process, name):
                failures.append(f"case {SEED}/{number} {name}: a hang")
                return number + 1
            try:
                number, what, detail = receiver.recv()
            except EOFError:
                process.join()
                failures.append(f"case {SEED}/{number} {name}: ended with {process.exitcode}")
                return number + 1
            if what == "end":
                return number
            if what == "begin":
                name = detail
                continue
            if what not in ("read", "refused"):
                failures.append(f"case {SEED}/{number} {name}: {what}")
                what = "failed"
            outcomes.update([what, f"{name} {what}"])
            start_kilobytes = start_kilobytes or detail
            if detail - start_kilobytes > MOST_KILOBYTES:
                failures.append(f"case {SEED}/{number} {name}: {detail - start_kilobytes} KB over the start")
                return number + 1
    finally:
        process.kill()
        process.join()


def answers(receiver: Connection, process: SpawnProcess, name: str) -> bool:
    """Whether the process says something before it has computed, or waited, for too long."""
    watched = psutil.Process(process.pid)
    began, begun = time.monotonic(), computed_seconds(watched)
    while not receiver.poll(0.5):
        seconds = MOST_SECONDS if name != "start" else 6 * MOST_SECONDS  # it imports everything first
        if computed_seconds(watched) - begun > seconds or time.monotonic() - began > 12 * seconds:
            return False
    return True


def computed_seconds(process: psutil.Process) -> float:
    """A machine that is busy with something else makes no hang."""
    times = process.cpu_times()
    return float(times.user + times.system)
