import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.statistics.evidence import Items, by_cluster, difference, of_seeds, with_text
from orchestrator.analysis.statistics.rule import Rule, kept_back
from trainables.errors import InputError

DIFFERENCES = (0.03, -0.01, 0.05, 0.02, 0.04, 0.01)


def crossed(rng, seeds, clusters, seed_sd, text_sd, both_sd):
    """Differences of seeds crossed with clusters, [seed, cluster], by a model with three sources of chance."""
    return (
        seed_sd * rng.standard_normal((seeds, 1))
        + text_sd * rng.standard_normal(clusters)
        + both_sd * rng.standard_normal((seeds, clusters))
    )


def evidence_of(values_SC):
    influence = (values_SC - values_SC.mean(1, keepdims=True)) / values_SC.shape[1]
    clusters = np.arange(values_SC.shape[1])
    return with_text(
        of_seeds(values_SC.mean(1)), by_cluster(influence, clusters, np.zeros(len(clusters)), np.ones(len(clusters)))
    )


def test_without_text_it_is_the_paired_t_test():
    found = of_seeds(DIFFERENCES)
    expected = stats.ttest_1samp(DIFFERENCES, 0.0)
    assert float(found.p()) == pytest.approx(expected.pvalue)
    assert found.interval(0.05) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_seeds_alike_leave_no_doubt_but_the_text():
    assert float(of_seeds([0.1] * 6).p()) == 0.0
    assert float(of_seeds([0.0] * 6).p()) == 1.0
    values = np.tile(np.random.default_rng(0).normal(0.1, 1.0, 50), (6, 1))
    found = evidence_of(values)
    expected = stats.ttest_1samp(values[0], 0.0)  # only the text varies: its clusters are the sample
    assert float(found.p()) == pytest.approx(expected.pvalue)
    assert found.interval(0.05) == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_the_variance_is_that_of_new_seeds_and_new_text():
    rng = np.random.default_rng(0)
    seeds, clusters, sds = 6, 40, (0.5, 2.0, 3.0)
    found = [evidence_of(crossed(rng, seeds, clusters, *sds)) for _ in range(4000)]
    seed, text, both = (sd**2 for sd in sds)
    assert np.mean([e.seed_variance for e in found]) == pytest.approx(seed / seeds + both / seeds / clusters, rel=0.03)
    assert np.mean([e.text_variance for e in found]) == pytest.approx(text / clusters, rel=0.03)
    assert np.var([e.mean for e in found]) == pytest.approx(np.mean([e.variance for e in found]), rel=0.06)


@pytest.mark.parametrize("sds", [(1.0, 0.0, 5.0), (1.0, 5.0, 5.0), (0.2, 8.0, 1.0)])
def test_as_many_intervals_miss_the_truth_as_they_may(sds):
    rng = np.random.default_rng(1)
    missed = [float(evidence_of(crossed(rng, 6, 60, *sds)).p()) <= 0.05 for _ in range(4000)]
    assert np.mean(missed) == pytest.approx(0.05, abs=0.015)


def test_degrees_of_freedom_are_those_of_the_mean_squares():
    """Of a two-way analysis of variance: it has three, of which two are added and one is taken away."""
    seeds, clusters = 8, 5
    values_SC = crossed(np.random.default_rng(6), seeds, clusters, 0.2, 1.0, 1.0)
    by_seed, by_cluster_, both = (values_SC.mean(1), values_SC.mean(0), values_SC.mean())
    residual_SC = values_SC - by_seed[:, None] - by_cluster_ + both
    of_seed, of_cluster, of_both = (
        by_seed.var(ddof=1) / seeds,
        by_cluster_.var(ddof=1) / clusters,
        (residual_SC**2).sum() / (seeds - 1) / (clusters - 1) / seeds / clusters,
    )
    found = evidence_of(values_SC)
    assert of_cluster > of_both
    assert float(found.variance) == pytest.approx(of_seed + of_cluster - of_both)
    few = 1 + 2 / (clusters - 1)  # so many times the clusters' counts, as it may have come out small by chance
    expected = (of_seed + of_cluster - of_both) ** 2 / (
        of_seed**2 / (seeds - 1) + (few * of_cluster) ** 2 / (clusters - 1)
    )
    assert float(found.degrees) == pytest.approx(max(expected, clusters - 1))


