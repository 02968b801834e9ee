"""No arm is named where none has surely learned more than counting tokens does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis.compare import compare
from orchestrator.analysis.comparison import Comparison
from orchestrator.analysis.wording import verdict_in_words
from orchestrator.ledger.history import History
from orchestrator.ledger.records import Record
from tests.helpers.ledgers import begun, end, measure, spent, study, trial
from trainables.errors import InputError
from trainables.evaluation import Items, Score
from trainables.evaluation.item_scores import items_file, to_parquet
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.state import Floors

PRIMARY, SEEDS, DOCUMENTS = "recovery_mrr", 6, 40
NOISE = (0.3, -1.2, 0.9, -0.4, 1.1, -0.7)


def written(folder: Path, name: str, *, floors: bool, **values: np.ndarray) -> tuple[str, dict[str, Score]]:
    """A file of the scores of documents of one language, by scorer or table; its digest, and the scores."""
    items = {key: Items(np.arange(DOCUMENTS), value_I, np.ones(DOCUMENTS)) for key, value_I in values.items()}
    content = to_parquet({key: {PRIMARY: {"en": own}} for key, own in items.items()})
    items_file(Location(folder), name, floors=floors).write_bytes(content)
    return checksum(content), {key: Score(overall=own.ratio, languages={"en": own.ratio}) for key, own in items.items()}


def records(
    folder: Path, vanilla: float, headless: float, *, unigram: float = 0.06, bigram: float = 0.12
) -> Iterator[Record]:
    rng = np.random.default_rng(3)
    base_I = 0.01 * rng.standard_normal(DOCUMENTS)
    base_I -= base_I.mean()
    yield study(primary=PRIMARY, others=())
    for place, seed in enumerate(range(1, SEEDS + 1)):
        for arm, level in (("vanilla", vanilla), ("headless", headless)):
            begin = trial("confirm", arm, place, seed=seed)
            yield begin
            if place == 0 and arm == "vanilla":
                noise_I = 0.004 * rng.standard_normal(DOCUMENTS)
                noise_I -= noise_I.mean()
                tables = {"unigram": unigram + base_I + noise_I, "bigram": bigram + base_I - noise_I}
                digest, scores = written(folder, begin.trial, floors=True, untrained=base_I + 0.001, **tables)
                floors = Floors(
                    untrained={PRIMARY: scores["untrained"]},
                    tables={name: {PRIMARY: scores[name]} for name in tables},
                    items=digest,
                )
                yield begun(begin, floors=floors)
            value_I = level + 0.0005 * NOISE[(place + len(arm)) % SEEDS] + base_I
            digest, scores = written(folder, begin.trial, floors=False, head=value_I)
            amounts = spent(tokens=begin.amount, flops=1e12, hardware_flops=1e12, device_seconds=9.0, wall_seconds=9.0)
            report = {"scores": {PRIMARY: scores["head"]}, "spent": amounts, "scorer": "head", "items": digest}
            yield measure(begin, 1, 1.0, **report)
            yield end(begin)


def compared(folder: Path, vanilla: float, headless: float, **tables: float) -> Comparison:
    return compare(History.of(records(folder, vanilla, headless, **tables), Location(folder)))


def test_a_difference_below_the_constant_names_nobody(tmp_path: Path) -> None:
    """Two models that say next to nothing differ surely, and that says nothing."""
    comparison = compared(tmp_path, 0.055, 0.045)
    (pair,) = comparison.pairs
    assert pair.yardsticks[PRIMARY].p < 0.001
    assert (pair.verdict, pair.more_seeds, pair.more_text) == ("undecided", 0, None)
    said = verdict_in_words(comparison)
    assert "Neither is surely above what counting single tokens comes to (0.060), so neither can be named." in said
    assert "would settle" not in said


def test_one_arm_above_the_constant_is_named_and_what_it_has_not_learned_is_said(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.075, 0.045)
    assert comparison.pairs[0].verdict == "vanilla"
    assert comparison.arms["vanilla"].floors["unigram"].above
    assert not comparison.arms["headless"].floors["unigram"].above
    said = verdict_in_words(comparison)
    assert "Neither is surely above what counting pairs of neighbours comes to (0.120)" in said
    assert "neither has learned much at this budget" in said


def test_above_both_nothing_is_said(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.2, 0.15)
    assert comparison.pairs[0].verdict == "vanilla"
    assert "counting" not in verdict_in_words(comparison)


def test_whether_an_arm_is_above_counts_seeds_and_text(tmp_path: Path) -> None:
    comparison = compared(tmp_path, 0.0612, 0.045)
    floor = comparison.arms["vanilla"].floors["unigram"]
    assert floor.value == pytest.approx(0.06)
    history = History.of(records(tmp_path, 0.0612, 0.045), Location(tmp_path))
    values = [run.measures[-1].yardsticks[PRIMARY].overall for run in history.trials_of("confirm", "vanilla")]
    assert floor.difference == pytest.approx(np.mean(values) - 0.06)
    alone = stats.t.interval(0.95, SEEDS - 1, np.mean(values) - 0.06, stats.sem(values))
    assert alone[0] > 0, "by its seeds alone it is above"
    assert floor.interval[1] - floor.interval[0] > 1.5 * (alone[1] - alone[0])
    assert floor.interval[0] < 0


def test_floors_whose_file_is_gone_are_refused(tmp_path: Path) -> None:
    history = History.of(records(tmp_path, 0.2, 0.15), Location(tmp_path))
    items_file(Location(tmp_path), "confirm-vanilla-000", floors=True).delete()
    with pytest.raises(InputError, match="confirm-vanilla-000"):
        compare(history)


def test_a_study_that_measured_none_is_judged_without(tmp_path: Path) -> None:
    found = [record for record in records(tmp_path, 0.055, 0.045) if record.kind != "begun"]
    comparison = compare(History.of(found, Location(tmp_path)))
    assert comparison.arms["vanilla"].floors == {}
    assert comparison.pairs[0].verdict == "vanilla"
