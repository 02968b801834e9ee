from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.statistics.holm import holm


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """The closure: a hypothesis gets the worst Bonferroni p over all sets that it is in."""
    subsets = [[i for i, kept in enumerate(mask) if kept] for mask in product((0, 1), repeat=len(p_values))]
    for index, adjusted in enumerate(holm(p_values)):
        worst = max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in subsets if index in s)
        assert adjusted == pytest.approx(worst)
