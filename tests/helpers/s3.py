"""An S3 server on the loopback."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.execution.privacy import free_port


@contextmanager
def s3_server() -> Iterator[str]:
    """URI of an empty bucket; this process and those that it starts meanwhile find the server by their environment."""
    pytest.importorskip("moto")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"))
                break
            except OSError:
                time.sleep(0.1)
        yield "s3://bucket"
    finally:
        patch.undo()
        server.terminate()
        server.wait()
