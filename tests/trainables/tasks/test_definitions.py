"""The shipped definitions and suites: each is loaded, and what lies in files is read wholly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from orchestrator.config.task_files import (
    SUITES,
    TASKS,
    TasksSpec,
    load_suite,
    load_task,
    load_tasks,
    suite_names,
    task_names,
)
from trainables.errors import InputError
from trainables.storage import Location
from trainables.tasks.config import FineTuningConfig
from trainables.tasks.kinds import KINDS
from trainables.tasks.prepared import Tasks, prepare_tasks

SIZES = {  # of the test split and, where it is cut from it, the dev split, over all languages
    "arc": 2 * 482,
    "belebele": 2 * 180,
    "blimp": 67_000,
    "cola": 1043,
    "lambada": 5153,
    "mnli": 2 * 1777,
    "rte": 1384,
    "sib200": 16 * 204,
    "sst2": 872,
    "udpos": 11_524,
    "xcopa": 5 * 500,
    "xnli": 12 * 5010,
    "xnli_translate_train": 2 * 5010,
}


@pytest.mark.parametrize("name", task_names())
def test_each_definition_is_one(name):
    task = load_task(name, "test")
    kind = KINDS.find(task.kind)
    assert task.name == name
    assert task.description
    assert task.source
    assert task.licence
    assert task.columns.keys() <= {*kind.columns, *kind.optional}
    assert task.transfer is None or task.transfer in task.languages
    for place in filter(None, (task.local, task.hub)):
        assert set(place.languages) <= set(task.languages)
        assert set(place.codes) <= set(task.languages)
        assert not place.labels or len(place.labels) == len(task.labels)
        splits = place.files or place.splits
        assert "test" in splits
        assert "train" in splits or not kind.learns
    if task.connectors:
        assert set(task.connectors) == set(task.languages)


@pytest.mark.parametrize("name", suite_names())
def test_each_suite_is_one(name):
    assert load_suite(name).description
    assert len(load_tasks(name, "test")) == len(load_suite(name).tasks)


def test_a_suite_may_say_how_models_are_fine_tuned():
    """Unless the study does; null is no fine-tuning."""
    own = load_suite("paper").fine_tuning
    assert own is not None
    assert TasksSpec(suite="paper").fine_tuning == own
    assert TasksSpec(suite="paper", fine_tuning=None).fine_tuning is None
    assert TasksSpec(suite="quick").fine_tuning is None
    other = FineTuningConfig(steps=7)
    assert TasksSpec(suite="paper", fine_tuning=other).fine_tuning == other


def test_blimp_has_all_paradigms():
    hub = load_task("blimp", "test").hub
    assert hub is not None
    assert len(set(hub.config)) == 67


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("H2H_TEST_DATA" not in os.environ, reason="needs H2H_TEST_DATA, a folder of real text")
@pytest.mark.parametrize("name", SIZES)
def test_what_lies_in_files_is_read_wholly(name, tmp_path):
    task = load_task(name, "test")
    folder = Path(os.environ["H2H_TEST_DATA"]) / "eval"
    entry = Tasks(prepare_tasks([task], Location(tmp_path), str(folder), None, None)).manifest.tasks[name]
    is_cut = not KINDS.find(task.kind).learns and "dev" not in (task.local.files or ())
    splits = ("test", "dev") if is_cut else ("test",)
    assert sum(sum(entry.counts[split].values()) for split in splits) == SIZES[name]
    assert all(entry.counts["dev"][language] for language in entry.counts["test"])


def test_all_that_are_read_from_files_are_tried():
    assert {name for name in task_names() if load_task(name, "test").local} - {"clams"} == SIZES.keys()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("blinp", "did you mean 'blimp'"),
        (("sib200", "sib20"), "did you mean 'sib200'"),
        ("multilingal", "did you mean 'multilingual'"),
        (("rte", "rte"), "two tasks called 'rte'"),
    ],
)
def test_an_unknown_name_is_one_message(names, says):
    with pytest.raises(InputError) as caught:
        load_tasks(names, "study.yaml: tasks.suite")
    assert says in str(caught.value)
    assert "study.yaml: tasks.suite" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"langages": ["en"]}, "did you mean 'languages'"),
        ({"languages": []}, "languages"),
        ({"local": {"files": {"test": "a.tsv"}, "dataset": "b"}}, "exactly one of files and dataset"),
        ({"local": {"files": {"tests": "a.tsv"}}}, "test"),
        ({"local": None}, "neither local nor hub"),
        ({"metric": "mathews"}, "did you mean 'matthews'"),
        ({"metric": "f1"}, "positive"),
        ({"metric": "matthews", "positive": "yes"}, "positive"),
    ],
)
def test_a_broken_definition_is_one_message(change, says, tmp_path):
    good = {"name": "own", "kind": "cloze", "languages": ["en"], "local": {"files": {"test": "a.jsonl"}}}
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(good))
    assert load_task(str(file), "test").name == "own"
    file.write_text(yaml.safe_dump(good | change))
    with pytest.raises(InputError) as caught:
        load_task(str(file), "test")
    assert says in str(caught.value)
    assert "own.yaml" in str(caught.value)


def test_definitions_are_shipped():
    """As data of the package: a wheel has them."""
    assert all(path.suffix == ".yaml" for folder in (TASKS, SUITES) for path in folder.iterdir())
