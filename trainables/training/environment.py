"""In what a process runs: what a score may depend on beside a trial's configuration and device."""

import importlib.metadata
import platform
from pathlib import Path

from trainables.training.state import Environment

_PACKAGES = ("headtohead", "ray", "torch", "transformers", "optuna")


def versions() -> dict[str, str]:
    """Of Python and the packages that what is measured may depend on."""
    return {package: _version(package) for package in _PACKAGES} | {"python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # it came along with the job, as files
        return "not installed"


def environment() -> Environment:
    """That of this process."""
    import torch

    return Environment(versions=versions(), processor=_processor(), threads=torch.get_num_threads())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # only Linux has it
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(named, "") or platform.processor() or platform.machine()
    return name if name.isprintable() else repr(name)
