import math

import numpy as np
import pytest
from scipy import stats

from orchestrator import compare_scores
from trainables.errors import InputError

RNG = np.random.default_rng(0)
ITEMS = RNG.normal(0.5, 0.1, 60)  # as hard for both


def scores(lead, seeds=6, seed_sd=0.01, item_sd=0.02, rng=RNG):
    a = ITEMS + lead + rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, item_sd, 60)
    return a, ITEMS + rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, item_sd, 60)


def test_a_clear_lead_is_named_and_swapped_and_turned():
    a, b = scores(0.1)
    found = compare_scores(a, b)
    assert (found.verdict, found.seeds, found.would_settle) == ("a", 6, None)
    assert found.difference == pytest.approx((a - b).mean())
    assert found.interval[0] < found.difference < found.interval[1]
    other = compare_scores(b, a)
    assert (other.verdict, other.difference, other.p) == ("b", -found.difference, found.p)
    assert compare_scores(a, b, lower_is_better=True).verdict == "b"


def test_the_errors_are_those_of_seeds_and_of_text():
    a, b = scores(0.0)
    found = compare_scores(a, b)
    assert found.seed_error == pytest.approx(stats.sem((a - b).mean(1)))
    # Seeds shift all items alike here: the items' means over seeds vary by the text alone.
    assert found.text_error == pytest.approx(stats.sem((a - b).mean(0)))


def test_strata_count_the_same_whatever_their_size():
    a, b = scores(0.0)
    strata = ["sw"] * 10 + ["en"] * 50
    found = compare_scores(a, b, strata=strata)
    difference = a - b
    assert found.difference == pytest.approx((difference[:, :10].mean() + difference[:, 10:].mean()) / 2)
    parts = [stats.sem(difference.mean(0)[part]) for part in (slice(0, 10), slice(10, 60))]
    assert found.text_error == pytest.approx(np.hypot(*parts) / 2)


def test_items_that_vary_together_are_fewer():
    rng = np.random.default_rng(1)
    shared = np.repeat(rng.normal(0, 0.05, 12), 5)
    a, b = ITEMS + shared + rng.normal(0, 0.001, (8, 60)), np.tile(ITEMS, (8, 1))
    clusters = np.repeat(np.arange(12), 5)
    apart, together = compare_scores(a, b), compare_scores(a, b, clusters=clusters)
    assert together.text_error == pytest.approx(stats.sem(shared[::5]), rel=0.05)
    assert together.text_error > 2 * apart.text_error


def test_translations_of_one_item_are_one_cluster_whose_languages_vary_together():
    rng = np.random.default_rng(3)
    shared = np.tile(rng.normal(0, 0.05, 30), 2)  # a sentence is as hard in both languages
    a, b = ITEMS + shared + rng.normal(0, 0.001, (8, 60)), np.tile(ITEMS, (8, 1))
    strata = ["en"] * 30 + ["fr"] * 30
    names = [("sentence", number) for number in range(30)] * 2
    together = compare_scores(a, b, clusters=names, strata=strata)
    assert together.text_error == pytest.approx(stats.sem(shared[:30]), rel=0.05)
    apart = compare_scores(a, b, strata=strata)
    assert together.text_error == pytest.approx(np.sqrt(2) * apart.text_error, rel=0.05)


def test_alike_within_the_margin_is_equivalent_and_the_undecided_is_told_what_it_takes():
    a, b = scores(0.0, item_sd=0.001, seed_sd=0.001)
    assert compare_scores(a, b, margin=0.05).verdict == "equivalent"
    a, b = scores(0.02, seed_sd=0.03, rng=np.random.default_rng(2))
    found = compare_scores(a, b)
    assert found.verdict == "undecided"
    assert found.would_settle.seeds > 0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.full(8, 0.1 + 0.2), np.full(8, 0.3)),
        (np.arange(8) / 10 + (0.1 + 0.2), np.arange(8) / 10 + 0.3),
        (np.array([0.1, 0.2, 0.3, 0.7] * 2), np.array([0.7, 0.1, 0.2, 0.3] * 2)),  # the same sum, in another order
    ],
)
def test_a_difference_that_is_but_rounding_names_nobody(a, b):
    assert (a - b).mean() != 0, "the check is blind"
    for one, other in ((a, b), (b, a)):
        found = compare_scores([one] * 6, [other] * 6, clusters=[0, 1, 2, 3] * 2)
        assert (found.verdict, found.difference, found.p) == ("undecided", 0.0, 1.0)
        assert found.interval[0] <= 0.0 <= found.interval[1]


