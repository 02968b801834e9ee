"""What the process that runs a study need not wait for: its trials' own processes train."""

import subprocess
import sys

MODULES = [
    "orchestrator.study",
    "orchestrator.planning.model_check",
    "orchestrator.planning.preflight",
    "orchestrator.execution.ray_session",
    "orchestrator.execution.session",
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
