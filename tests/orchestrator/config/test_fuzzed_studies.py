"""Whatever a study file and its overrides hold, ``h2h plan`` shows a plan or says in our own words what is wrong.

See ``tests/helpers/fuzzing.py`` for how many cases there are, and how to run one again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.fuzzed_studies import prepare, study
from tests.helpers.fuzzing import fuzz


@pytest.mark.timeout(0)  # the runner has limits of its own, for each case
def test_fuzzed_studies(tmp_path: Path) -> None:
    fuzz([study], tmp_path, 40, prepare)
