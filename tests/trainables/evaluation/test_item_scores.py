"""Scores item by item: what is written is read again, influences are derivatives, damage is refused."""

from __future__ import annotations

import io
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.helpers.yardsticks import make_scored_learner, write_spoken_corpus
from trainables.config import LARGEST
from trainables.errors import InputError
from trainables.evaluation import YARDSTICKS, EvaluationConfig, Items, find_yardstick
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.item_scores import ItemScores, from_parquet, to_parquet
from trainables.evaluation.passes import take

torch.set_num_threads(1)
NAMES = sorted(set(YARDSTICKS.names()) - {"tasks", "embedding_bag"})  # which need prepared tasks


@pytest.mark.parametrize("objective", ["headless_clm", "mlm"])
def test_what_is_written_is_read_again_and_gives_the_scores(tmp_path, objective):
    """By every yardstick and scorer."""
    text = HeldOut(write_spoken_corpus(tmp_path), EvaluationConfig(sequences_per_language=5), "test")
    learner = make_scored_learner(objective)
    taken = take(learner, text, NAMES)
    content = to_parquet({scorer: own.items for scorer, own in taken.items()})
    assert content == to_parquet({scorer: own.items for scorer, own in taken.items()})
    found = from_parquet(content, "here")
    assert set(found) == {(name, scorer) for name in NAMES for scorer in learner.objective.scorers}
    for (name, scorer), scores in found.items():
        assert scores.transform == find_yardstick(name).transform
        assert scores.overall == pytest.approx(taken[scorer].scores[name].overall, rel=1e-12)
        for language, own in scores.languages.items():
            for got, expected in zip(own, taken[scorer].items[name][language], strict=True):
                np.testing.assert_array_equal(got, expected)


def random_scores(transform, seed=0):
    rng = np.random.default_rng(seed)
    language_I = np.repeat(["en", "fr", "sw"], [7, 4, 2])
    weight_I = rng.integers(1, 30, len(language_I)).astype(float)
    return ItemScores(transform, language_I, np.arange(len(language_I)), weight_I * rng.random(len(weight_I)), weight_I)


@pytest.mark.parametrize("transform", ["identity", "exp"])
def test_an_influence_is_the_derivative_by_how_often_an_item_counts(transform):
    scores, step = random_scores(transform), 1e-6
    influence_I = scores.influences()
    for item in range(len(scores.item_I)):
        often_I = np.ones(len(scores.item_I))
        often_I[item] += step
        more = scores._replace(value_I=scores.value_I * often_I, weight_I=scores.weight_I * often_I)
        assert influence_I[item] == pytest.approx((more.overall - scores.overall) / step, rel=1e-3, abs=1e-7)
    for language in ("en", "fr", "sw"):
        assert influence_I[scores.language_I == language].sum() == pytest.approx(0, abs=1e-12)


def test_another_value_changes_the_score_by_its_influence_to_first_order():
    scores, other = random_scores("exp"), None
    value_I = scores.value_I * (1 + 1e-4 * np.random.default_rng(1).normal(size=len(scores.value_I)))
    other = scores._replace(value_I=value_I)
    ratios = [own.ratio for own in scores.languages.values()]
    assert scores.overall == pytest.approx(math.exp(np.mean(ratios)))
    change = other.overall - scores.overall
    linear = sum(
        scores.overall * (value_I - scores.value_I)[scores.language_I == name].sum() / (3 * own.weight_I.sum())
        for name, own in scores.languages.items()
    )
    assert change == pytest.approx(linear, rel=1e-3)


def test_what_is_infinite_or_weighs_nothing_is_written_down_too():
    items = {"en": Items(np.array([0, 3]), np.array([math.inf, 1.0]), np.array([0.0, 0.0]))}
    scores = from_parquet(to_parquet({"head": {"bits_per_byte": items}}), "here")["bits_per_byte", "head"]
    assert scores.value_I.tolist() == [LARGEST, 1.0]
    assert math.isfinite(scores.overall)
    assert scores.influences().tolist() == [0.0, 0.0]


def test_a_group_of_two_languages_is_one_unit_where_the_yardstick_says_so():
    """By name; in files of earlier versions, which do not say, a number is of its language."""
    own = {name: Items(np.array([0, 3]), np.ones(2), np.ones(2), is_common=True) for name in ("en", "fr")}
    pairs = {name: items._replace(is_common=False) for name, items in own.items()}
    content = to_parquet({"head": {"recovery_mrr": own, "minimal_pair_accuracy": pairs}})
    table = pq.read_table(io.BytesIO(content))
    earlier, metadata = io.BytesIO(), table.schema.metadata
    pq.write_table(table.replace_schema_metadata({b"transforms": metadata[b"transforms"]}), earlier)
    found, before = from_parquet(content, "here"), from_parquet(earlier.getvalue(), "here")
    assert found["recovery_mrr", "head"].units == [0, 3, 0, 3]
    assert found["minimal_pair_accuracy", "head"].units == before["recovery_mrr", "head"].units
    assert before["recovery_mrr", "head"].units == [("en", 0), ("en", 3), ("fr", 0), ("fr", 3)]


def changed(**columns):
    """A sound file but for some columns."""
    items = {"en": Items(np.arange(3), np.arange(3.0), np.ones(3))}
    table = pq.read_table(io.BytesIO(to_parquet({"head": {"recovery_mrr": items, "perplexity": items}})))
    for name, values in columns.items():
        if name == "metadata":
            table = table.replace_schema_metadata(values)
        else:
            place = table.schema.get_field_index(name)
            field = table.schema.field(name)
            table = table.set_column(place, field, pa.array(values).cast(field.type))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", ""),
        (b"PAR1 no such thing PAR1", ""),
        (changed()[:-20], ""),
        (changed(value=[1.0, math.nan, 1.0] * 2), "not finite"),
        (changed(weight=[1.0, math.inf, 1.0] * 2), "not finite"),
        (changed(weight=[1.0, -1.0, 1.0] * 2), "weight negative"),
        (changed(item=[0, 1, 1] * 2), "twice"),
        (changed(metadata={}), "transforms"),
        (changed(metadata={"transforms": "[]"}), ""),
        (changed(metadata={"transforms": '{"recovery_mrr": "identity", "perplexity": "sin"}'}), "no transform"),
        (changed(metadata={"transforms": '{"recovery_mrr": "identity"}'}), "perplexity"),
    ],
)
def test_a_damaged_file_is_refused(content, why):
    with pytest.raises(InputError, match="scores of a trial's items cannot be read") as error:
        from_parquet(content, "here.parquet")
    assert error.value.where == "here.parquet"
    assert why in error.value.why
    assert from_parquet(changed(), "here")


def test_other_columns_are_refused():
    buffer = io.BytesIO()
    pq.write_table(pa.table({"item": [1, 2]}).replace_schema_metadata({"transforms": "{}"}), buffer)
    with pytest.raises(InputError, match="its columns are others"):
        from_parquet(buffer.getvalue(), "here")
