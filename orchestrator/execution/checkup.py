"""``h2h doctor``: can studies run here, and are this user's tokens for this user alone?"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from orchestrator import formatting
from orchestrator.execution.ray_session import ray_address, ray_session
from orchestrator.planning.machine import Machine
from trainables.config import Config
from trainables.errors import InputError, refusal, storage_errors
from trainables.storage import Location

State = Literal["ok", "warning", "problem"]

LEAST_FILES = 4096  # that a process may open: Ray's have many, and so do corpora of many shards
LEAST_BYTES = 2 << 30  # of disk and memory that are free
LONGEST_RAY_FOLDER = 60  # characters: Ray's sockets lie below it, and their names have 107 bytes at most

TOKEN_FILES = (
    ("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token"),
    ("HF_TOKEN_PATH", "~/.cache/huggingface/token"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "~/.config/gcloud/application_default_credentials.json"),
    ("NETRC", "~/.netrc"),
)
"""Where tokens lie: the variable that names the file, and the place without it."""


class Check(Config):
    """One thing that was looked at."""

    name: str
    state: State
    found: str
    remedy: str = ""


class Checkup(Config):
    """All that was looked at."""

    format: Literal["headtohead.doctor/1"] = "headtohead.doctor/1"
    sound: bool
    """Whether nothing is a problem."""
    checks: tuple[Check, ...]


def check_up(
    storage: Location, address: str | None = None, *, ray: bool = True, say: Callable[[str], None] = lambda _: None
) -> Checkup:
    """Look at this machine, the storage, and whether Ray starts here or answers at the ``address``; ``say`` is told
    what is looked at."""
    checks = list[Check]()
    parts: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("versions", _versions),
        ("machine", _machine),
        ("GPU", _gpu),
        ("storage", lambda: _storage(storage)),
        ("tokens", _tokens),
    ]
    if ray:
        parts.append(("Ray", lambda: _ray(address)))
    for name, look in parts:
        say(name)
        checks += look()
    return Checkup(sound=all(check.state != "problem" for check in checks), checks=tuple(checks))


def _versions() -> Iterator[Check]:
    from packaging.requirements import Requirement

    python, known = platform.python_version(), (3, 11) <= sys.version_info < (3, 14)
    remedy = "" if known else "Python 3.11, 3.12 or 3.13"
    yield Check(name="Python", state="ok" if known else "problem", found=f"{python}, {sys.executable}", remedy=remedy)
    try:
        wanted = [Requirement(line) for line in requires("headtohead") or ()]
    except PackageNotFoundError:
        yield Check(name="packages", state="warning", found="headtohead is not installed as a package", remedy=_INSTALL)
        return
    unfit, shown = list[str](), list[str]()
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            unfit.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            unfit.append(f"{requirement.name} {found} is not {requirement.specifier}")
        if requirement.name in ("ray", "torch", "transformers", "optuna"):
            shown.append(f"{requirement.name} {found}")
    state: State = "problem" if unfit else "ok"
    found = "; ".join(unfit) or f"headtohead {version('headtohead')}, {', '.join(shown)}"
    yield Check(name="packages", state=state, found=found, remedy=_INSTALL if unfit else "")


_INSTALL = "pip install -e . in the folder of headtohead"


def _machine() -> Iterator[Check]:
    yield Check(name="CPUs", state="ok", found=f"{Machine.here().cpus} for this process")
    free = _free_memory()
    if free is not None:
        yield Check(name="memory", **_enough(free, "smaller models, or a larger machine"))
    shared = Path("/dev/shm")
    if shared.is_dir():
        yield Check(
            name="shared memory", **_enough(shutil.disk_usage(shared).free, "docker run --shm-size=4g, or such")
        )
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp"))
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield Check(name="Ray's folder", state="problem", found=f"{folder}: not writable", remedy=_RAY_FOLDER)
    elif len(str(folder)) > LONGEST_RAY_FOLDER:
        yield Check(name="Ray's folder", state="problem", found=f"{folder}: too long a name", remedy=_RAY_FOLDER)
    else:
        yield Check(name="Ray's folder", **_enough(shutil.disk_usage(folder).free, _RAY_FOLDER, f"{folder}: "))
    files = _open_files()
    if files is not None:
        few = files < LEAST_FILES
        remedy = f"ulimit -n {LEAST_FILES}" if few else ""
        yield Check(name="open files", state="warning" if few else "ok", found=f"{files:,} at once", remedy=remedy)
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    yield Check(
        name="C compiler",
        state="ok" if compiler else "warning",
        found=compiler or "none",
        remedy="" if compiler else "install one: GPU kernels and torch.compile need it",
    )


_RAY_FOLDER = "RAY_TMPDIR=/another/folder, with a short name"


def _enough(free_bytes: int, remedy: str, before: str = "") -> dict[str, str]:
    """A check's state, findings and remedy."""
    state = "ok" if free_bytes >= LEAST_BYTES else "warning"
    return {
        "state": state,
        "found": f"{before}{formatting.size(free_bytes)} free",
        "remedy": "" if state == "ok" else remedy,
    }


