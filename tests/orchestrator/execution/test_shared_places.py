"""Text, storage and models that other machines of a cluster cannot see are refused before anything begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.config.files import freeze, make_study
from orchestrator.config.study import StudySpec
from orchestrator.execution import shared_places
from orchestrator.execution.shared_places import require_shared
from tests.helpers.nodes import Nodes, alone_with
from tests.helpers.preparation import TOKENIZER, corpora_of, write_language
from tests.helpers.study import small_study
from trainables.errors import InputError


@pytest.fixture
def spec(tmp_path: Path) -> StudySpec:
    """A study of two files and a folder, beside an object store, in a local storage."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": f"text of {name}"}) + "\n")
    (tmp_path / "set").mkdir()
    (tmp_path / "model").mkdir()
    sources = [
        {"language": "en", "files": f"{tmp_path}/*.jsonl"},
        {"language": "fr", "dataset": str(tmp_path / "set")},
        {"language": "veldan", "grammar": "veldan"},
    ]
    tokenizer = {"pretrained": str(tmp_path / "model")}
    study = small_study("shared", tmp_path / "store", corpora={"sources": sources}, tokenizer=tokenizer)
    study["arms"]["vanilla"]["model"] = {"pretrained": str(tmp_path / "model")}
    return freeze(make_study(study))


def machines(monkeypatch: pytest.MonkeyPatch, **hidden: Path) -> list[set[str]]:
    """Machines by name, each with what it does not see; what they are asked for."""
    asked: list[set[str]] = []

    def lacking(place, own):
        return next((path for path in place if Path(path).is_relative_to(own)), None)

    def answer(places):
        asked.append({path for place in places for path in place})
        return {name: [lacking(place, own) for place in places] for name, own in hidden.items()}

    monkeypatch.setattr(shared_places, "_ask", answer)
    return asked


def test_what_all_machines_see_is_taken(spec, ray_cluster, tmp_path):
    require_shared(spec, reads_text=True)
    assert not list((tmp_path / "store").glob(".*")), "what was written to try is gone"


@pytest.mark.parametrize(
    ("hidden", "key"),
    [
        ("b.jsonl", "corpora.sources[0].files"),
        ("set", "corpora.sources[1].dataset"),
        ("store", "storage"),
        ("model", "arms.vanilla.model.pretrained"),
    ],
)
def test_what_one_machine_lacks_is_refused(spec, tmp_path, monkeypatch, hidden, key):
    machines(monkeypatch, **{"10.0.0.1": tmp_path / "nothing", "10.0.0.2": tmp_path / hidden})
    with pytest.raises(InputError) as refused:
        require_shared(spec, reads_text=True)
    assert refused.value.where == key
    assert str(tmp_path / hidden) in refused.value.why
    assert "10.0.0.2" in refused.value.why
    assert "1 of 2 machines" in refused.value.why
    assert "without --address" in refused.value.remedy
    assert not list((tmp_path / "store").glob(".*"))


def test_text_is_asked_for_only_where_it_is_read(spec, tmp_path, monkeypatch):
    asked = machines(monkeypatch, **{"10.0.0.2": tmp_path / "b.jsonl"})
    require_shared(spec, reads_text=False)
    (paths,) = asked
    assert {Path(path).parent for path in paths} == {tmp_path, tmp_path / "store"}
    assert str(tmp_path / "model") in paths


def test_an_object_store_is_no_place_of_this_machine(spec, monkeypatch):
    text = spec.corpora.sources[2:]
    corpora = spec.corpora.model_copy(update={"sources": text})
    asked = machines(monkeypatch)
    monkeypatch.setattr(shared_places, "_models", lambda spec: [])
    require_shared(
        spec.model_copy(update={"corpora": corpora, "storage": "s3://bucket/studies?region=us-east-1"}), reads_text=True
    )
    assert asked == [], "nobody need be asked"


def test_a_file_of_another_size_is_another_file(tmp_path):
    (tmp_path / "a").write_bytes(b"1234")
    there, other, folder = {str(tmp_path / "a"): 4}, {str(tmp_path / "a"): 5}, {str(tmp_path / "a"): None}
    assert shared_places._lacking([there, other, folder]) == [None, str(tmp_path / "a"), str(tmp_path / "a")]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("hides", [True, False])
def test_machines_of_a_cluster_are_asked(tmp_path, hides):
    hidden = tmp_path / "mine"
    hidden.mkdir()
    if subprocess.run([*alone_with(hidden), "true"], capture_output=True).returncode:
        pytest.skip("this system lets no process have mounts of its own")
    write_language(hidden, "en", 400)
    corpora = corpora_of(hidden, "en").model_dump(mode="json", exclude_defaults=True)
    study = small_study("hidden", tmp_path, corpora=corpora, tokenizer=TOKENIZER.model_dump(exclude_defaults=True))
    study["yardsticks"]["others"] = []
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps(study))
    with Nodes(tmp_path) as nodes:
        nodes.add(hidden=hidden if hides else None)
        command = [sys.executable, "-m", "orchestrator.cli", "prepare", str(file), "--address", nodes.address]
        done = subprocess.run(command, capture_output=True, text=True, env=nodes.environment, timeout=400)
    assert done.returncode == (2 if hides else 0), done.stderr
    if hides:
        assert f"{file}: corpora.sources[0].files" in done.stderr
        assert f"{hidden}/en-0.jsonl.gz is not there" in done.stderr
        assert not (tmp_path / "corpora").exists(), "nothing was begun"
    else:
        assert "tokens/s" in done.stdout
