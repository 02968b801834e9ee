"""Numbers as they are shown: on which side of a limit they lie is seen."""

import pytest

from orchestrator import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0499, "0.0499"),
        (0.0501, "0.0501"),
        (0.05, "0.050"),
        (0.0504, "0.0504"),
        (0.0494, "0.049"),
        (0.0001, "< 0.001"),
    ],
)
def test_a_p_value_near_5_percent_has_the_digits_that_tell(value, text):
    assert formatting.p_value(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0002, 0.022, "+0.011 [2e-04, 0.022]"),
        (-0.0002, 0.022, "+0.011 [-2e-04, 0.022]"),
        (-0.0, 0.022, "+0.011 [0.000, 0.022]"),
        (0.001, 0.021, "+0.011 [0.001, 0.021]"),
    ],
)
def test_an_interval_shows_on_which_side_of_0_it_ends(low, high, text):
    assert formatting.difference(0.011, (low, high)) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.000"), (0.0004, "4.0e-04"), (0.0005, "0.001"), (2.4419, "2.442")])
def test_a_small_score_is_not_shown_as_0(value, text):
    assert formatting.score(value) == text
