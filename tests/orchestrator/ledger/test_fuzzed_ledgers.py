"""Whatever lies in a study's folder, all that reads a ledger shows it or says in our own words what is wrong.

See ``tests/helpers/fuzzing.py`` for how many cases there are, and how to run one again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.fuzzed_ledgers import CASES, prepare
from tests.helpers.fuzzing import fuzz


@pytest.mark.timeout(0)  # the runner has limits of its own, for each case
def test_fuzzed_ledgers(tmp_path: Path) -> None:
    fuzz(CASES, tmp_path, 30, prepare)
