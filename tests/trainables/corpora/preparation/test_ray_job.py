"""What a preparation's tasks on other machines know, and how they fail."""

from __future__ import annotations

import pytest

from trainables.corpora.preparation.ray_job import run_job
from trainables.errors import InputError
from trainables.object_store import Patience


def _patience(item: str) -> str:
    return f"{item} {Patience.seconds}"


def _failing(item: str) -> str:
    raise OSError(f"no answer for {item}")


def test_a_task_waits_for_the_storage_as_long_as_its_study(ray_cluster, monkeypatch):
    monkeypatch.setattr(Patience, "seconds", 123.0)
    assert list(run_job(_patience, ["a", "b"])) == ["a 123.0", "b 123.0"]


def test_a_storage_that_fails_is_told_without_a_traceback(ray_cluster, capfd):
    with pytest.raises(InputError, match="no answer for a"):
        list(run_job(_failing, ["a"]))
    assert "Traceback" not in capfd.readouterr().err
