"""Metrics of a task's field, of what probes and fine-tuned models tell."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.language_models import make_tokenizer
from tests.helpers.yardsticks import make_scored_learner, write_spoken_corpus
from trainables.errors import InputError
from trainables.evaluation import EvaluationConfig
from trainables.evaluation.held_out import HeldOut
from trainables.evaluation.passes import take
from trainables.storage import Location
from trainables.tasks.config import TaskConfig
from trainables.tasks.examples import Example
from trainables.tasks.metrics import NOTHING, measured, metric_chance, right_of
from trainables.tasks.prepared import MANIFEST_NAME, Tasks, prepare_tasks
from trainables.tasks.probes import probe_task

torch.set_num_threads(1)
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30)


def f1(label_K, told_K, positive):
    right = np.sum((label_K == positive) & (told_K == positive))
    return 2 * right / max(1, np.sum(label_K == positive) + np.sum(told_K == positive))


def matthews(label_K, told_K):
    """The correlation of indicators of the classes (Gorodkin 2004): of two classes, Pearson's."""
    label_KC, told_KC = (np.eye(3)[own] - np.eye(3)[own].mean(0) for own in (label_K, told_K))
    spread = (label_KC**2).sum() * (told_KC**2).sum()
    return (label_KC * told_KC).sum() / spread**0.5 if spread > 1e-9 else 0.0


@settings(deadline=None, max_examples=60)
@given(PAIRS)
def test_metrics_are_their_formulas(pairs):
    label_K, told_K = (np.array(own) for own in zip(*pairs, strict=True))
    assert measured("matthews", label_K, told_K, None) == pytest.approx(matthews(label_K, told_K), abs=1e-12)
    mean = np.mean([f1(label_K, told_K, own) for own in {*label_K.tolist(), *told_K.tolist()}])
    assert measured("macro_f1", label_K, told_K, None) == pytest.approx(mean)
    assert measured("accuracy", label_K, told_K, None) == pytest.approx((label_K == told_K).mean())
    for positive in (0, 1, 2):
        assert measured("f1", label_K, told_K, positive) == pytest.approx(f1(label_K, told_K, positive))


def test_what_is_cut_off_is_wrong_and_no_class():
    label_K, told_K = np.array([0, 0, 1, 1]), np.array([0, 0, 1, NOTHING])
    assert measured("macro_f1", label_K, told_K, None) == pytest.approx((1 + 2 / 3) / 2)
    assert measured("f1", label_K, told_K, 1) == pytest.approx(2 / 3)
    assert 0 < measured("matthews", label_K, told_K, None) < 1


def test_chance_is_the_best_of_one_answer_to_all():
    examples = [Example(("a",), (int(number < 30),), "") for number in range(100)]
    assert metric_chance("matthews", examples, None) == 0
    assert metric_chance("f1", examples, 1) == pytest.approx(2 * 0.3 / 1.3)
    assert metric_chance("macro_f1", examples, None) == pytest.approx(1.4 / 1.7 / 2)


def test_of_a_sentence_the_share_of_its_words_is_right():
    examples = [Example(("a", "b", "c"), (0, 1, 1), ""), Example(("d",), (1,), "")]
    assert right_of(examples, np.array([0, 1, NOTHING, 1])).tolist() == [2 / 3, 1.0]


def write(folder, **more):
    """Three in four are of the class no, which the first word tells but for some."""
    for last, (split, count) in enumerate((("train", 80), ("dev", 40), ("test", 60)), 8):
        rows = [
            {
                "text": f"w{6 + (i % 4 == 0) * (i % 3 > 0)} w{8 + i % 7} w{8 + i // 7 % 7} w{8 + i // 49} w{last}",
                "label": "no" if i % 4 else "yes",
            }
            for i in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {split: f"{folder}/{split}.jsonl" for split in ("train", "dev", "test")}
    definition = {"name": "own", "kind": "classify", "languages": ["en"], "local": {"files": files}}
    return TaskConfig.model_validate(definition | more)


def prepared(folder, *tasks):
    return prepare_tasks(tasks, Location(folder / "store"), None, None, None)


@pytest.mark.parametrize(
    "metric", [{"metric": "matthews"}, {"metric": "f1", "positive": "yes"}, {"metric": "macro_f1"}]
)
def test_the_score_of_tasks_has_their_metrics_beside_it(tmp_path, metric):
    plain, own = (write(tmp_path, name=name, **more) for name, more in (("plain", {}), ("own", metric)))
    tasks = prepared(tmp_path, plain, own)
    text = HeldOut(write_spoken_corpus(tmp_path / "corpus"), EvaluationConfig(), "test", tasks=tasks)
    learner = make_scored_learner("headless_clm")
    score = next(iter(take(learner, text, ("tasks",)).values())).scores["tasks"]
    assert score.languages["plain/en"] == score.languages["own/en"], "the score is what is right, as without a metric"
    assert set(score.metrics) == {"own/en"}
    (entry,) = (entry for name, entry in Tasks(tasks).manifest.tasks.items() if name == "own")
    assert entry.classes == ("no", "yes")
    assert -1 <= score.metrics["own/en"] <= 1
    assert entry.metric_chance.keys() == {"en"}


def test_what_a_probe_tells_is_what_it_gets_right(tmp_path):
    from trainables.tasks.model import LanguageModel

    tasks = Tasks(prepared(tmp_path, write(tmp_path, metric="matthews")))
    tokenizer, learner = make_tokenizer(), make_scored_learner("headless_clm")
    model = LanguageModel.of_learner(learner.eval(), learner.objective.scorers[0], tokenizer, 0, 32)
    examples = {"en": tasks.examples("own", "test", "en")}
    found = probe_task(model, tasks, "own", "test", examples)["en"]
    label_I = np.array([example.labels[0] for example in examples["en"]])
    assert ((found.told_K == label_I) == found.right_I).all()
    assert set(found.told_K.tolist()) <= {0, 1}


def test_a_task_without_a_metric_is_prepared_as_before_there_were_any(tmp_path):
    manifest = json.loads((prepared(tmp_path, write(tmp_path)) / MANIFEST_NAME).read_bytes())
    assert not {"metric", "positive", "metric_chance"} & manifest["tasks"]["own"].keys()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"metric": "f1", "positive": "yess"}, "did you mean 'yes'"),
        ({"metric": "matthews", "kind": "choice", "columns": {}}, "the kind choice cannot have the metric matthews"),
    ],
)
def test_a_metric_that_the_task_cannot_have_is_one_message(tmp_path, change, says):
    with pytest.raises(InputError) as caught:
        prepared(tmp_path, write(tmp_path, **change))
    assert says in str(caught.value)
