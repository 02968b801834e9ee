"""What is planned against closed forms and the rule itself on simulated studies."""

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.statistics.evidence import by_cluster, of_seeds, with_text
from orchestrator.analysis.statistics.planning import minimum_detectable_effect, power, what_would_settle
from orchestrator.analysis.statistics.rule import Rule, kept_back


def fixed(n, family_size=1):
    return Rule(n, n, 0.0, family_size)


@pytest.mark.parametrize(("n", "family_size"), [(4, 1), (6, 1), (9, 3), (30, 1)])
def test_power_of_a_fixed_number_is_the_t_tests(n, family_size):
    critical = stats.t.ppf(1 - 0.05 * (1 - kept_back(n, family_size)) / family_size / 2, n - 1)
    for effect in (0.5, 1.0, 2.0):
        expected = stats.nct.sf(critical, n - 1, effect * np.sqrt(n))
        assert power(fixed(n, family_size), effect, 1.0) == pytest.approx(expected, abs=0.02)
        assert power(fixed(n, family_size), -3 * effect, 3.0) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("rule", [fixed(7), fixed(9, 3), Rule(6, 14, 0.0), Rule(6, 10, 0.3, 3)])
@pytest.mark.parametrize("text_error", [0.0, 0.4])
def test_the_detectable_effect_is_named_with_the_power_it_promises(rule, text_error):
    effect = minimum_detectable_effect(rule, 2.0, text_error)
    rng, named = np.random.default_rng(1), []
    for _ in range(600):
        differences = rng.normal(effect, 2.0, rule.maximum) + rng.normal(0, text_error)
        looks = {
            n: of_seeds(differences[:n])._replace(
                text_variance=np.float64(text_error**2), text_degrees=np.float64(np.inf)
            )
            for n in rule.looks
        }
        named.append(rule.decide(looks.__getitem__, rule.maximum).verdict == "a")
    assert np.mean(named) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("units", [4, 8])
def test_few_units_of_text_are_foreseen(units):
    """Against studies of six seeds on so many documents: what text adds is itself hardly known."""
    text_error, deviation, rng = 0.5, 0.3, np.random.default_rng(2)
    effect = minimum_detectable_effect(fixed(6), deviation, text_error, units - 1.0)
    assert effect > 1.05 * minimum_detectable_effect(fixed(6), deviation, text_error)
    weight, named = np.full(units, 1 / units), []
    for _ in range(800):
        text = rng.normal(0, text_error * units**0.5, units)
        values_SI = effect + text + rng.normal(0, deviation, (6, 1)) + np.zeros((6, units))
        influence = (values_SI - values_SI.mean(1, keepdims=True)) * weight
        items = by_cluster(influence, np.arange(units), np.zeros(units), weight)
        found = with_text(of_seeds(values_SI @ weight), items)
        named.append(fixed(6).decide(lambda n, found=found: found, 6).verdict == "a")
    assert np.mean(named) == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize("n", [1001, 10_000, 100_000])
def test_the_power_of_very_many_pairs_is_the_t_tests(n):
    effect, level = 3.0 / np.sqrt(n), 0.05 * (1 - kept_back(n, 1))
    critical = stats.t.ppf(1 - level / 2, n - 1)
    expected = stats.nct.sf(critical, n - 1, 3.0)
    assert power(fixed(n), effect, 1.0) == pytest.approx(expected, abs=0.03)
    # Of those that the test would name, the ones that are found to lie within the margin: in standard errors,
    # between its critical value and the margin less what the equivalence test adds.
    margin = 5.0
    within = stats.norm.cdf(margin - stats.norm.ppf(1 - level) - 3.0) - stats.norm.cdf(critical - 3.0)
    assert power(Rule(n, n, margin / np.sqrt(n)), effect, 1.0) == pytest.approx(expected - within, abs=0.03)


def test_more_seeds_see_less_and_too_few_see_nothing():
    effects = [minimum_detectable_effect(fixed(n)) for n in (4, 6, 8, 10, 15, 40)]
    assert effects == sorted(effects, reverse=True)
    assert minimum_detectable_effect(fixed(3)) is None
    assert minimum_detectable_effect(fixed(6), deviation=0.0) is None


def test_text_that_is_short_hides_what_more_seeds_would_show():
    effects = [minimum_detectable_effect(fixed(8), 1.0, error) for error in (0.0, 0.2, 0.5, 1.0)]
    assert effects == sorted(effects)
    assert minimum_detectable_effect(fixed(1000), 1.0, 1.0) > 2.5  # of seeds alone it would be 0.09


@pytest.mark.parametrize("deviation", [1e-17, 1e-9])
def test_a_margin_that_dwarfs_the_deviation_is_what_can_be_detected(deviation):
    """Differences that are equal but for rounding: the search for the effect ends all the same."""
    assert minimum_detectable_effect(Rule(6, 6, 0.005), deviation) == pytest.approx(0.005, rel=5e-3)


def test_what_lies_within_the_margin_is_not_named():
    assert power(Rule(20, 20, 2.0), 0.5, 1.0) < 0.02 < power(fixed(20), 0.5, 1.0)


def test_the_seeds_asked_for_have_the_power_they_promise():
    differences = (0.0, 0.02, 0.01, 0.03, -0.01, 0.01)
    found = of_seeds(differences)
    n = len(differences) + what_would_settle(fixed(6), found).seeds
    assert 0.77 <= power(fixed(n), np.mean(differences), np.std(differences, ddof=1)) <= 0.87


