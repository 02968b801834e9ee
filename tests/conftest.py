"""What several test modules share."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest

from tests.helpers.ray import start_ray

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of what a shell starts in the background, and of its processes
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A private Ray cluster of two CPUs, one for the whole session."""
    import ray

    folder = tempfile.mkdtemp(prefix="h2h-", dir="/tmp")
    start_ray(folder)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
