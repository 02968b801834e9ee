"""What the process that runs a study need not wait for: its trials' own processes train."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.files import dump_study, freeze, load_study
from tests.helpers.demonstration import records
from tests.helpers.ledgers import write_ledger

MODULES = [
    "orchestrator.study",
    "orchestrator.session",
    "orchestrator.planning.model_check",
    "orchestrator.planning.preflight",
    "orchestrator.execution.ray_session",
    "orchestrator.execution.beginning",
    "orchestrator.execution.tune_run",
    "orchestrator.execution.watches",
    "orchestrator.scheduling.confirmation",
    "orchestrator.scheduling.search",
    "orchestrator.reporting.corpus",
    "trainables.corpora.preparation.prepare",
]


def test_modules_of_the_studys_process_import_neither_torch_nor_transformers() -> None:
    code = (
        f"import sys, {', '.join(MODULES)}; print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", ["compare {}", "compare {} --json", "show {}", "list {}/..", "clean {}", "verify {}"]
)
def test_commands_that_read_import_neither_torch_nor_ray(command: str, tmp_path: Path) -> None:
    write_ledger(tmp_path / "s", records())
    spec = freeze(load_study("demo", [f"storage={tmp_path}"]))
    (tmp_path / "s" / "study.yaml").write_text(dump_study(spec))
    words = command.format(tmp_path / "s").split()
    heavy = ("torch", "transformers", "ray", "datasets", "sklearn", "altair")
    code = (
        f"import sys; from orchestrator.cli import main; main({words!r}); "
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
