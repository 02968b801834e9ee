"""What a command need not wait for: settings, objectives and yardsticks are known without the libraries that train."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["torch", "transformers", "tokenizers", "pyarrow", "ray", "numpy"]


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("import trainables.training.config, trainables.models.config", HEAVY),
        ("from trainables.objectives import OBJECTIVES; [o.of({}) for o in OBJECTIVES]", HEAVY),
        ("from trainables.evaluation import YARDSTICKS; [y() for y in YARDSTICKS]", HEAVY),
        ("import trainables.trial", ["torch", "transformers", "tokenizers", "ray"]),
    ],
)
def test_light_imports(code, refused):
    found = f"{code}\nimport sys\nprint([name for name in {refused} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
