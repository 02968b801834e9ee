"""What several test modules share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.helpers.ray import start_ray


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A private Ray cluster of two CPUs, one for the whole session."""
    import ray

    folder = tempfile.mkdtemp(prefix="h2h-", dir="/tmp")
    start_ray(folder)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
