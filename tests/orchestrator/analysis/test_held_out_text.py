"""A study's differences speak of other seeds and of other text, where the scores of its documents are known."""

import shutil
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.compare import answered, compare
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.records import ComparisonRecord
from tests.helpers.ledgers import changed, end, measure, phase, spent, study, trial
from trainables.errors import InputError
from trainables.evaluation import Items, Score
from trainables.evaluation.item_scores import from_parquet, items_file, to_parquet
from trainables.hashing import checksum
from trainables.storage import Location

PRIMARY, SEEDS, DOCUMENTS, LANGUAGES = "recovery_mrr", 6, 24, ("en", "fr")


def run(folder, arm, seed, values, weights):
    """A completed run whose scores by document, of each language, are written."""
    items = {name: Items(np.arange(DOCUMENTS), values[name] * weights, weights) for name in LANGUAGES}
    content = to_parquet({"head": {PRIMARY: items}})
    begin = trial("confirm", arm, seed, seed=seed)
    items_file(Location(folder), begin.trial).write_bytes(content)
    ratios = {name: own.ratio for name, own in items.items()}
    score = Score(overall=sum(ratios.values()) / len(ratios), languages=ratios)
    yield begin
    amounts = spent(tokens=begin.amount, flops=1e12, hardware_flops=1e12, device_seconds=100.0, wall_seconds=100.0)
    yield measure(begin, 1, 1.0, scores={PRIMARY: score}, spent=amounts, scorer="head", items=checksum(content))
    yield end(begin)


def records(folder, *, lead=0.02, seed_deviation=0.004, document_deviation=0.05, **of_study):
    """Two arms whose documents' differences vary from document to document, the same in all seeds, and by seed."""
    rng = np.random.default_rng(7)
    weights = rng.integers(1, 6, DOCUMENTS).astype(float)
    by_document = {name: document_deviation * rng.standard_normal(DOCUMENTS) for name in LANGUAGES}
    found = [study(primary=PRIMARY, others=(), **of_study)]
    differences = []
    for seed in range(1, SEEDS + 1):
        by_seed, rows = seed_deviation * rng.standard_normal(), []
        for name in LANGUAGES:
            base = 0.4 + 0.1 * rng.standard_normal(DOCUMENTS)
            rows.append((base, base + lead + by_seed + by_document[name] + 0.01 * rng.standard_normal(DOCUMENTS)))
        for arm, side in (("vanilla", 0), ("headless", 1)):
            values = {name: row[side] for name, row in zip(LANGUAGES, rows, strict=True)}
            found += run(folder, arm, seed, values, weights)
        differences.append([headless - vanilla for vanilla, headless in rows])
    return found, np.array(differences), weights


def brute_force(difference_SLC, weight_C):
    """Mean, variances and degrees of freedom of seeds and of text, by sums over seeds and pairs of seeds."""
    S, L, _ = difference_SLC.shape
    share_C = weight_C / weight_C.sum()
    mean_SL = difference_SLC @ share_C
    by_seed = mean_SL.mean(1)
    influence_SLC = (difference_SLC - mean_SL[:, :, None]) * share_C / L
    squares = (share_C**2).sum()
    larger_C = 1 / (1 - 2 * share_C + squares)  # a deviation from a mean that the document is part of is too small
    text = spread = total = 0.0
    for language in range(L):
        own_SC = influence_SLC[:, language]
        pairs = permutations(range(S), 2)
        text += sum((larger_C * own_SC[one]) @ own_SC[other] for one, other in pairs) / (S * (S - 1))
        of_mean = (larger_C * own_SC.mean(0) ** 2).sum()
        own = 1 / squares - 1
        spread += ((1 + 2 / own) * of_mean) ** 2 / own
        total += of_mean
    seeds, degrees = by_seed.var(ddof=1) / S, max(total**2 / spread, own)
    whole = (seeds + text) ** 2 / (seeds**2 / (S - 1) + ((1 + 2 / degrees) * total) ** 2 / degrees)
    return by_seed.mean(), seeds, text, whole


def the_row(comparison):
    (pair,) = comparison.pairs
    return pair, pair.yardsticks[PRIMARY]


def test_both_sources_of_chance_are_in_p(tmp_path):
    written, difference_SLC, weights = records(tmp_path)
    pair, row = the_row(compare(History.of(written, Location(tmp_path))))
    mean, seeds, text, degrees = brute_force(difference_SLC, weights)
    assert (row.difference, row.seed_error, row.text_error) == pytest.approx((mean, seeds**0.5, text**0.5))
    statistic = mean / (seeds + text) ** 0.5
    assert row.p == pytest.approx(2 * stats.t.sf(abs(statistic), degrees))
    assert pair.matched["tokens"].interval == pytest.approx(row.interval, rel=0.2)
    alone = the_row(compare(History.of(written)))[1]
    assert alone.text_error is None
    assert alone.difference == row.difference
    assert alone.p < row.p, "without the documents the text counts as if it were all there is"