@pytest.mark.parametrize(("clusters", "both_sd"), [(3, 1.0), (4, 1.0), (4, 2.0), (6, 1.5)])
@pytest.mark.parametrize(("seeds", "family_size"), [(6, 1), (12, 1), (12, 3)])
def test_few_documents_that_seeds_differ_on_name_no_more_than_they_may(seeds, clusters, both_sd, family_size):
    """By the degrees of freedom of the text's own variance, a small rest of two, it was up to 9.6%, and 12% of three
    pairs of arms."""
    rng, studies = np.random.default_rng(9), 10_000
    values_SC = rng.standard_normal((studies, 1, clusters)) + both_sd * rng.standard_normal((studies, seeds, clusters))
    influence = (values_SC - values_SC.mean(-1, keepdims=True)) / clusters
    items = Items(influence, np.zeros(clusters, dtype=np.intp), np.full(clusters, 1 / clusters))
    found = with_text(of_seeds(values_SC.mean(-1)), items)
    verdicts = Rule(seeds, seeds, 0.0, family_size).verdicts(found, 0)
    assert np.mean(verdicts != "undecided") * family_size < 0.055


@pytest.mark.parametrize("sigma", [1.0, 1.5])
def test_documents_of_different_sizes_miss_no_more(sigma):
    """Thirteen documents whose sizes are lognormal: with C - 1 degrees of freedom 11% and 17% were missed."""
    rng = np.random.default_rng(8)
    missed = []
    for _ in range(3000):
        weight = rng.lognormal(0.0, sigma, 13)
        share = weight / weight.sum()
        values_SC = crossed(rng, 6, 13, 0.1, 1.0, 0.1)
        influence = (values_SC - (values_SC @ share)[:, None]) * share
        items = by_cluster(influence, np.arange(13), np.zeros(13), weight)
        if items.effective_L.min() >= 3:
            missed.append(float(with_text(of_seeds(values_SC @ share), items).p()) <= 0.05)
    assert len(missed) > 1500
    assert np.mean(missed) < 0.065


def test_items_of_a_cluster_are_one_unit_and_strata_are_fixed():
    rng = np.random.default_rng(2)
    values_SI = crossed(rng, 5, 12, 0.1, 1.0, 0.5)
    clusters, strata = np.repeat(np.arange(6), 2), np.repeat([0, 1], 6)
    influence = np.concatenate([part - part.mean(1, keepdims=True) for part in np.split(values_SI, 2, axis=1)], 1) / 12
    found = with_text(of_seeds(values_SI.mean(1)), by_cluster(influence, clusters, strata, np.ones(12)))

    # By brute force: covariances of different seeds' sums over clusters, stratum by stratum.
    sums = np.stack([influence[:, clusters == c].sum(1) for c in range(6)], 1)
    text, variances = 0.0, []
    for columns in (slice(0, 3), slice(3, 6)):
        products = [sums[s, columns] @ sums[t, columns] for s in range(5) for t in range(5) if s != t]
        text += 3 / 2 * float(np.mean(products))
        variances.append(3 / 2 * float((sums[:, columns].mean(0) ** 2).sum()))
    assert float(found.text_variance) == pytest.approx(max(text, 0.0))
    # Of two degrees of freedom a variance counts twice; the whole has no fewer than they.
    degrees = max(sum(variances) ** 2 / sum((2 * v) ** 2 / 2 for v in variances), 2.0)
    assert float(found.text_degrees) == pytest.approx(degrees)


