"""What the live page costs a machine, of a large study that is being written.

A ledger of 1,000 trials; then 20 records a second of confirmation runs: reports, of which each fourth is an evaluation,
ends, and new trials. One reader has the page's events open. ``core_share`` is the processor time of the whole process
of ``h2h serve`` over the time, from the first second of the writing on; ``lag_seconds`` from a record that an event
tells of first, a trial's beginning, until that event has come.

    python benchmarks/serve.py [--quick]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from measure import command_line, publish

from orchestrator.ledger.records import (
    ArmDesign,
    Design,
    EndRecord,
    MachineRecord,
    MeasureRecord,
    PhaseRecord,
    Record,
    StudyRecord,
    TrainingPhase,
    TrialRecord,
    YardstickDesign,
)
from orchestrator.ledger.segments import LedgerWriter
from trainables.evaluation import Score
from trainables.storage import Location

ARMS = {
    "headless": ArmDesign(objective="headless_mlm", task="masked", headless=True),
    "vanilla": ArmDesign(objective="mlm", task="masked", headless=False),
}
AMOUNT, REPORTS, RUNNING, SEEDS = 2e6, 40, 16, 200
PRIMARY, LANGUAGES = "recovery_accuracy", ("en", "fr", "sw")


def study() -> StudyRecord:
    """Of two arms."""
    design = Design(
        question="What does the live page cost?",
        seed=0,
        unit="tokens",
        amount=AMOUNT,
        confirm_amount=AMOUNT,
        search_budget=500.0,
        parallel=8,
        arms=ARMS,
        seeds=SEEDS,
        minimum_seeds=None,
        anytime=(),
        margin=0.005,
        yardsticks=YardstickDesign(primary=PRIMARY, others=("recovery_mrr",), target=None, lower_is_better=()),
    )
    return StudyRecord(
        name="large",
        folder="large",
        digest="0" * 16,
        protocol={},
        protocol_digest="0" * 16,
        design=design,
        versions={"headtohead": "0"},
        machine=MachineRecord(system="a machine", cpus=2),
        usd_per_hour=None,
    )


def trial(phase: TrainingPhase, arm: str, number: int, every: int) -> Iterator[Record]:
    """One whole run; an evaluation each so many reports."""
    chance = random.Random(f"{phase} {arm} {number}")
    name = f"{phase}-{arm}-{number:03d}"
    own: dict[str, Any] = {"phase": phase, "arm": arm, "trial": name, "attempt": 1}
    rate = 1e-3 if phase == "confirm" else chance.uniform(1e-4, 1e-2)
    yield TrialRecord(
        **own, number=number, configuration={"learning_rate": rate}, seed=number, amount=AMOUNT, start_step=0, workers=1
    )
    final = (0.41 if arm == "headless" else 0.37) + chance.gauss(0, 0.01)
    for report in range(1, REPORTS + 1):
        progress = report / REPORTS
        value = final * progress**0.3
        score = Score(overall=value, languages=dict.fromkeys(LANGUAGES, value))
        seconds, tokens = 100.0 * progress, AMOUNT * progress
        yield MeasureRecord(
            **own,
            step=report,
            progress=progress,
            spent={
                "tokens": tokens,
                "steps": report,
                "flops": 1e6 * tokens,
                "hardware_flops": 1e6 * tokens,
                "device_seconds": seconds,
                "wall_seconds": seconds,
            },
            overhead={"startup": 1.0},
            loss=7.0 - progress,
            learning_rate=rate,
            digest="0" * 16,
            mix=dict.fromkeys(LANGUAGES, report),
            rung=None,
            yardsticks={} if report % every else {PRIMARY: score, "recovery_mrr": score},
        )
    yield EndRecord(**own, outcome="completed", reason="")


def written(num_trials: int) -> Iterator[Record]:
    """What is there before: a search, and the first confirmation runs."""
    searched = int(0.9 * num_trials) // 2
    yield study()
    yield PhaseRecord(phase="search", status="begin")
    for number in range(searched):
        for arm in ARMS:
            yield from trial("search", arm, number, REPORTS // 2)
    yield PhaseRecord(phase="search", status="end")
    yield PhaseRecord(phase="confirm", status="begin")
    for number in range(num_trials // 2 - searched):
        for arm in ARMS:
            yield from trial("confirm", arm, number, 4)


def then(first: int) -> Iterator[Record]:
    """Confirmation runs side by side, one ending where another begins."""
    waiting = deque(trial("confirm", arm, number, 4) for number in range(first, SEEDS) for arm in ARMS)
    running = deque(waiting.popleft() for _ in range(RUNNING))
    while running:
        one = running.popleft()
        record = next(one, None)
        if record is not None:
            running.append(one)
            yield record
        elif waiting:
            running.append(waiting.popleft())


async def listen(address: str, came: dict[str, float], sent: list[int]) -> None:
    """Read the page's events; note when each trial was first told of."""
    base, _, token = address.partition("?token=")
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(total=None, sock_read=120)
    ) as session:
        await (await session.get(base, params={"token": token})).read()
        await (await session.get(f"{base}studies/large/")).read()
        async with session.get(f"{base}studies/large/events", read_bufsize=2**24) as events:
            async for line in events.content:
                sent.append(len(line))
                if line.startswith(b"data:"):
                    html = json.loads(line[5:])["html"]
                    for name in {part.split("<")[0] for part in html.split(">") if part.startswith("confirm-")}:
                        came.setdefault(name, time.time())


