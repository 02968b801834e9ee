"""Who calls from Python is told what to do in Python, and the words work as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from orchestrator import Study
from orchestrator.config.files import SHIPPED, dump_study, freeze, load_study
from orchestrator.session import Session, require_whole
from orchestrator.study import StudyInterrupted
from trainables.errors import InputError


def demo(storage: Path, **changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((SHIPPED / "demo.yaml").read_text())
    return content | {"storage": str(storage)} | changes


def begun(tmp_path: Path) -> Study:
    """A study whose folder is there, with nothing recorded."""
    study = Study(demo(tmp_path))
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "study.yaml").write_text(dump_study(freeze(study.spec)))
    return study


def python_in(text: str) -> str:
    """The expression that it names."""
    start = text.index("Study.open(")
    return text[start : text.index("resume()", start) + len("resume()")]


def test_a_mistake_in_a_dictionary_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        Study(demo(tmp_path, serch=1))
    assert caught.value.where == "study: serch"
    assert "did you mean 'search'" in caught.value.remedy
    assert "--set" not in str(caught.value)


def test_a_validated_study_is_overridden_like_any_other(tmp_path: Path) -> None:
    spec = Study(demo(tmp_path)).spec
    assert Study(spec).spec is spec
    changed = Study(spec, ["name=another", "confirm.seeds=8"])
    assert (changed.spec.name, changed.spec.confirm.seeds) == ("another", 8)
    assert changed.folder.name == "another"
    assert changed.spec.arms == spec.arms
    with pytest.raises(InputError, match="unknown key 'nme'"):
        Study(spec, ["nme=another"])


def test_a_study_that_is_there_already(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already") as caught:
        begun(tmp_path).run()
    assert "in Python: Study.open(...).resume()" in caught.value.remedy


def test_results_of_a_study_without_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is run as it is printed."""
    with pytest.raises(InputError, match="has not begun to record") as caught:
        _ = begun(tmp_path).results
    resumed: list[str] = []
    monkeypatch.setattr(Study, "resume", lambda study: resumed.append(str(study.folder)))
    eval(python_in(caught.value.remedy), {"Study": Study})
    assert resumed == [str(tmp_path / "demo")]


def test_an_interruption_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = begun(tmp_path)
    executor: Any = SimpleNamespace(full_disk="", interrupted=True)
    monkeypatch.setattr(Session, "run", lambda *_: require_whole(executor))
    with pytest.raises(StudyInterrupted) as caught:
        study.resume()
    resumed: list[str] = []
    monkeypatch.setattr(Study, "resume", lambda own: resumed.append(str(own.folder)))
    eval(python_in(str(caught.value)), {"Study": Study})
    assert resumed == [str(tmp_path / "demo")]


def test_a_mistake_costs_no_import_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="must be at least 1"):
        Study("demo", ["confirm.seeds=0", f"storage={tmp_path}"])
    assert Study("demo", [f"storage={tmp_path}"]).spec == load_study("demo", [f"storage={tmp_path}"])
