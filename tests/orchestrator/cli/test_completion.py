"""What the shell is offered, asked as a shell asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import run_command


def offered(line: str, folder: Path) -> list[str]:
    """For the last word of a line."""
    answer = folder / "answer"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_IFS": "\n"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    command = [sys.executable, "-m", "orchestrator.cli"]
    subprocess.run(command, env={**os.environ, **asked}, check=True, capture_output=True, cwd=folder)
    return [word.strip() for word in answer.read_text().split("\n")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("h2h comp", {"compare", "completion"}),
        ("h2h plan lap", {"laptop"}),
        ("h2h run demo --set confirm.se", {"confirm.seeds="}),
        ("h2h run demo --set search.halving.r", {"search.halving.reduction=", "search.halving.rungs="}),
        ("h2h export demo --arm v", {"vanilla"}),
        ("h2h show mine search-vanilla-00", {"search-vanilla-000", "search-vanilla-001"}),
        ("h2h schema --of tria", {"trial", "trials"}),
        ("h2h evaluate demo --tasks blim", {"blimp"}),
        ("h2h completion ", {"bash", "zsh", "fish"}),
        ("h2h list m", {"mine/"}),
        ("h2h enqueue mine v", {"vanilla"}),
        ("h2h enqueue mine vanilla lear", {"learning_rate="}),
    ],
)
def test_words_are_offered(line: str, expected: set[str], tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "mine" / "trials" / f"search-vanilla-{number:03d}").mkdir(parents=True)
    (tmp_path / "mine" / "study.yaml").write_text("arms: {vanilla: {space: {dimensions: {learning_rate: {}}}}}")
    assert expected <= set(offered(line, tmp_path))


def test_flags_are_those_of_the_command(tmp_path: Path) -> None:
    flags = set(offered("h2h compare demo --", tmp_path))
    assert {"--methods", "--languages", "--json", "--quiet"} <= flags
    assert "--address" not in flags


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_sound(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    from orchestrator.cli import main

    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "h2h" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_a_shell_that_is_not_known() -> None:
    code, message = run_command("completion", "tcsh")
    assert code == 2
    assert "Valid: bash, fish, zsh" in message
