"""How many examples of its tasks a study can afford, and what they can tell."""

from __future__ import annotations

import json

import pytest

from orchestrator.config.files import make_study
from orchestrator.config.task_files import TasksSpec
from orchestrator.planning.arm_plan import arm_plans
from orchestrator.planning.tasks import plan_tasks
from tests.helpers.study import small_study
from trainables.errors import InputError
from trainables.storage import Location
from trainables.tasks.cost import zero_shot_flops
from trainables.tasks.kinds import KINDS

LANGUAGES = ("veldan", "kharto")


@pytest.fixture
def tasks(tmp_path):
    """800 minimal pairs in each of two languages, and texts to be classified."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    for language in LANGUAGES:
        pairs = [{"good": f"a good one {n}", "bad": f"one bad a {n}"} for n in range(800)]
        (folder / f"pairs-{language}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
        for split in ("train", "test"):
            texts = [{"text": f"text to {split} {n}", "label": "ab"[n % 2]} for n in range(300)]
            (folder / f"texts-{split}-{language}.jsonl").write_text("\n".join(map(json.dumps, texts)))
    pairs = {"name": "pairs", "kind": "minimal_pairs", "local": {"files": {"test": "pairs-{language}.jsonl"}}}
    files = {split: f"texts-{split}-{{language}}.jsonl" for split in ("train", "test")}
    texts = {"name": "texts", "kind": "classify", "local": {"files": files}}
    paths = []
    for task in (pairs, texts):
        paths.append(str(folder / f"{task['name']}.yaml"))
        (folder / f"{task['name']}.yaml").write_text(json.dumps({**task, "languages": LANGUAGES}))
    return paths


def planned(tmp_path, tasks, flops, **evaluation):
    spec = make_study(small_study("asked", tmp_path, budget={"flops": flops}))
    yardsticks = spec.yardsticks.model_copy(
        update={
            "tasks": TasksSpec(suite=tuple(tasks)),
            "evaluation": spec.yardsticks.evaluation.model_copy(update=evaluation),
        }
    )
    spec = spec.model_copy(update={"yardsticks": yardsticks})
    return spec, plan_tasks(spec, yardsticks.tasks, Location(tmp_path / "prepared"), None)


def most_for(spec, share):
    """Examples that the dearest arm has for a share of its run, if each of two languages costs the same."""
    examples = [_example(number) for number in range(100)]

    def tokens(texts):
        return [len(text) // 2 for text in texts]

    own = KINDS.find("minimal_pairs")(), examples, tokens
    costs = [
        len(p.objective.scorers) * zero_shot_flops(p.learner.config, p.objective.task, *own) / p.run_flops
        for p in arm_plans(spec)
    ]
    assert {len(p.objective.scorers) for p in arm_plans(spec)} == {1, 2}, "a headless model is asked by two"
    return share / (2 * max(costs))


def _example(number):
    from trainables.tasks.examples import Example

    return Example((f"a good one {number}", f"one bad a {number}"), (), str(number))


@pytest.mark.parametrize("flops", [1e9, 1e10, 1e11, 1e12, 1e14])
def test_as_many_as_take_two_percent_or_five_of_a_short_run(tmp_path, tasks, flops):
    spec, found = planned(tmp_path, tasks, flops)
    two, five = most_for(spec, 0.02), most_for(spec, 0.05)
    expected = max(1, min(500, max(two, min(100, five))))
    assert found.record.items == pytest.approx(expected, rel=0.15, abs=1)
    if found.record.items > 1:
        assert found.share <= (0.02 if found.record.items > 100 else 0.05)


def test_what_the_study_says_is_taken(tmp_path, tasks):
    assert planned(tmp_path, tasks, 1e9, task_items=321)[1].record.items == 321


def test_the_standard_error_is_that_of_shares_by_chance(tmp_path, tasks):
    """Of both tasks the chance is a half, so that a share's error counts twice; their mean is over two."""
    _, found = planned(tmp_path, tasks, 1e9, task_items=100, learned_task_items=225)
    zero_shot, learned = 2 * 0.5 / 100**0.5, 2 * 0.5 / 225**0.5
    assert found.error == pytest.approx((zero_shot**2 + learned**2) ** 0.5 / 2, rel=0.02)


@pytest.mark.parametrize(
    ("suite", "language"), [("multilingual", "sw"), ("quick", "et"), ("paper", "de"), ("glue", "zh")]
)
def test_models_are_fine_tuned_to_those_tasks_of_a_suite_that_the_text_has_a_language_of(suite, language):
    spec = TasksSpec(suite=suite, folder="/data", fine_tuning={})
    try:
        prepared = [task.name for task in spec.tasks_in([language])]
    except InputError:  # the suite has nothing of it
        prepared = []
    assert set(spec.tuned(prepared)) <= set(prepared)
    learned = next(task.name for task in spec.tasks if KINDS.find(task.kind).learns and task.name not in prepared)
    with pytest.raises(InputError, match=f"cannot be fine-tuned to '{learned}'"):
        TasksSpec(suite=suite, folder="/data", fine_tuning={}, fine_tuned=[learned]).tuned(prepared)
