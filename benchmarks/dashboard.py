"""What the terminal's dashboard costs a machine, of a large study that is being written.

A ledger of 500 trials, watched by ``h2h watch`` on a terminal of 200 x 60; meanwhile 20 records a second, as in
``serve.py``. ``core_share`` is the processor time of the whole process over the time, from the first second of the
writing on.

    python benchmarks/dashboard.py [--quick]
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
from measure import command_line, publish
from serve import then, written

from orchestrator.ledger.segments import LedgerWriter
from trainables.storage import Location

COLUMNS, LINES = 200, 60
RATE = 20.0  # records a second
FIRST_FRAME_SECONDS = 120.0


def watched(folder: Path, num_trials: int, seconds: float) -> dict[str, Any]:
    """Watch the study while it is written."""
    folder.joinpath("study.yaml").write_text("name: large\n")
    writer = LedgerWriter(Location(folder / "ledger"))
    for record in written(num_trials):
        writer.append(record)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "orchestrator.cli", "watch", str(folder)]
    environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = psutil.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    drawn, deadline = Drawn(ours), time.monotonic() + FIRST_FRAME_SECONDS
    try:
        while not drawn.frames:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the dashboard drew no frame")
            time.sleep(0.1)
        time.sleep(2.0)
        before, frames = sum(process.cpu_times()[:2]), drawn.frames
        began, written_now = time.monotonic(), 0
        for record, number in zip(then(num_trials // 2 - int(0.9 * num_trials) // 2), count(1), strict=False):
            writer.append(record.model_copy(update={"time": round(time.time(), 3)}))
            written_now = number
            if time.monotonic() - began > seconds:
                break
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        took = time.monotonic() - began
        return {
            "core_share": (sum(process.cpu_times()[:2]) - before) / took,
            "frames_per_second": (drawn.frames - frames) / took,
            "records_per_second": written_now / took,
            "memory_mb": process.memory_info().rss / 2**20,
        }
    finally:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
        process.wait()
        writer.close()
        os.close(ours)


class Drawn:
    """Reads a terminal, and counts what is drawn there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self.frames = descriptor, 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                text = os.read(self._descriptor, 2**16)
            except OSError:  # the other end is closed
                return
            self.frames += text.count(b" of work")  # each frame has it once, in the line at its top


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run it, and publish its figures."""
    quick = command_line(__doc__, "few trials, for some seconds").parse_args(arguments).quick
    with tempfile.TemporaryDirectory() as folder:
        result = watched(Path(folder), 60 if quick else 500, 12 if quick else 120)
    publish("dashboard", "cpu", result, quick=quick)
    return result


if __name__ == "__main__":
    main()
