"""What of an example is right, by a model whose likelihoods are known."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.config.task_files import load_task
from trainables.tasks.config import TaskConfig
from trainables.tasks.kinds import KINDS
from trainables.tasks.kinds.kind import UnusableError
from trainables.tasks.model import Scored


class Likes:
    """A stand-in: the log-likelihood of what is scored of each text."""

    def __init__(self, nats, is_first=()):
        self.nats, self.is_first, self.seen = nats, is_first, []

    def score(self, passages):
        self.seen = [(passage.text[: passage.start], passage.text[passage.start :]) for passage in passages]
        return Scored(np.array([self.nats.get(part, -9.0) for _, part in self.seen]), np.array(self.is_first))


def task(kind, **more):
    own = {"name": "own", "kind": kind, "languages": ["en", "zh"], "local": {"files": {"test": "a"}}}
    return TaskConfig.model_validate(own | more)


def examples(own, rows, classes=None, language="en"):
    return [KINDS.find(own.kind)().example(row, own, language, classes or {}) for row in rows]


def test_a_tie_of_two_sentences_is_half_right():
    own = task("minimal_pairs")
    rows = [{"good": "a", "bad": "b"}, {"good": "b", "bad": "a"}, {"good": "c", "bad": "d"}]
    model = Likes({"a": -1.0, "b": -2.0, "c": -1.0, "d": -1.0 - 1e-7})
    assert KINDS.find("minimal_pairs")().answers(model, examples(own, rows)).tolist() == [1, 0, 0.5]


@pytest.mark.parametrize(("good", "bad", "right"), [(-3, -np.inf, 1), (-np.inf, -3, 0), (-np.inf, -np.inf, 0.5)])
def test_what_is_impossible_ties_with_its_like_alone(good, bad, right):
    own = task("minimal_pairs")
    model = Likes({"good": good, "bad": bad})
    assert KINDS.find("minimal_pairs")().answers(model, examples(own, [{"good": "good", "bad": "bad"}])) == [right]


def test_of_choices_that_tie_each_has_its_share():
    row = {"context": "one", "choice1": "x", "choice2": "y", "choice3": "z", "label": 1}
    found = examples(task("choice"), [row, row | {"label": 2}])
    model = Likes({" x": -5.0, " y": -1.0, " z": -1.0})
    assert KINDS.find("choice")().answers(model, found).tolist() == [0.5, 0.5]
    assert model.seen[0] == ("one", " x")
    assert KINDS.find("choice")().chance(found) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("language", "premise", "context"),
    [("tr", "Kapıyı açtı.", "Kapıyı açtı çünkü"), ("zh", "他走了。", "他走了 因为"), ("th", "เขาไป", "เขาไป เพราะ")],
)
def test_a_connector_takes_the_full_stops_place(language, premise, context):
    row = {"context": premise, "choice1": "Bu", "choice2": "O", "connector": "cause", "label": 0}
    (found,) = examples(load_task("xcopa", ""), [row], language=language)
    assert found.texts == (context, "bu", "o")


def test_the_last_word_is_looked_for():
    found = examples(task("cloze"), [{"text": "two small words "}])
    model = Likes({}, [True])
    assert KINDS.find("cloze")().answers(model, found).tolist() == [1.0]
    assert model.seen == [("two small ", "words")]


def test_what_stands_behind_a_gap_is_scored():
    row = {"text": "The cup broke as _ fell.", "option1": "it", "option2": "he", "label": 2}
    found = examples(load_task("xwinograd", ""), [row], {"1": 0, "2": 1})
    model = Likes({" fell.": -1.0})
    assert KINDS.find("blank")().answers(model, found).tolist() == [0.5]
    assert model.seen == [("The cup broke as he", " fell."), ("The cup broke as it", " fell.")]


@pytest.mark.parametrize(
    ("kind", "row", "says"),
    [
        ("choice", {"context": "a", "choice1": "b", "choice2": "c", "label": 2}, "none of 0, 1"),
        ("cloze", {"text": "alone"}, "a single word"),
        ("blank", {"text": "no gap", "option1": "a", "option2": "b", "label": 0}, "no gap"),
        ("tag", {"words": ["a"], "tags": []}, "one length"),
        ("tag", {"words": ["a"], "tags": ["X"]}, "'X' is none of"),
    ],
)
def test_a_row_that_is_no_example(kind, row, says):
    with pytest.raises(UnusableError, match=says):
        examples(task(kind), [row])