async def measured(folder: Path, num_trials: int, seconds: float, rate: float) -> dict[str, Any]:
    """Serve the study while it is written."""
    (folder / "large").mkdir()
    (folder / "large" / "study.yaml").write_text("name: large\n")
    writer = LedgerWriter(Location(folder / "large" / "ledger"))
    for record in written(num_trials):
        writer.append(record)
    command = [sys.executable, "-m", "orchestrator.cli", "serve", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert server.stdout is not None
    came: dict[str, float] = {}
    sent: list[int] = []
    asked: dict[str, float] = {}
    try:
        address = (await asyncio.to_thread(server.stdout.readline)).strip()
        began = time.monotonic()
        listening = asyncio.create_task(listen(address, came, sent))
        while not sent and not listening.done():
            await asyncio.sleep(0.1)
        first_seconds = time.monotonic() - began
        process = psutil.Process(server.pid)
        before, start, num = sum(process.cpu_times()[:2]), time.monotonic(), 0
        for record in then(num_trials // 2 - int(0.9 * num_trials) // 2):
            record = record.model_copy(update={"time": round(time.time(), 3)})
            writer.append(record)
            num += 1
            if isinstance(record, TrialRecord):
                asked[record.trial] = record.time
            if time.monotonic() - start > seconds:
                break
            await asyncio.sleep(max(0.0, start + num / rate - time.monotonic()))
        took = time.monotonic() - start
        cpu = sum(process.cpu_times()[:2]) - before
        await asyncio.sleep(2.0)
        listening.cancel()
        lags = sorted(came[name] - when for name, when in asked.items() if name in came)
        return {
            "core_share": cpu / took,
            "records_per_second": num / took,
            "first_page_seconds": first_seconds,
            "lag_seconds": lags[len(lags) // 2],
            "lag_seconds_most": lags[-1],
            "told_of": f"{len(lags)} of {len(asked)}",
            "sent_bytes_per_second": sum(sent) / took,
            "memory_mb": process.memory_info().rss / 2**20,
        }
    finally:
        server.terminate()
        server.wait()
        writer.close()


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run it, and publish its figures."""
    quick = command_line(__doc__, "few trials, for some seconds").parse_args(arguments).quick
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measured(Path(folder), 60 if quick else 1000, 12 if quick else 180, 20.0))
    publish("serve", "cpu", result, quick=quick)
    return result


if __name__ == "__main__":
    main()
