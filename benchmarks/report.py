"""How long the report of a large study takes, and how large it is: 12 seeds, 3 arms, 200 trials.

``report_seconds`` is the whole of ``h2h report`` in a fresh process, Python's own start included; the least of three.

    python benchmarks/report.py [--quick]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import command_line, publish
from serve import ARMS, study, trial

from orchestrator.ledger.records import ArmDesign, PhaseRecord, Record
from orchestrator.ledger.segments import LedgerWriter
from trainables.storage import Location

ALL_ARMS = ARMS | {"restored": ArmDesign(objective="headless_mlm", task="masked", headless=True)}
SEEDS, TRIALS = 12, 200


def written() -> Iterator[Record]:
    """A study that has come to its end."""
    large = study()
    design = large.design.model_copy(update={"arms": ALL_ARMS, "seeds": SEEDS})
    yield large.model_copy(update={"design": design})
    yield PhaseRecord(phase="search", status="begin")
    for number in range(TRIALS - SEEDS * len(ALL_ARMS)):
        yield from trial("search", list(ALL_ARMS)[number % len(ALL_ARMS)], number, 10)
    yield PhaseRecord(phase="search", status="end")
    yield PhaseRecord(phase="confirm", status="begin")
    for seed in range(SEEDS):
        for arm in ALL_ARMS:
            yield from trial("confirm", arm, seed, 4)
    yield PhaseRecord(phase="confirm", status="end")
    yield PhaseRecord(phase="compare", status="begin")
    yield PhaseRecord(phase="compare", status="end")


def measured(storage: Path, repeats: int) -> dict[str, Any]:
    """Ask for the report of such a study."""
    folder, page = storage / "large", storage / "report.html"
    folder.mkdir()
    (folder / "study.yaml").write_text("name: large\n")
    writer = LedgerWriter(Location(folder / "ledger"))
    for record in written():
        writer.append(record)
    writer.close()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        command = [sys.executable, "-m", "orchestrator.cli", "report", str(folder), "--out", str(page), "--quiet"]
        subprocess.run(command, check=True)
        seconds.append(time.perf_counter() - start)
    return {"report_seconds": min(seconds), "report_mb": page.stat().st_size / 2**20, "trials": TRIALS}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run it, and publish its figures."""
    quick = command_line(__doc__, "once").parse_args(arguments).quick
    with tempfile.TemporaryDirectory() as storage:
        result = measured(Path(storage), 1 if quick else 3)
    publish("report", "cpu", result, quick=quick)
    return result


if __name__ == "__main__":
    main()
