"""A study whose objective, candidate weighting and yardstick another package brings, from the command line."""

from __future__ import annotations

import os

import pytest
import yaml

from orchestrator.ledger.history import read_history
from tests.helpers.extensions import COUNTS, documented_code
from tests.helpers.packages import write_package
from tests.helpers.repository import REPOSITORY
from tests.helpers.study import h2h, small_study
from trainables.storage import Location

SPACE = {"dimensions": {"learning_rate": {"type": "float", "low": 1e-3, "high": 1e-2, "log": True}}}


@pytest.fixture
def environment(tmp_path):
    """With the package on the path, of Ray's processes too."""
    folder = tmp_path / "site"
    folder.mkdir()
    objective, yardstick = documented_code()
    write_package(
        folder,
        "my-package",
        {"my_package": objective + yardstick, "my_counts": COUNTS},
        {
            "headtohead.objectives": "regression_clm = my_package:Regression\ntempered_clm = my_counts:Tempered",
            "headtohead.yardsticks": "median_rank = my_package:MedianRank",
        },
    )
    return os.environ | {"PYTHONPATH": f"{folder}:{REPOSITORY}"}


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_a_study_of_what_another_package_brings(tmp_path, environment):
    space = tmp_path / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    arms = {
        "regression": {"objective": "regression_clm", "space": str(space)},
        "tempered": {"objective": "tempered_clm", "space": str(space), "options": {"power": 0.25}},
        "vanilla": {"objective": "clm"},
    }
    study = small_study("theirs", tmp_path, arms=arms, search={"budget_per_arm": 1, "halving": {"rungs": 1}})
    study["yardsticks"] |= {"primary": "median_rank", "others": ["recovery_mrr"]}
    study["confirm"] = {"seeds": 1, "describe_only": True, "evaluations": 2}
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(study))

    done = h2h("run", str(file), env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    history = read_history(Location(tmp_path / "theirs" / "ledger"))
    runs = list(history.trials.values())
    assert {run.arm for run in runs} == set(arms)
    assert {run.outcome for run in runs} == {"completed"}
    for run in runs:
        assert 1 <= run.score("median_rank") < 250, "half of all tokens, had it learnt nothing"

    listed = h2h("list", env=environment | {"COLUMNS": "200"}, cwd=tmp_path)
    assert all(name in listed.stdout for name in ("regression_clm", "tempered_clm", "median_rank")), listed.stdout
    without = h2h("plan", str(file), cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    assert without.returncode == 2
    assert "unknown objective 'regression_clm'" in without.stdout + without.stderr