def test_the_seeds_asked_for_equivalence_have_the_power_they_promise():
    differences, margin = (0.001, -0.001, 0.002, -0.002, 0.0005, 0.0), 0.0012
    n = len(differences) + what_would_settle(Rule(6, 6, margin), of_seeds(differences)).seeds
    samples = np.random.default_rng(0).normal(np.mean(differences), np.std(differences, ddof=1), (4000, n))
    found = of_seeds(samples)
    equivalent = np.abs(found.mean) + found.reach(2 * 0.05 * (1 - kept_back(n, 1))) <= margin
    assert 0.75 <= np.mean(equivalent) <= 0.9


def test_where_text_limits_more_text_is_asked_for_and_no_seeds():
    found = of_seeds([0.1, 0.12, 0.09, 0.11, 0.1, 0.1])._replace(
        text_variance=np.float64(0.06**2), text_degrees=np.float64(50)
    )
    asked = what_would_settle(fixed(6), found)
    assert asked.seeds is None
    assert 2 <= asked.text <= 6


@pytest.mark.parametrize("differences", [(0.3, 0.1), (0.02, -0.01), (0.1, 0.2, 0.0), (-0.03, -0.01, 0.01)])
def test_two_and_three_pairs_have_a_spread_to_go_by(differences):
    n = len(differences) + what_would_settle(fixed(6), of_seeds(differences)).seeds
    found = power(fixed(n), np.mean(differences), np.std(differences, ddof=1)) if n > 3 else 0.0
    assert 0.77 <= found <= 0.92


@pytest.mark.parametrize("num_pairs", [0, 1])
@pytest.mark.parametrize("rule", [fixed(6), Rule(6, 12, 0.005), fixed(6, 3)])
def test_without_a_spread_only_the_fewest_pairs_of_a_verdict_are_known(rule, num_pairs):
    asked = what_would_settle(rule, of_seeds([1e-9] * num_pairs))
    assert asked == (4 - num_pairs, None)


def test_few_or_clear_or_hopeless_samples():
    assert what_would_settle(fixed(6), of_seeds([])).seeds == 4
    assert what_would_settle(fixed(6), of_seeds([0.1])).seeds == 3
    assert what_would_settle(fixed(6), of_seeds([0.1, 0.1])).seeds == 2  # ever so clear, but too few
    assert what_would_settle(fixed(6), of_seeds([0.1, 0.1, 0.1])).seeds == 1
    assert what_would_settle(fixed(6), of_seeds([0.1, -0.1, 0.1, -0.1])).seeds is None
    # Equal but for rounding: there is no spread to speak of.
    assert what_would_settle(Rule(6, 6, 0.005, 3), of_seeds([0.1] * 6)).seeds == 1


def as_observed(mean, deviation, text_error=0.0, common=0.0, n=6, documents=10):
    """Evidence that has these very components: the deviations of a seed's mean, its own and what it has in common with
    the text, and the text's standard error."""
    seeds = of_seeds([0.0] * n)._replace(mean=np.float64(mean), seed_variance=(deviation**2 + common**2) / n)
    if not text_error:
        return seeds
    text, units = np.float64(text_error**2), text_error**2 + common**2 / n
    return seeds._replace(text_variance=text, text_degrees=np.float64(documents - 1), unit_variance=units)


@pytest.mark.parametrize("mean", [0.5, 0.8])
@pytest.mark.parametrize("family_size", [1, 3])
def test_the_seeds_asked_for_where_one_looks_after_each_have_the_power_they_promise(mean, family_size):
    n = 14 + what_would_settle(Rule(6, 14, 0.0, family_size), as_observed(mean, 1.0, n=14)).seeds
    assert 0.77 <= power(Rule(6, n, 0.0, family_size), mean, 1.0) <= 0.86


@pytest.mark.parametrize("mean", [0.0, 0.2, 0.35, 0.45])
def test_the_seeds_asked_for_bring_one_verdict_or_the_other(mean):
    """Within the margin either of the two is right."""
    n = 6 + what_would_settle(Rule(6, 6, 0.5), as_observed(mean, 1.0)).seeds
    found = of_seeds(np.random.default_rng(0).normal(mean, 1.0, (4000, n)))
    assert 0.77 <= np.isin(Rule(n, n, 0.5).verdicts(found, 0), ("a", "equivalent")).mean() <= 0.84


@pytest.mark.parametrize("parts", [(0.3, 0.5, 0.0), (0.3, 0.4, 0.5), (0.05, 0.45, 0.7)])
def test_the_text_asked_for_has_the_power_it_promises(parts):
    """What seeds and text have in common becomes less with more text too."""
    times = what_would_settle(fixed(6), as_observed(1.0, *parts)).text
    assert named_on(round(10 * times), *parts) >= 0.76
    assert named_on(round(10 * times / 2), *parts) <= 0.84, "half as much would have done"


def named_on(documents, deviation, text_error, common, studies=500):
    """How often six seeds name the better arm, whose lead is 1; the parts are those of ten documents."""
    rng, named, weight = np.random.default_rng(0), 0, np.full(documents, 1 / documents)
    for _ in range(studies):
        of_documents = rng.normal(0, text_error * 10**0.5, documents) + rng.normal(0, deviation, (6, 1))
        values_SC = 1.0 + of_documents + rng.normal(0, common * 10**0.5, (6, documents))
        influence = (values_SC - values_SC.mean(1, keepdims=True)) * weight
        items = by_cluster(influence, np.arange(documents), np.zeros(documents), weight)
        named += fixed(6).verdicts(with_text(of_seeds(values_SC.mean(1)), items), 0).item() == "a"
    return named / studies
