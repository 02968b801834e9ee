"""Ends a local cluster when its owner asks or is gone: ``python watchdog.py MARK FOLDER`` waits on its input.

The owner holds the other end of the pipe, so its death, even by ``kill -9``, is an end of file here. A
cluster's processes are those whose environment holds its mark: Ray's daemons leave their parents and their process
groups, but every process inherits the environment of the ``ray start`` it came from.
"""

import shutil
import sys
import time

import ray  # noqa: F401 - first, as it puts the psutil that it brings on the path

# isort: split
import psutil  # type: ignore[import-untyped, import-not-found, unused-ignore]

MARK_VARIABLE = "H2H_LOCAL_CLUSTER"

_GRACE_SECONDS = 3.0


def marked(mark: str) -> list[psutil.Process]:
    """The living processes whose environment holds the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK_VARIABLE) == mark:
                found.append(process)
        except (psutil.Error, OSError):  # gone meanwhile, a zombie, or another user's: not ours
            continue
    return found


def end(mark: str) -> None:
    """End the marked processes: politely, so that drivers save what they have, then for good."""
    _signal(marked(mark), "terminate")
    deadline = time.monotonic() + _GRACE_SECONDS
    while (remaining := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while remaining:  # again, as a dying autoscaler or raylet may just have started one more
        _signal(remaining, "kill")
        time.sleep(0.1)
        remaining = marked(mark)


def _signal(processes: list[psutil.Process], method: str) -> None:
    for process in processes:
        try:
            getattr(process, method)()
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    sys.stdin.read()
    end(sys.argv[1])
    shutil.rmtree(sys.argv[2], ignore_errors=True)
