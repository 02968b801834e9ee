"""The example notebook: it stands in the repository as it was executed, and runs from its first cell to its last."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Results, Study
from tests.helpers.repository import REPOSITORY

nbformat = pytest.importorskip("nbformat", reason="pip install 'headtohead[test]'")
nbclient = pytest.importorskip("nbclient", reason="pip install 'headtohead[test]'")
pytest.importorskip("ipykernel", reason="pip install 'headtohead[test]'")
NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """A client of a notebook that runs in a folder, by this Python."""
    kernels = folder / "share" / "jupyter" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    words = ", ".join(f'"{word}"' for word in launch)
    (kernels / "kernel.json").write_text(f'{{"argv": [{words}], "display_name": "Python 3", "language": "python"}}')
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share" / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    return nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources=resources, **settings)


def html_of(cell: Any) -> str:
    return "".join("".join(output.get("data", {}).get("text/html", "")) for output in cell.outputs)


def test_it_is_kept_executed() -> None:
    """Each cell has its number and no error, and the place where it ran is nobody's."""
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"execute_result", "display_data"}
    assert not re.search("/tmp|/work|/root", str(outputs))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened(tmp_path, monkeypatch)
    client.execute()
    code = [cell for cell in client.nb.cells if cell.cell_type == "code"]
    study, start, wait, trials, *_ = code
    results = Results(str(tmp_path / "studies" / "notebook"))
    assert results.history.finished
    assert "not begun" in html_of(study)
    assert "finished after" in html_of(start), "the live display came to the end"
    assert len(start.outputs) == 1
    assert results.verdict.split(":")[0] in html_of(wait)
    assert [output.output_type for output in wait.outputs] == ["execute_result"], "nothing else is printed"
    assert all(name in html_of(trials) for name in results.trials.trial)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_interrupting_the_kernel_stops_the_study_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(tmp_path, monkeypatch, allow_errors=True)
    folder = tmp_path / "studies" / "notebook"
    code = [(place, cell) for place, cell in enumerate(client.nb.cells) if cell.cell_type == "code"]

    def interrupt() -> None:
        while not list((folder / "trials").glob("*")):
            time.sleep(0.5)
        os.killpg(os.getpgid(client.km.provisioner.pid), signal.SIGINT)

    with client.setup_kernel():
        for place, cell in code[:2]:
            client.execute_cell(cell, place)
        threading.Thread(target=interrupt, daemon=True).start()
        place, wait = code[2]
        client.execute_cell(wait, place)
    (error,) = wait.outputs
    assert (error.output_type, error.ename) == ("error", "StudyInterrupted")
    (message,) = error.traceback
    assert message == f"Interrupted: it was saved; Study.open('{folder}').resume() goes on"
    history = Results(str(folder)).history
    assert history.stop == "end"
    assert not history.finished
    assert Study.open(folder).resume().history.finished
