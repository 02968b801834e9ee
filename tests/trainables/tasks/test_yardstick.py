"""Tasks as a yardstick: shares beyond chance, tasks that count the same, translations that are one item."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tests.helpers.yardsticks import Oracle, make_scored_learner, write_spoken_corpus
from trainables.evaluation import EvaluationConfig
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.item_scores import from_parquet, to_parquet
from trainables.evaluation.passes import take
from trainables.evaluation.tables import take_of_tables
from trainables.evaluation.yardstick import mean_over, shares_of
from trainables.storage import Location
from trainables.tasks.config import PlaceConfig, TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.prepared import prepare_tasks
from trainables.tasks.yardstick import beyond_chance

torch.set_num_threads(1)


def oracle():
    """A decoder that knows which word follows."""
    found = Oracle("causal", 4.0)
    found.body = torch.nn.Linear(1, 1)
    return found


def words(*tokens):
    return " ".join(f"w{token}" for token in tokens)


def pairs_task(folder, name, languages, rows):
    """Minimal pairs, the same in each language; a row is good and bad."""
    for language in languages:
        lines = [json.dumps({"good": good, "bad": bad, "id": str(i)}) for i, (good, bad) in enumerate(rows)]
        (folder / f"{name}-{language}.jsonl").write_text("\n".join(lines))
    place = PlaceConfig(files={"test": f"{folder}/{name}-{{language}}.jsonl"})
    return TaskConfig(name=name, kind="minimal_pairs", languages=tuple(languages), cluster="id", local=place)


@pytest.fixture
def tasks(tmp_path):
    """Two of minimal pairs: of the first the oracle gets all right, of the second a quarter."""
    right = (words(6, 7, 8), words(6, 9, 8))
    easy = pairs_task(tmp_path, "easy", ["en", "fr"], [right] * 20)
    hard = pairs_task(tmp_path, "hard", ["en"], [right if i % 4 == 0 else right[::-1] for i in range(40)])
    return prepare_tasks([easy, hard], Location(tmp_path / "tasks"), None, None, None)


def held_out(tmp_path, tasks, split="test", **settings):
    evaluation = EvaluationConfig(sequences_per_language=5, **settings)
    return HeldOut(write_spoken_corpus(tmp_path / "corpus"), evaluation, split, tasks=tasks)


def test_the_score_is_the_mean_over_tasks_of_what_is_right_beyond_chance(tmp_path, tasks):
    text = held_out(tmp_path, tasks)
    (taken,) = take(oracle(), text, ("tasks",)).values()
    score, items = taken.scores["tasks"], taken.items["tasks"]
    assert set(score.languages) == {"easy/en", "easy/fr", "hard/en"}
    assert score.languages["easy/en"] == score.languages["easy/fr"] == 1.0
    shown = items["hard/en"]
    right = (shown.value_I / 2 + shown.weight_I / 2).sum() / shown.weight_I.sum()
    assert right == pytest.approx(0.25, abs=0.15)  # those that are no dev example
    assert score.overall == pytest.approx((1.0 + score.languages["hard/en"]) / 2), "each task counts the same"


def test_translations_are_one_item_and_other_tasks_items_are_others(tmp_path, tasks):
    (taken,) = take(oracle(), held_out(tmp_path, tasks), ("tasks",)).values()
    en, fr, hard = (set(taken.items["tasks"][name].item_I.tolist()) for name in ("easy/en", "easy/fr", "hard/en"))
    assert en == fr
    assert not en & hard
    kept = from_parquet(to_parquet({"head": taken.items}), "here")["tasks", "head"]
    assert kept.overall == pytest.approx(taken.scores["tasks"].overall)
    assert kept.is_common


def test_fewer_items_are_some_of_more_and_dev_items_are_others(tmp_path, tasks):
    def numbers(split="test", **settings):
        (taken,) = take(oracle(), held_out(tmp_path, tasks, split, **settings), ("tasks",)).values()
        return set(taken.items["tasks"]["hard/en"].item_I.tolist())

    whole, some, dev = numbers(), numbers(task_items=7), numbers("validation")
    assert len(some) == 7
    assert some < whole
    assert dev
    assert not dev & whole
    assert len(dev | whole) == 40


def test_tables_of_counts_have_no_opinion(tmp_path, tasks):
    found = take_of_tables(held_out(tmp_path, tasks), "causal", ("tasks", "recovery_accuracy"))
    assert all(set(taken.scores) == {"recovery_accuracy"} for taken in found.values())


def test_an_influence_is_the_derivative_of_the_mean_over_tasks(tmp_path, tasks):
    learner, step = make_scored_learner("headless_clm"), 1e-6
    taken = take(learner, held_out(tmp_path, tasks), ("tasks",))
    scores = from_parquet(to_parquet({name: own.items for name, own in taken.items()}), "here")
    for own in scores.values():
        influence_I = own.influences()
        for item in range(0, len(own.item_I), 7):
            often_I = np.ones(len(own.item_I))
            often_I[item] += step
            more = own._replace(value_I=own.value_I * often_I, weight_I=own.weight_I * often_I)
            assert influence_I[item] == pytest.approx((more.overall - own.overall) / step, rel=1e-3, abs=1e-7)


def test_shares():
    assert shares_of(["en", "fr"]) == {"en": 0.5, "fr": 0.5}
    assert shares_of(["a/en", "a/fr", "b/en"]) == {"a/en": 0.25, "a/fr": 0.25, "b/en": 0.5}
    assert mean_over({"a/en": 1.0, "a/fr": 0.0, "b/en": 0.2}) == pytest.approx((0.5 + 0.2) / 2)


def test_a_sentence_weighs_its_words_and_examples_of_one_unit_are_one_item():
    sentences = [Example(("a", "b", "c"), (0, 1, 1), "x"), Example(("d",), (1,), "y"), Example(("e", "f"), (0, 0), "x")]
    found = beyond_chance("t", 0.2, sentences, np.array([1 / 3, 1.0, 0.5]))
    assert sorted(found.weight_I.tolist()) == [1.0, 5.0]
    assert found.ratio == pytest.approx(((1 + 1 + 1) / 6 - 0.2) / 0.8)


@pytest.fixture
def probed(tmp_path):
    """A task of classes, which the first word tells, beside one of pairs."""
    for split, number, last in (("train", 60, []), ("test", 30, [9])):
        rows = [{"text": words(6 + i % 2, 8 + i % 7, *last), "label": "ab"[i % 2]} for i in range(number)]
        (tmp_path / f"first-{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {split: f"{tmp_path}/first-{split}.jsonl" for split in ("train", "test")}
    first = TaskConfig(name="first", kind="classify", languages=("en",), local=PlaceConfig(files=files))
    pairs = pairs_task(tmp_path, "easy", ["en"], [(words(6, 7, 8), words(6, 9, 8))] * 20)
    return prepare_tasks([first, pairs], Location(tmp_path / "probed"), None, None, None)


def test_the_bag_is_of_probed_tasks_alone_and_is_the_embeddings_own(tmp_path, probed):
    """With the same embeddings and another body the bag stays, and what is probed does not."""
    text, learner = held_out(tmp_path, probed), make_scored_learner("headless_clm")
    asked = ("tasks", "embedding_bag")
    before = next(iter(take(learner, text, asked).values()))
    with torch.no_grad():
        for name, parameter in learner.body.named_parameters():
            if "embed" not in name and parameter.ndim == 2:
                parameter.zero_()
    after = next(iter(take(learner, text, asked).values()))
    assert set(before.scores["embedding_bag"].languages) == {"first/en"}
    assert before.scores["embedding_bag"] == after.scores["embedding_bag"]
    assert before.scores["embedding_bag"].overall > 0.9, "a word tells it, without its neighbours"


def test_learned_tasks_have_items_of_their_own_number(tmp_path, probed):
    text = held_out(tmp_path, probed, task_items=5, learned_task_items=9)
    taken = next(iter(take(make_scored_learner("headless_clm"), text, ("tasks",)).values()))
    assert {name: own.weight_I.sum() for name, own in taken.items["tasks"].items()} == {"first/en": 9, "easy/en": 5}
