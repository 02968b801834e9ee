"""Whatever a checkpoint's files hold, a trial goes on from it or an earlier one, or it is refused in our own words.

See ``tests/helpers/fuzzing.py`` for how many cases there are, and how to run one again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.fuzzed_checkpoints import CASES, prepare
from tests.helpers.fuzzing import fuzz


@pytest.mark.timeout(0)  # the runner has limits of its own, for each case
def test_fuzzed_checkpoints(tmp_path: Path) -> None:
    fuzz(CASES, tmp_path, 30, prepare)