def _free_memory() -> int | None:
    """Bytes; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _gpu() -> Iterator[Check]:
    number = Machine.here().gpus
    import torch

    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if number and not usable:
        found = f"{formatting.plural(number, 'GPU')}, and torch {torch.__version__} can use none"
        remedy = "a torch with CUDA: https://pytorch.org/get-started/locally"
        yield Check(name="GPU", state="problem", found=found, remedy=remedy)
        return
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(usable))
    yield Check(name="GPU", state="ok", found=names or "none: trials run on CPUs")


_STORAGE = "--storage FOLDER, one that you may write to; in a study: storage: FOLDER"


def _storage(storage: Location) -> Iterator[Check]:
    try:
        storage.require_writable(trying=storage.local is None or storage.local.is_dir())
    except InputError as error:
        yield Check(name="storage", state="problem", found=f"{error.what}: {error.why}", remedy=_STORAGE)
        return
    except storage_errors() as error:
        told = refusal(error)
        yield Check(name="storage", state="problem", found=f"{storage}: {told.why}", remedy=told.remedy)
        return
    if storage.local is None:
        yield Check(name="storage", state="ok", found=f"{storage}: a file was written and removed")
        return
    there = next(folder for folder in (storage.local, *storage.local.parents) if folder.exists())
    yield Check(name="storage", **_enough(shutil.disk_usage(there).free, "make space there", f"{storage}: "))


def _tokens() -> Iterator[Check]:
    for variable, usual in TOKEN_FILES:
        file = Path(os.environ.get(variable) or usual).expanduser()
        try:
            mode = file.stat().st_mode & 0o777
        except OSError:  # there is none
            continue
        open_to_others = bool(mode & 0o077)
        yield Check(
            name="token",
            state="problem" if open_to_others else "ok",
            found=f"{file} is {'open to others' if open_to_others else 'for you alone'} ({mode:03o})",
            remedy=f"chmod 600 {file}" if open_to_others else "",
        )


def _ray(address: str | None) -> Iterator[Check]:
    began = time.monotonic()
    try:
        address = ray_address(address)
        with ray_session(address, Machine.here(), dashboard=False):
            import ray

            done = ray.remote(num_cpus=1)(_nothing).remote()
            ray.get(done, timeout=RAY_SECONDS)
            total = ray.cluster_resources()
    except InputError as error:
        yield Check(name="Ray", state="problem", found=f"{error.what}: {error.why}", remedy=error.remedy)
        return
    except TimeoutError:
        found = f"no CPU was free for a task within {RAY_SECONDS:.0f} s"
        yield Check(name="Ray", state="warning", found=found, remedy="see what runs there: ray status")
        return
    where = "starts on this machine" if address is None else f"answers at {address}"
    has = f"{total.get('CPU', 0):g} CPUs and {total.get('GPU', 0):g} GPUs"
    seconds = time.monotonic() - began
    yield Check(name="Ray", state="ok", found=f"{where} and ran a task, {formatting.duration(seconds)}; {has}")


RAY_SECONDS = 60.0


def _nothing() -> None:
    """A task."""