@pytest.mark.parametrize("sizes", [(3, 30), (3, 100), (3, 30, 30), (4, 40)])
def test_a_small_stratum_beside_large_ones_has_its_say(sizes):
    """Where it varied little by chance it had too little: of three documents beside thirty 7% were missed."""
    rng, seeds, studies = np.random.default_rng(3), 8, 3000
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    weight = (1 / np.array(sizes) / len(sizes))[stratum]
    missed = 0
    for _ in range(studies):
        values_SC = crossed(rng, seeds, len(stratum), 0.02, 1.0, 0.05)
        mean_SL = np.stack([values_SC[:, stratum == place].mean(1) for place in range(len(sizes))], 1)
        items = by_cluster((values_SC - mean_SL[:, stratum]) * weight, np.arange(len(stratum)), stratum, weight)
        missed += float(with_text(of_seeds(mean_SL.mean(1)), items).p()) <= 0.05 * (1 - kept_back(seeds, 1))
    assert missed / studies < 0.055


@pytest.mark.parametrize("num_clusters", [1, 2])
def test_text_of_too_few_clusters_is_refused(num_clusters):
    clusters = np.arange(4) % num_clusters
    with pytest.raises(InputError, match="fewer than 3 clusters"):
        with_text(of_seeds(DIFFERENCES), by_cluster(np.zeros((6, 4)), clusters, [0] * 4, np.ones(4)))


@pytest.mark.parametrize("shared", [0, 1, 5])
def test_a_small_stratum_has_few_degrees_of_freedom_whatever_it_shares(shared):
    """Five clusters beside two hundred, some of them parts of the others: as often wrong as five of their own are."""
    large, small, wrong, studies = 200, 5, 0, 400
    clusters = [*range(large), *range(shared), *range(large, large + small - shared)]
    strata, weight = [0] * large + [1] * small, np.r_[np.full(large, 0.5 / large), np.full(small, 0.5 / small)]
    rng = np.random.default_rng(3)
    for _ in range(studies):
        values_SI = rng.standard_normal(large + small) + 0.3 * rng.standard_normal((6, large + small))
        mean_SI = np.repeat(np.c_[values_SI[:, :large].mean(1), values_SI[:, large:].mean(1)], [large, small], axis=1)
        items = by_cluster((values_SI - mean_SI) * weight, clusters, strata, weight)
        found = with_text(of_seeds(values_SI @ weight), items)
        wrong += float(found.p()) <= 0.05
    assert wrong / studies < 0.08


def test_strata_that_share_all_clusters_have_theirs_once():
    """Translations of twelve sentences into three languages: the sum over languages, sentence by sentence."""
    rng = np.random.default_rng(4)
    values_SCL = rng.standard_normal((6, 12, 1)) + rng.standard_normal((6, 12, 3)) + rng.standard_normal((12, 1))
    influence = (values_SCL - values_SCL.mean(1, keepdims=True)).reshape(6, -1) / 36
    clusters, strata = np.repeat(np.arange(12), 3), np.tile(np.arange(3), 12)
    found = with_text(of_seeds(values_SCL.mean((1, 2))), by_cluster(influence, clusters, strata, np.ones(36)))
    whole = values_SCL.mean(2)
    alone = by_cluster((whole - whole.mean(1, keepdims=True)) / 12, np.arange(12), np.zeros(12), np.ones(12))
    expected = with_text(of_seeds(whole.mean(1)), alone)
    assert float(found.text_variance) == pytest.approx(float(expected.text_variance))
    assert float(found.text_degrees) == pytest.approx(11.0, rel=0.15)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (0.1 + 0.2, 0.3, 0.0),
        (-0.3, -0.1 - 0.2, 0.0),
        (1e6 + 0.125, 1e6, 0.125),
        (1e-300, 0.0, 1e-300),
        (0.0, 0.0, 0.0),
        (0.3, -0.3, 0.6),
    ],
)
def test_what_is_but_rounding_is_no_difference(a, b, expected):
    assert difference(a, b) == expected
    assert float(of_seeds([difference(a, b)] * 6).p()) == (0.0 if expected else 1.0)


def test_one_seed_says_nothing_of_others():
    assert math.isinf(float(of_seeds([0.3]).variance))
