"""What a run keeps count of."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainables.training import meters
from trainables.training.meters import LoadMeter

BUSY = "import time; end = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell")
def test_own_work_is_not_others():
    """Work of another process counts, as long as it is not a child that was waited for."""
    other = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        load = LoadMeter()
        time.sleep(1.0)
        assert load.cpus() > 0.3
    finally:
        other.wait()


def test_where_the_system_does_not_tell_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(meters, "_STAT", tmp_path / "none")
    assert LoadMeter().cpus() is None
