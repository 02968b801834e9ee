"""What other users of this machine must not read or change: Ray's token, and the files of its session."""

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Ray replaces a loopback address by the machine's own, and then listens on every interface, unless told that it serves
one machine only. The variable is named after the systems where that is the default; clients need it too."""


def ensure_private_token() -> None:
    """A token that this user alone can read, where Ray looks for one: Ray's own is readable for everybody. One that is
    there keeps its content, and loses others' rights."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_hex(32))
    if file.stat().st_mode & 0o077 and file.stat().st_uid == os.getuid():
        file.chmod(0o600)


@contextmanager
def private_ray_folder() -> Iterator[str]:
    """A folder for Ray's session, to which Ray lets everybody write, inside one that only this user can enter; both are
    removed at the end. The path is short: sockets in it have names of at most 107 bytes."""
    outer = Path(tempfile.mkdtemp(prefix="h2h-", dir=os.environ.get("RAY_TMPDIR", "/tmp")))  # of mode 0700
    inner = outer / "ray"
    inner.mkdir()
    try:
        yield str(inner)
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def free_port() -> int:
    """A port of the loopback interface on which nobody listens now."""
    with socket.socket() as probe:  # the operating system's choice lies above Ray's worker ports
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
