"""What the benchmarks share: fair timing, peak memory, and where their figures go."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def hardware(device: str) -> str:
    """Name of a GPU, or of the processor with the cores that this process may use."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{names[0] if names else platform.processor() or platform.machine()}, {cores} cores"


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of those of these packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def interleaved_milliseconds(
    runs: Mapping[str, Callable[[], object]], device: str, seconds: float = 5.0, least_rounds: int = 5
) -> dict[str, float]:
    """Median time of each of several things, measured in turns: a ratio of two is of one stretch of time.

    Args:
        runs: what to time, by name.
        device: "cpu", or "cuda" to wait for the GPU before a clock is read.
        seconds: how long to go on, for all of them together.
        least_rounds: but at least so often, in an order reversed from round to round, after one run unmeasured.
    """

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    order, end = list(runs), time.perf_counter() + seconds
    while len(times[order[0]]) < least_rounds or time.perf_counter() < end:
        for name in order:
            wait()
            start = time.perf_counter()
            runs[name]()
            wait()
            times[name].append(1e3 * (time.perf_counter() - start))
        order.reverse()
    return {name: statistics.median(values) for name, values in times.items()}


def peak_bytes(device: str, prepare: Callable[..., Callable[[], object]], *arguments: Any) -> int:
    """Most memory that a run needs beyond what was there before it.

    On a CPU: peak resident memory in a fresh process, where every large tensor is mapped and unmapped by itself, so
    that memory freed by one is not counted again for the next. The run before it is not counted, so neither are the
    buffers that libraries make once.

    Args:
        device: "cpu" or "cuda".
        prepare: makes what is to be run; a function of a module, as it is called in the fresh process.
        arguments: its own.
    """
    if device == "cuda":
        run = prepare(*arguments)
        run()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    kept = os.environ.get("MALLOC_MMAP_THRESHOLD_")
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # glibc's; set, it does not grow by itself
    try:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_peak_resident_bytes, (prepare, *arguments))
    finally:
        del os.environ["MALLOC_MMAP_THRESHOLD_"]
        if kept is not None:
            os.environ["MALLOC_MMAP_THRESHOLD_"] = kept


def _peak_resident_bytes(prepare: Callable[..., Callable[[], object]], *arguments: Any) -> int:
    run = prepare(*arguments)
    run()
    if not Path("/proc/self/clear_refs").exists():  # not Linux: the peak so far cannot be reset
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run()
        return unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM to VmRSS
    before = _status_bytes("VmRSS")
    run()
    return max(0, _status_bytes("VmHWM") - before)  # the kernel's counts are rounded


def _status_bytes(key: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


def command_line(description: str | None, quick: str) -> argparse.ArgumentParser:
    """A benchmark's arguments: ``--quick``, and what it adds.

    Args:
        description: the module's docstring.
        quick: what is smaller then.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{quick}; nothing is recorded")
    return parser


def publish(name: str, device: str, result: dict[str, Any], *, quick: bool) -> None:
    """Print the figures as the last line, and record them unless it was quick."""
    if quick:
        print(json.dumps(result))
    else:
        record(name, device, result)


def record(name: str, device: str, result: dict[str, Any]) -> None:
    """Write a benchmark's figures to ``results/NAME-HARDWARE.json`` and print them as the last line."""
    slug = re.sub(r"[^a-z0-9]+", "-", hardware(device).lower()).strip("-")
    head = {
        "benchmark": f"python benchmarks/{name}.py",
        "hardware": hardware(device),
        "versions": versions("torch", "triton", "transformers", "liger-kernel", "numpy", "optuna"),
        "date": date.today().isoformat(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}-{slug}.json").write_text(json.dumps(head | result, indent=2) + "\n")
    print(json.dumps(head | result))
