"""What ``h2h doctor`` finds wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.execution import checkup
from orchestrator.execution.checkup import Check, check_up
from orchestrator.execution.privacy import free_port
from orchestrator.planning.machine import Machine
from trainables.storage import Location


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nobody's real tokens."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable, _ in checkup.TOKEN_FILES:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "home"


def found(storage: Path) -> dict[str, Check]:
    return {check.name: check for check in check_up(Location(storage), ray=False).checks}


def test_a_machine_that_is_sound(tmp_path: Path) -> None:
    report = check_up(Location(tmp_path), ray=False)
    assert report.sound
    names = [check.name for check in report.checks]
    assert {"Python", "packages", "CPUs", "GPU", "storage", "C compiler"} <= set(names)
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    assert all(bool(check.remedy) == (check.state != "ok") for check in report.checks)


def test_a_token_that_others_can_read(tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = own_home / ".cache" / "huggingface" / "token"
    token.parent.mkdir(parents=True)
    token.write_text("secret")
    token.chmod(0o644)
    assert main(["doctor", "--no-ray", "--storage", str(tmp_path)]) == 1
    out = capsys.readouterr().out.replace("\n", " ")
    assert "open to others" in out
    assert "secret" not in out
    token.chmod(0o600)
    assert main(["doctor", "--no-ray", "--storage", str(tmp_path)]) == 0


def test_a_storage_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = found(tmp_path / "file" / "studies")["storage"]
    assert check.remedy.startswith("--storage FOLDER"), "an option of this command"
    assert check.state == "problem"
    assert "cannot write" in check.found


def test_packages_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch>=99", "no-such-package>=1", "extra-only; extra == 'dev'", "numpy>=2"]
    monkeypatch.setattr(checkup, "requires", lambda name: wanted)
    check = found(tmp_path)["packages"]
    assert check.state == "problem"
    assert "torch" in check.found
    assert "no-such-package is not installed" in check.found
    assert "numpy" not in check.found
    assert "extra-only" not in check.found


def test_a_gpu_that_torch_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "here", lambda: Machine(2, 3))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check = found(tmp_path)["GPU"]
    assert check.state == "problem"
    assert "3 GPUs" in check.found


def test_a_folder_that_rays_sockets_do_not_fit_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    assert found(tmp_path)["Ray's folder"].state == "problem"


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    checks = check_up(Location(tmp_path), f"127.0.0.1:{free_port()}").checks
    assert checks[-1].name == "Ray"
    assert checks[-1].state == "problem"
    assert "no Ray cluster answers" in checks[-1].found


def test_ray_starts_here(tmp_path: Path, own_home: Path) -> None:
    """In a process of its own: this one may have Ray already."""

    command = [sys.executable, "-m", "orchestrator.cli", "doctor", "--storage", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"HOME": str(own_home)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ran a task" in " ".join(done.stdout.split())
