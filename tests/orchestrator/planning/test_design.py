"""What a plan says that the seeds of a study can find."""

import pytest

from orchestrator.config.files import load_study
from orchestrator.planning.design import notes


def said(name: str, *overrides: str) -> str:
    return " ".join(notes(load_study(name, overrides)))


def test_more_seeds_are_advised_where_they_find_more():
    """Of fifteen pairs of arms fourteen seeds that are fixed find more than six to fourteen."""
    assert "in 46% of studies, 6 to 14 seeds (leave out confirm.seeds) in 84%" in said("demo", "confirm.seeds=6")
    assert "leave out" not in said("confounds", "confirm.seeds=14")
    assert "leave out" not in said("confounds", "confirm={margin: 0.005}"), "it has them"


@pytest.mark.parametrize("seeds", [4, 5])
def test_what_no_study_of_so_few_seeds_says_is_said(seeds):
    assert "With fewer than 6 seeds no two arms can be called equivalent." in said("demo", f"confirm.seeds={seeds}")
