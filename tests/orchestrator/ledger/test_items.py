"""Item scores beside the ledger: read as the report's digest has them, taken apart for runs on the same text."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.ledger.items import influences, read_items
from orchestrator.ledger.trials import TrialHistory
from tests.helpers.ledgers import measure, trial
from trainables.errors import InputError
from trainables.evaluation import Items
from trainables.evaluation.item_scores import items_file, to_parquet
from trainables.hashing import checksum
from trainables.storage import Location


def write_run(folder, seed, items=(0, 1, 2)):
    """A run's history and its file: documents of two languages."""
    rng = np.random.default_rng(seed)
    own = {name: Items(np.array(items), rng.random(len(items)), np.ones(len(items))) for name in ("en", "fr")}
    content = to_parquet({"head": {"recovery_mrr": own, "perplexity": own}})
    begin = trial("confirm", "vanilla", seed, seed=seed)
    items_file(Location(folder), begin.trial).write_bytes(content)
    return history_of(begin, items=checksum(content)), own


def history_of(begin, **fields):
    run = TrialHistory(
        phase=begin.phase,
        arm=begin.arm,
        trial=begin.trial,
        number=begin.number,
        configuration=begin.configuration,
        seed=begin.seed,
        amount=begin.amount,
        share=None,
    )
    run.measures.append(measure(begin, 9, 1.0, **fields))
    return run


def test_influences_of_several_runs(tmp_path):
    runs = [write_run(tmp_path, seed) for seed in range(3)]
    read = [read_items(Location(tmp_path), run) for run, _ in runs]
    assert set(read[0]) == {("recovery_mrr", "head"), ("perplexity", "head")}
    found = influences([scores["recovery_mrr", "head"] for scores in read])
    assert found.influence_SI.shape == (3, 6)
    assert found.language_I.tolist() == ["en"] * 3 + ["fr"] * 3
    assert found.item_I.tolist() == [0, 1, 2] * 2
    for row, (_, own) in zip(found.influence_SI, runs, strict=True):
        expected = [(own[name].value_I - own[name].value_I.mean()) / 6 for name in ("en", "fr")]
        np.testing.assert_allclose(row, np.concatenate(expected))


def test_runs_on_other_items_are_not_put_together(tmp_path):
    runs = [write_run(tmp_path, 0)[0], write_run(tmp_path, 1, items=(0, 1, 7))[0]]
    scores = [read_items(Location(tmp_path), run)["recovery_mrr", "head"] for run in runs]
    with pytest.raises(InputError, match="different items"):
        influences(scores)


def test_a_run_without_items(tmp_path):
    assert read_items(Location(tmp_path), history_of(trial("confirm", "vanilla", 0))) == {}


@pytest.mark.parametrize("damage", ["changed", "exchanged", "missing"])
def test_what_is_not_the_reports_is_refused(tmp_path, damage):
    (run, _), (other, _) = write_run(tmp_path, 0), write_run(tmp_path, 1)
    file = items_file(Location(tmp_path), run.trial)
    if damage == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    elif damage == "exchanged":
        file.write_bytes(items_file(Location(tmp_path), other.trial).read_bytes())
    else:
        file.delete()
    with pytest.raises(InputError, match="missing" if damage == "missing" else "not those that it reported") as error:
        read_items(Location(tmp_path), run)
    assert error.value.where == str(file)
