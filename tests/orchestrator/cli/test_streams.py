"""Commands whose input or output is closed, or a pipe that nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.streams import StudyConsole
from orchestrator.config.files import dump_study, freeze, load_study
from tests.helpers.demonstration import records
from tests.helpers.ledgers import write_ledger

H2H = (sys.executable, "-m", "orchestrator.cli")


def closing(which: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A command that begins with a stream closed, as ``which`` says to the shell."""
    shell = ["sh", "-c", f'exec "$@" {which}', "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, check=False)


def test_an_input_that_is_closed_is_no_terminal_to_ask_on() -> None:
    done = closing("<&-", *H2H, "init")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no terminal to ask on" in done.stderr


def test_an_output_that_is_closed() -> None:
    done = closing(">&-", *H2H, "list")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_what_is_written_to_closed_errors_goes_into_no_file(tmp_path: Path) -> None:
    program = """
import os, sys
from orchestrator.cli import main
main(["schema"])
with open(sys.argv[1], "w"):
    os.write(2, b"stopping")
"""
    file = tmp_path / "file"
    done = closing("2>&-", sys.executable, "-c", program, str(file))
    assert done.returncode == 0
    assert file.read_text() == ""


@pytest.mark.parametrize("command", ["compare", "list", "show"])
def test_a_pipe_that_nobody_reads_is_no_failure(tmp_path: Path, command: str) -> None:
    write_ledger(tmp_path / "demo", records())
    (tmp_path / "demo" / "study.yaml").write_text(dump_study(freeze(load_study("demo", [f"storage={tmp_path}"]))))
    place = tmp_path if command == "list" else tmp_path / "demo"
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([*H2H, command, str(place), "--quiet"], stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_study_goes_on_when_nobody_reads_any_more() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    pipe = os.fdopen(writes, "w", buffering=1)
    console = StudyConsole(file=pipe)
    for _ in range(2):
        console.print("a trial has ended")
    assert console.quiet
