"""The check of a study's models beside its text."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from cluster.local import LocalCluster
from orchestrator.config.files import load_study
from orchestrator.config.study import StudySpec
from orchestrator.execution.jobs import submit
from orchestrator.planning import machine, preflight
from orchestrator.planning.arm_plan import checked_plans
from orchestrator.planning.machine import Machine
from orchestrator.planning.model_check import ModelCheck
from orchestrator.study import Study
from trainables.corpora.preparation import tokenizer_sample
from trainables.errors import InputError


def demo(tmp_path: Path, *overrides: str) -> StudySpec:
    return load_study("demo", [f"storage={tmp_path}", *overrides])


def test_sound_models_say_nothing_however_often_they_are_asked(tmp_path: Path) -> None:
    with closing(ModelCheck(demo(tmp_path))) as models:
        models.require_sound()
        models.require_sound(waiting=False)


@pytest.mark.parametrize(
    "override",
    [
        "budget={flops: 1e5}",
        "model={config: {model_type: gpt2, n_embd: 77}}",
        "arms.vanilla.model={config: {model_type: gpt2, n_position: 7}}",
        "tokenizer={pretrained: ./nowhere}",
    ],
)
def test_a_refusal_is_that_of_the_plan(tmp_path: Path, override: str) -> None:
    spec = demo(tmp_path, override)
    with pytest.raises(InputError) as expected:
        checked_plans(spec)
    with closing(ModelCheck(spec)) as models, pytest.raises(InputError) as found:
        models.require_sound()
    assert vars(found.value) == vars(expected.value)


@pytest.mark.slow
@pytest.mark.parametrize(("quick", "waits"), [(1 << 22, False), (0, True)])
def test_a_tokenizer_that_takes_long_is_trained_once_the_models_are_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: int, waits: bool
) -> None:
    """On little text it is trained meanwhile."""

    def train(config: object, texts: Iterator[str]) -> NoReturn:
        assert sum(map(len, texts)) > 0
        raise LookupError("trained")

    monkeypatch.setattr(tokenizer_sample, "train_tokenizer", train)
    monkeypatch.setattr(preflight, "QUICK_CHARACTERS", quick)
    with pytest.raises(InputError if waits else LookupError):
        preflight.check_study(demo(tmp_path, "budget={flops: 1e5}"))
    assert not list(tmp_path.iterdir())


def test_its_process_ends_with_the_check(tmp_path: Path) -> None:
    with closing(ModelCheck(demo(tmp_path))) as models:
        number, folder = models._process.pid, Path(models._folder.name)
        assert psutil.pid_exists(number)
    assert not psutil.pid_exists(number)
    assert not folder.exists()


def test_its_process_ends_with_the_study_s(tmp_path: Path) -> None:
    """However that one ends."""
    code = (
        "import os; from orchestrator.config.files import load_study; "
        "from orchestrator.planning.model_check import ModelCheck; "
        "print(ModelCheck(load_study('demo'))._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(int(found.stdout)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(int(found.stdout))


@pytest.mark.slow
def test_modules_of_the_current_folder_are_none_of_its(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "tokenize", "torch"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('mine')")
    monkeypatch.chdir(tmp_path)
    with closing(ModelCheck(demo(tmp_path, f"question={'x' * 200_000}"))) as models:
        models.require_sound()


@pytest.mark.parametrize("status", [0, 3])
def test_a_check_that_breaks_off_is_no_sound_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    (tmp_path / "torch.py").write_text(f"print('mine'); raise SystemExit({status})")
    monkeypatch.syspath_prepend(str(tmp_path))
    with closing(ModelCheck(demo(tmp_path))) as models, pytest.raises(RuntimeError, match="broke off:\nmine"):
        models.require_sound()


def test_a_preparation_wants_sound_models(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="buys no training step"):
        Study("demo", [f"storage={tmp_path}", "budget={flops: 1e5}"]).prepare()


def test_what_is_not_installed_of_ray_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    for refused in (
        lambda: preflight.check_resources(demo(tmp_path, "resources.workers=2"), Machine(cpus=2, gpus=0), 0),
        lambda: preflight.check_resources(demo(tmp_path), Machine(cpus=2, gpus=1), 1),
        lambda: submit("demo", address="http://127.0.0.1:1"),
        lambda: LocalCluster(),
    ):
        with pytest.raises(InputError, match="needs all of Ray") as caught:
            refused()
        assert "headtohead[cluster]" in caught.value.remedy
    preflight.check_resources(demo(tmp_path), Machine(cpus=2, gpus=0), 0)


def test_one_device_is_told_in_the_singular(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^a trial needs 1 GPU, and there are 0"):
        preflight.check_resources(demo(tmp_path, "resources.launcher=direct"), Machine(cpus=2, gpus=0), 1)
