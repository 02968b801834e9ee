"""A study that asks its models downstream tasks: prepared, measured, fine-tuned to, compared, verified, asked again."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import ANY

import jsonschema
import pytest
import yaml

from orchestrator.cli import main
from orchestrator.cli.output import schema_of
from orchestrator.study import Study
from tests.helpers.study import small_study
from trainables.corpora.grammar import documents
from trainables.storage import Location

LANGUAGES = ("veldan", "kharto")
FITTED = {"learning_rates": [1e-3, 3e-3], "steps": 10, "batch_examples": 8, "seeds": 2, "share": 100.0}


def write_tasks(folder: Path) -> list[str]:
    """Words in their order against words out of it; and which of two languages a text is in."""
    for language in LANGUAGES:
        texts = [text for text, _ in documents(language, 150, 7, 0)]
        with (folder / f"order-{language}.jsonl").open("w") as file:
            for number, text in enumerate(texts):
                words = text.split()[:8]
                pair = {"good": " ".join(words), "bad": " ".join(words[::-1]), "id": number}
                file.write(json.dumps(pair) + "\n")
        for split, own in {"train": texts[:80], "dev": texts[80:110], "test": texts[110:]}.items():
            with (folder / f"long-{split}-{language}.jsonl").open("w") as file:
                for number, text in enumerate(own):
                    words, label = text.split(), "short" if number % 2 else "long"
                    row = {"text": " ".join(words[: 3 if label == "short" else 6]), "label": label}
                    file.write(json.dumps(row) + "\n")
    order = {"kind": "minimal_pairs", "cluster": "id", "local": {"files": {"test": "order-{language}.jsonl"}}}
    length = {
        "kind": "classify",
        "metric": "matthews",
        "local": {"files": {split: f"long-{split}-{{language}}.jsonl" for split in ("train", "dev", "test")}},
    }
    paths = []
    for name, task in {"order": order, "length": length}.items():
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"name": name, "languages": list(LANGUAGES), **task}))
        paths.append(str(path))
    return paths


@pytest.mark.slow
def test_a_study_asks_its_models_tasks(tmp_path, monkeypatch, capsys):
    suite = write_tasks(tmp_path)
    study = small_study("asked", tmp_path, confirm={"seeds": 4, "describe_only": True, "evaluations": 2})
    study["yardsticks"] |= {"tasks": {"suite": suite, "fine_tuning": FITTED}}
    file = tmp_path / "asked.yaml"
    file.write_text(yaml.safe_dump(study))
    assert "Tasks: 2 in 2 languages" in shown(capsys, ["plan", str(file), "--no-calibration"])
    results = Study(study).run()
    history = results.history
    (pair,) = results.answer.comparison.pairs
    assert {(row.task, row.tier) for row in pair.tasks} == {
        ("order", "zero-shot"),
        ("length", "probe"),
        ("length", "fine-tuned"),
    }
    for row in pair.tasks:
        assert row.n == 4, "pretraining seeds, not fine-tunings"
        assert 0 <= row.mean_a <= 1
        assert row.p_adjusted >= row.p
        assert (row.bag_a is None) == (row.tier != "probe"), "of probes alone the embeddings are asked too"
        assert (row.metric is None) == (row.task == "order")
        if row.metric is not None:
            assert (row.metric.name, row.metric.n, row.metric.chance) == ("matthews", 4, 0)
            assert -1 <= row.metric.mean_a <= 1
            # Half of the examples are of each class, so that the two say nearly the same.
            assert row.metric.mean_a == pytest.approx(2 * row.mean_a - 1, abs=0.15)
            assert row.metric.interval[0] <= row.metric.difference <= row.metric.interval[1]
    assert pair.over_tasks.tasks == 2
    tuned = list(history.tunings.values())
    assert {record.arm for record in tuned if record.split == "dev"} == {"headless", "vanilla"}
    rates = {(record.arm, record.rate) for record in tuned if record.split == "test"}
    assert len(rates) == 2, "one rate an arm"
    assert len([record for record in tuned if record.split == "test"]) == 8
    monkeypatch.setenv("COLUMNS", "200")
    said = shown(capsys, ["compare", f"{tmp_path}/asked"])
    assert "length, fine-tuned" in said
    assert "length, probe: matthews" in " ".join(said.split())
    assert "fine-tuning is the grid's first or last: length by" in " ".join(said.split()), "there are but two"
    assert main(["verify", f"{tmp_path}/asked", "--data", "--rescore", "1"]) == 0
    capsys.readouterr()

    order, length = suite
    assert "zero-shot" in shown(capsys, ["evaluate", f"{tmp_path}/asked", "--tasks", order, "--items", "40"])
    after = Study.open(Location(tmp_path / "asked")).results
    ((digest, found),) = after.history.evaluations.items()
    assert len(found) == 8
    assert after.history.task_sets[digest].exploratory
    assert after.answer.comparison == results.answer.comparison, "the study's own answer stays"
    again = json.loads(shown(capsys, ["evaluate", f"{tmp_path}/asked", "--tasks", order, "--items", "40", "--json"]))
    jsonschema.validate(again, schema_of("evaluation"))
    assert [pair["row"]["task"] for pair in again["pairs"]] == ["order"]
    again = Study.open(Location(tmp_path / "asked")).results.history
    assert again.evaluations == after.history.evaluations, "nothing is asked twice"
    assert main(["verify", f"{tmp_path}/asked"]) == 0
    capsys.readouterr()

    assert main(["report", f"{tmp_path}/asked", "--out", f"{tmp_path}/asked.html"]) == 0
    assert "Downstream tasks (exploratory)" in (tmp_path / "asked.html").read_text()
    assert main(["export", f"{tmp_path}/asked", "--arm", "vanilla", "--to", f"{tmp_path}/model"]) == 0
    assert "length, probe" in (tmp_path / "model" / "README.md").read_text()
    assert "veldan" in shown(capsys, ["evaluate", f"{tmp_path}/model", "--tasks", order])
    of_model = json.loads(shown(capsys, ["evaluate", f"{tmp_path}/model", "--tasks", order, length, "--json"]))
    assert [(own["metric"], own["score"] is None) for own in of_model["tasks"]] == [
        *[("accuracy", True)] * 2,
        *[("matthews", False)] * 2,
    ]
    shown(capsys, ["evaluate", f"{tmp_path}/asked", "--tasks", length])
    asked = json.loads(shown(capsys, ["evaluate", f"{tmp_path}/asked", "--tasks", length, "--json"]))
    (own,), (of_study,) = ([row for row in pair.tasks if row.tier == "probe"], asked["pairs"])
    assert of_study["row"]["metric"] == pytest.approx(own.metric.model_dump() | {"interval": ANY})


def shown(capsys, command):
    capsys.readouterr()
    assert main(command) == 0, capsys.readouterr().err
    return capsys.readouterr().out