def test_clusters_of_which_one_has_nearly_all_weight_are_refused():
    """They had a two-sided interval of 1e31, as of next to no degrees of freedom."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6, 100))
    with pytest.raises(InputError, match=r"weigh as much as 1\.04 equal ones"):
        compare_scores(a, b, clusters=[0] * 98 + [1, 2])


@pytest.mark.parametrize("margin", ["5%", None, 1j, np.array([0.1, 0.2]), math.inf])
def test_a_margin_that_is_no_number_is_refused(margin):
    a, b = np.random.default_rng(0).normal(size=(2, 6, 8))
    with pytest.raises(InputError, match="a margin of"):
        compare_scores(a, b, margin=margin)


def test_scores_that_are_no_real_numbers_are_refused():
    a, b = np.random.default_rng(0).normal(size=(2, 6, 8))
    for scores in (a + 5j, np.ones((6, 8), dtype="timedelta64[s]")):
        with pytest.raises(InputError, match="no array of numbers"):
            compare_scores(scores, b)
    with pytest.raises(InputError, match="named by numbers or words"):
        compare_scores(a, b, clusters=5)


def test_one_seed_far_below_the_others_makes_nobody_the_winner():
    """A run that broke, say, and was given the lowest number there may be."""
    a, b = np.full((6, 4), -2.0), np.zeros((6, 4))
    assert compare_scores(a, b).verdict == "b"
    a[5] = -1e30
    found = compare_scores(a, b)
    assert found.verdict == "undecided"
    assert found.p == pytest.approx(stats.ttest_1samp(a.mean(1), 0).pvalue / 0.85)
    assert found.interval[0] < found.difference < 0 < found.interval[1]


@pytest.mark.parametrize(
    ("a", "b", "more"),
    [
        (np.zeros((3, 4)), np.zeros((3, 5)), {}),
        (np.zeros(3), np.zeros(3), {}),
        (np.full((3, 4), np.nan), np.zeros((3, 4)), {}),
        (np.full((3, 4), np.inf), np.zeros((3, 4)), {}),
        (np.zeros((3, 4)), np.full((3, 4), -1e200), {}),  # whose squares are no number
        (np.zeros((3, 4)), np.zeros((3, 4)), {"clusters": [1, 2]}),
        (np.zeros((3, 4)), np.zeros((3, 4)), {"strata": [1, 1, 1, 2]}),
        (np.zeros((0, 0)), np.zeros((0, 0)), {}),
        (np.zeros((1, 4)), np.zeros((1, 4)), {}),
        (np.zeros((3, 1)), np.zeros((3, 1)), {}),
    ],
)
def test_what_does_not_fit_is_refused(a, b, more):
    with pytest.raises(InputError):
        compare_scores(a, b, **more)


def test_one_item_of_great_numbers_hides_nothing_of_the_others():
    """A clipped perplexity in both arms is no difference; 50 points on every other document are one."""
    rng = np.random.default_rng(0)
    b = 200 + rng.standard_normal((8, 200))
    a = b - 50 + rng.standard_normal((8, 200))
    a[:, 0] = b[:, 0] = 1e29
    found = compare_scores(a, b, margin=1.0, lower_is_better=True)
    assert found.verdict == "a"
    assert found.difference == pytest.approx(float((a - b).mean()))


@pytest.mark.parametrize("scale", [1e-250, 1e-170, 1e-90, 1.0, 1e28])
def test_the_unit_of_the_scores_changes_nothing_but_units(scale):
    rng = np.random.default_rng(1)
    a, b = rng.random((6, 40)) + 0.1, rng.random((6, 40))
    plain, scaled = (compare_scores(a * by, b * by, margin=0.05 * by) for by in (1.0, scale))
    assert (scaled.verdict, scaled.p) == (plain.verdict, pytest.approx(plain.p))
    assert scaled.interval == pytest.approx([end * scale for end in plain.interval])
    assert scaled.text_error == pytest.approx(plain.text_error * scale)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"a": [[1, 2], [3]]}, "no array of numbers"),
        ({"a": [["x", "y"]] * 6}, "no array of numbers"),
        ({"a": np.ma.masked_array(np.zeros((6, 4)), mask=True)}, "masked"),
        ({"margin": -0.1}, "margin of -0.1"),
        ({"margin": float("nan")}, "margin of nan"),
        ({"clusters": [[1], [2], [3], [4]]}, "named by numbers or words"),
    ],
)
def test_what_is_no_score_is_refused_in_our_words(options, what):
    with pytest.raises(InputError, match=what):
        compare_scores(**({"a": np.zeros((6, 4)), "b": np.zeros((6, 4))} | options))