def test_what_limits_an_answer_and_would_settle_it(tmp_path):
    written, *_ = records(tmp_path, lead=0.015, document_deviation=0.12)
    comparison = compare(History.of(written, Location(tmp_path)))
    pair, row = the_row(comparison)
    assert pair.verdict == "undecided"
    assert row.text_error > row.seed_error
    assert pair.more_text > 1
    assert pair.detectable > compare(History.of(written)).pairs[0].detectable
    words = verdict_in_words(comparison)
    assert "times the held-out text" in words
    assert "the held-out text limits it" in words
    assert the_row(compare(History.of(written)))[0].verdict == "vanilla", "seeds alone would name the wrong arm"


def test_seeds_that_limit_are_named(tmp_path):
    written, *_ = records(tmp_path, lead=0.014, seed_deviation=0.02, document_deviation=0.001)
    words = verdict_in_words(compare(History.of(written, Location(tmp_path))))
    assert "the seeds limit it" in words


def test_adaptive_stopping_looks_at_both(tmp_path):
    written, *_ = records(tmp_path, lead=0.015, document_deviation=0.12, minimum_seeds=4, seeds=12)
    assert answered(History.of(written))
    assert not answered(History.of(written, Location(tmp_path)))


def test_a_language_of_one_document_shows_nothing_of_its_text(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.orchestrator.analysis.test_held_out_text.DOCUMENTS", 1)
    written, *_ = records(tmp_path)
    assert the_row(compare(History.of(written, Location(tmp_path))))[1].text_error is None


HALVES = {"by the even half of the text", "by the odd half of the text"}


@pytest.mark.parametrize(("documents", "known", "halves"), [(24, True, HALVES), (5, True, set()), (2, False, HALVES)])
def test_a_half_of_the_text_is_no_surer_than_the_whole(tmp_path, monkeypatch, documents, known, halves):
    """Too few documents to show how much they vary: by seeds alone it would seem so, unless that is so of the whole."""
    monkeypatch.setattr("tests.orchestrator.analysis.test_held_out_text.DOCUMENTS", documents)
    written, *_ = records(tmp_path, lead=0.2, document_deviation=0.01)
    pair, row = the_row(compare(History.of(written, Location(tmp_path))))
    assert (pair.verdict, row.text_error is not None) == ("headless", known)
    assert {variant.name for variant in pair.variants if "half" in variant.name} == halves
    assert {variant.name for variant in pair.variants} >= {"without en", "without fr"}
    assert {variant.verdict for variant in pair.variants} == {"headless"}


def test_halves_of_the_text_may_speak_against_the_whole(tmp_path):
    """The difference is that of the even documents alone."""
    written, *_ = records(tmp_path, lead=0.1, document_deviation=0.001)
    odd = np.arange(DOCUMENTS) % 2 == 1
    for number, record in enumerate(written):
        if record.kind == "measure" and record.arm == "headless":
            file = items_file(Location(tmp_path), record.trial)
            (own,) = from_parquet(file.read_bytes(), str(file)).values()
            languages = {
                name: part._replace(value_I=part.value_I - 0.1 * odd * part.weight_I)
                for name, part in own.languages.items()
            }
            file.write_bytes(content := to_parquet({"head": {PRIMARY: languages}}))
            ratios = {name: part.ratio for name, part in languages.items()}
            score = Score(overall=sum(ratios.values()) / 2, languages=ratios)
            written[number] = changed(record, yardsticks={PRIMARY: score}, items=checksum(content))
    comparison = compare(History.of(written, Location(tmp_path)))
    (pair,) = comparison.pairs
    verdicts = {variant.name: variant.verdict for variant in pair.variants}
    assert (pair.verdict, verdicts["by the even half of the text"]) == ("headless", "headless")
    assert verdicts["by the odd half of the text"] != "headless"
    assert "by the odd half of the text: " in verdict_in_words(comparison)


def lose(folder: Path) -> None:
    items_file(Location(folder), "confirm-vanilla-003").delete()


def exchange(folder: Path) -> None:
    items_file(Location(folder), "confirm-vanilla-003").write_bytes(
        items_file(Location(folder), "confirm-vanilla-004").read_bytes()
    )


@pytest.mark.parametrize("damage", [lose, exchange])
def test_lost_scores_are_said_and_what_was_recorded_stays(tmp_path, damage):
    written, *_ = records(tmp_path / "there")
    recorded = compare(History.of(written, Location(tmp_path / "there")))
    here = shutil.copytree(tmp_path / "there", tmp_path / "here")
    damage(here)
    with pytest.raises(InputError, match="confirm-vanilla-003"):
        answer_of(History.of(written, Location(here)))
    written += [phase("compare", "begin"), ComparisonRecord(time=9.0, comparison=recorded.to_json())]
    answer = answer_of(History.of([*written, phase("compare", "end")], Location(here)))
    assert answer.comparison == recorded
    assert "cannot be computed anew" in answer.note
    assert "confirm-vanilla-003" in answer.note
