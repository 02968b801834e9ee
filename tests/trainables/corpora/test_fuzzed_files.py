"""Whatever a file holds, reading it gives documents or an InputError: no other error, no hang, no signal, no flood.

See ``tests/helpers/fuzzing.py`` for how many cases there are, and how to run one again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.fuzzed_files import CASES, prepare
from tests.helpers.fuzzing import fuzz


@pytest.mark.timeout(0)  # the runner has limits of its own, for each case
def test_fuzzed_files(tmp_path: Path) -> None:
    fuzz(CASES, tmp_path, 40, prepare)
