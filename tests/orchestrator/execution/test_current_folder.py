"""Tune asks for the current folder. A job's may be gone by then: a study trains in a folder of its own."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune

from orchestrator.execution.tune_run import run_with_tune
from trainables.trial import WorkerConfig

WORKERS = WorkerConfig(launcher="direct", workers=1, cpus_per_worker=1, gpus_per_worker=0)
EXECUTOR: Any = SimpleNamespace(workers=WORKERS, concurrent_trials=1)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """The current folder: one that Ray has extracted for a job."""
    before = Path.cwd()
    folder = tmp_path / "working_dir"
    folder.mkdir()
    os.chdir(folder)
    yield folder
    os.chdir(before)


class Tuner:
    """In Tune's place."""

    lost: Path | None = None
    seen: Path | None = None

    def __init__(self, *_: object, run_config: tune.RunConfig, **__: object) -> None:
        self.storage = Path(str(run_config.storage_path))

    def fit(self) -> None:
        if Tuner.lost is not None:
            shutil.rmtree(Tuner.lost)
        Tuner.seen = Path.cwd()
        assert Tuner.seen == self.storage.resolve()
        assert stat.S_IMODE(Tuner.seen.stat().st_mode) == 0o700
        if Tuner.lost is not None and Tuner.lost.name == "broken":
            raise OSError("broken")


@pytest.mark.parametrize("when", ["never", "while it trains", "before"])
def test_tune_runs_in_a_folder_that_stays(job: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(tune, "Tuner", Tuner)
    monkeypatch.setattr(Tuner, "lost", job if when == "while it trains" else None)
    if when == "before":
        shutil.rmtree(job)
    run_with_tune(EXECUTOR)
    assert Path.cwd() == (job if when == "never" else Path.home())
    assert Tuner.seen is not None
    assert not Tuner.seen.exists(), "Tune's files are not kept: the ledger is the state"


def test_an_error_leads_back_too(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.parent / "broken").mkdir()
    monkeypatch.setattr(tune, "Tuner", Tuner)
    monkeypatch.setattr(Tuner, "lost", job.parent / "broken")
    with pytest.raises(OSError, match="broken"):
        run_with_tune(EXECUTOR)
    assert Path.cwd() == job


def test_a_notebook_that_goes_on_beside_the_study_stays_where_it_is(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what its cells save lies in a folder that goes when the study ends."""
    seen: list[Path] = []

    class Beside(Tuner):
        def fit(self) -> None:
            seen.append(Path.cwd())

    monkeypatch.setattr(tune, "Tuner", Beside)
    thread = threading.Thread(target=run_with_tune, args=(EXECUTOR,))
    thread.start()
    thread.join()
    assert seen == [job]
    assert Path.cwd() == job
