"""An S3 server of this machine, and a way to it that fails as networks do."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, Self, get_args

from orchestrator.execution.privacy import free_port

Fault = Literal["cut", "refuse", "hang", "slow"]
FAULTS: tuple[Fault, ...] = get_args(Fault)

BUCKET = "bucket"
_CHUNK_BYTES = 1 << 16
_SLOW_BYTES, _SLOW_SECONDS = 4096, 0.25  # pieces, and the pause after each: 16 KiB a second
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing says that the connection is broken, not that it has ended


@contextmanager
def s3_server() -> Iterator[int]:
    """Its port, while it runs; it has a bucket."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT"))
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait()


def variables(port: int) -> dict[str, str]:
    """The environment of a process that reaches such a server."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextmanager
def environment(port: int) -> Iterator[None]:
    """This process reaches the server."""
    before = {name: os.environ.get(name) for name in variables(port)}
    os.environ.update(variables(port))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Way:
    """Hands on what goes to a server of this machine and comes from it, unless it is told to fail.

    ``cut``: connections break, those that there are and, some bytes on, each new one. ``refuse``: they break, and
    nobody listens. ``hang``: connections are taken, and nothing comes or goes; when that ends, what was held back goes
    on its way, also what nobody waits for any more. ``slow``: some bytes at a time.
    """

    def __init__(self, server: int) -> None:
        self._server, self.port = server, free_port()
        self._fault: Fault | None = None
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._listener = self._listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.fail("refuse")

    def fail(self, fault: Fault) -> None:
        """From now on, until it heals."""
        with self._changed:
            self._fault = fault
            self._changed.notify_all()
        if fault == "refuse":
            _shut(self._listener)
        if fault in ("cut", "refuse"):
            self._break_all()

    def heal(self) -> None:
        """It works again."""
        with self._changed:
            failed, self._fault = self._fault, None
            self._changed.notify_all()
        if failed == "refuse":
            self._listener = self._listen()

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # it was closed
            while True:
                near, _ = listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._server))
        except OSError:
            near.close()
            return
        with self._changed:
            self._open |= {near, far}
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._hand_on, args=(source, target), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._pass(data, target)
        for side in (source, target):
            _shut(side)
        with self._changed:
            self._open -= {source, target}

    def _pass(self, data: bytes, target: socket.socket) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._fault != "hang")
            fault = self._fault
        if fault == "cut":
            target.sendall(data[: len(data) // 2])  # the middle of a request is the worst place
            self._break_all()
        elif fault == "slow":
            for start in range(0, len(data), _SLOW_BYTES):
                target.sendall(data[start : start + _SLOW_BYTES])
                time.sleep(_SLOW_SECONDS)
        else:
            target.sendall(data)

    def _break_all(self) -> None:
        with self._changed:
            broken, self._open = self._open, set()
        for side in broken:
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            _shut(side, socket.SHUT_RD)


def _shut(side: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Close it, also where a thread reads from it."""
    with suppress(OSError):
        side.shutdown(how)
    side.close()
