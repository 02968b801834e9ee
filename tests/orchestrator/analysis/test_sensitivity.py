"""The margin where a study names none, and the yardstick's power to tell half a budget from the whole."""

import numpy as np
import pytest

from orchestrator.analysis.compare import compare
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.config.confirmation import MARGIN_SHARE
from orchestrator.ledger.history import History
from tests.helpers.ledgers import NOISE, changed, end, measure, spent, study, trial
from trainables.evaluation import Score


def runs(arm, level, *, half, seeds=6, course=None):
    """Runs that have a share ``half`` of their final score half way, on the text of the evaluations before."""
    for seed in range(1, seeds + 1):
        final = level + NOISE[(seed + len(arm)) % 6] / 10
        end_of_course = final if course is None else course + NOISE[seed % 6] / 10
        begin = trial("confirm", arm, seed)
        yield begin
        yield measure(begin, 1, 0.5, scores={"accuracy": half * end_of_course})
        amounts = spent(tokens=begin.amount, flops=1e12, device_seconds=1.0)
        at_end = {"accuracy": Score(overall=end_of_course, languages={})} if course is not None else {}
        yield measure(begin, 2, 1.0, scores={"accuracy": final}, spent=amounts, course=at_end)
        yield end(begin)


def pair_of(*, margin=None, lead=0.001, **of_runs):
    found = [study(margin=margin), *runs("headless", 0.4 + lead, **of_runs), *runs("vanilla", 0.4, **of_runs)]
    comparison = compare(History.of(found))
    return comparison.pairs[0], verdict_in_words(comparison)


def test_the_margin_is_a_share_of_what_the_second_half_brings():
    pair, said = pair_of(half=0.8)
    assert pair.margin == pytest.approx(MARGIN_SHARE * 0.2 * (0.4 + np.median(NOISE) / 10), rel=1e-6)
    assert pair.verdict == "equivalent"
    assert "within ±0.02" in said
    assert pair_of(half=0.8, margin=0.003)[0].margin == 0.003
    assert pair_of(half=0.8, margin=0.0005)[0].verdict == "headless"


def test_the_gain_is_taken_on_one_text():
    """The final score is of more text, and may lie elsewhere altogether."""
    pair, _ = pair_of(half=0.8, course=0.3)
    assert pair.margin == pytest.approx(MARGIN_SHARE * 0.2 * (0.3 + np.median(NOISE) / 10), rel=1e-6)


def perplexities(scale=1.0, *, lead=1.0, margin=None):
    """Two arms whose perplexities fall as straight lines of their logarithms, evaluated on both sides of the half."""
    found = [study(primary="perplexity", others=(), lower_is_better=("perplexity",), margin=margin)]
    for arm, final, fall in (("headless", 40.0 / lead, 0.3), ("vanilla", 40.0, 0.5)):
        for seed in range(1, 7):
            begin = trial("confirm", arm, seed)
            own = scale * final * (1 + NOISE[(seed + len(arm)) % 6])
            found.append(begin)
            for step, progress in enumerate((0.25, 0.75, 1.0), 1):
                amounts = spent(tokens=progress * begin.amount)
                scores = {"perplexity": own * np.exp(fall * (1 - progress))}
                found.append(measure(begin, step, progress, scores=scores, spent=amounts))
            found.append(end(begin))
    return compare(History.of(found)).pairs[0]


def test_the_margin_of_a_perplexity_is_a_ratio():
    """A quarter of the smaller of two gains in nats, of the best model: so of whatever size they are."""
    pair = perplexities()
    best = 40.0 * (1 + min(NOISE))
    assert pair.margin == pytest.approx(best * (np.exp(MARGIN_SHARE * 0.3 * 0.5) - 1))
    assert pair.verdict == "equivalent"
    for scale in (0.1, 1000.0):
        scaled = perplexities(scale)
        assert (scaled.verdict, scaled.margin) == ("equivalent", pytest.approx(scale * pair.margin))
    assert perplexities(lead=1.1).verdict == "headless", "the lower one"
    assert perplexities(lead=1 / 1.1).verdict == "vanilla"


@pytest.mark.parametrize("half", [1.0, 1.2, 1 - 2**-53])  # of the last the gain is but rounding
def test_a_yardstick_that_does_not_tell_half_the_budget_calls_nothing_equivalent(half):
    pair, said = pair_of(half=half, margin=0.05, lead=0.0)
    assert (pair.verdict, pair.withheld) == ("undecided", "sensitivity")
    assert "does not surely tell each from itself half way" in said
    assert "would settle" not in said
    assert pair_of(half=half, margin=0.05)[0].verdict == "headless", "a difference that is sure is still named"
    assert pair_of(half=half)[0].margin is None
    assert pair_of(half=half)[0].verdict == "headless", "a winner needs no margin"


def test_a_margin_that_half_the_budget_does_not_fill_calls_nothing_equivalent():
    """The second half brings 0.08."""
    assert pair_of(half=0.8, margin=0.05, lead=0.0)[0].verdict == "equivalent"
    pair, said = pair_of(half=0.8, margin=0.1, lead=0.0)
    assert (pair.verdict, pair.withheld) == ("undecided", "sensitivity")
    assert "half way through the budget by more than that" in said


@pytest.mark.parametrize(("margin", "verdict"), [(5.0, "equivalent"), (7.0, "undecided")])
def test_a_margin_of_a_perplexity_is_held_against_what_half_the_budget_brings(margin, verdict):
    """The second half brings one arm 0.15 nats: of the best model's 40 / 1.02 or so, 6.3."""
    assert perplexities(margin=margin).verdict == verdict


def test_variants_of_the_analysis_are_counted_and_exceptions_named():
    pair, said = pair_of(half=0.8, margin=0.0009)
    assert [(variant.name, variant.verdict) for variant in pair.variants] == [("with twice the margin", "equivalent")]
    assert pair.verdict == "headless"
    assert "The same in 0 of 1 variants of the analysis (with twice the margin: equivalent)." in said


def test_one_run_does_not_set_the_margin():
    """Half way one vanilla run stands where no other does."""
    found = [study(margin=None), *runs("headless", 0.4, half=0.8), *runs("vanilla", 0.4, half=0.8)]
    place = next(n for n, record in enumerate(found) if record.kind == "measure" and record.progress == 0.5)
    usual = compare(History.of(found)).pairs[0].margin
    found[place] = changed(found[place], yardsticks={"accuracy": Score(overall=-100.0, languages={})})
    assert compare(History.of(found)).pairs[0].margin == pytest.approx(usual, rel=0.01)
