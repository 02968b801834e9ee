"""A frozen study means the same anywhere: its paths are absolute, and its search spaces stand in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrator.config.files import dump_study, freeze, frozen_content, load_study, open_frozen, write_frozen
from orchestrator.ledger.protocol import protocol, protocol_digest, require_unchanged, study_digest
from orchestrator.session import corpus_record
from orchestrator.study import Study
from search_spaces import Space
from tests.helpers.corpus import write_corpus
from tests.helpers.exports import make_tokenizer
from tests.helpers.ledgers import study as study_record
from tests.helpers.trained_study import session, spec_of
from trainables.corpora.preparation.fingerprint import fingerprint
from trainables.errors import InputError
from trainables.storage import Location

SPACE = "dimensions:\n  learning_rate: {type: float, low: 0.0001, high: 0.01, log: true}\n"


def frozen(folder: Path, *overrides: str) -> Location:
    """A study's folder, as it begins."""
    folder.mkdir()
    (folder / "study.yaml").write_text(dump_study(freeze(load_study("demo", overrides))))
    return Location(folder)


def test_an_arms_own_space_stands_in_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(SPACE)
    folder = frozen(tmp_path / "study", "arms.vanilla.space=own.yaml")
    Path("own.yaml").write_text(SPACE.replace("0.01", "0.1"))
    later = open_frozen(folder).arms["vanilla"]
    assert isinstance(later.space, Space)
    assert later.search_space.dimensions["learning_rate"].ends == (0.0001, 0.01)
    Path("own.yaml").unlink()
    monkeypatch.chdir(tmp_path.parent)
    assert open_frozen(folder).arms["vanilla"] == later
    shipped = open_frozen(folder).arms["headless"].space
    assert isinstance(shipped, Space), "a shipped one too: another version may ship another"


def test_the_space_is_part_of_the_protocol(tmp_path: Path) -> None:
    folder = frozen(tmp_path / "study")
    file = tmp_path / "study" / "study.yaml"
    before = protocol(frozen_content(file.read_bytes(), ""))
    begun = study_record(fixed=yaml.safe_load(file.read_text()), digest=study_digest(file.read_bytes()))
    require_unchanged(folder, [begun])
    content = yaml.safe_load(file.read_text())
    content["arms"]["vanilla"]["space"]["dimensions"]["learning_rate"]["high"] *= 2
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    after = protocol(frozen_content(file.read_bytes(), ""))
    assert protocol_digest(after) != protocol_digest(before) == begun.protocol_digest
    with pytest.raises(InputError, match="changed after the study began") as caught:
        require_unchanged(folder, [begun])
    assert "arms.vanilla.space.dimensions.learning_rate.high" in caught.value.where


def test_local_paths_are_absolute_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("tokenizer", "model", "data", "home/model"):
        Path(name).mkdir(parents=True)
    Path("text.txt").write_text("text")
    spec = freeze(
        load_study(
            "demo",
            [
                "corpora.sources=[{language: a, files: '*.txt'}, {language: b, files: [x.txt, 's3://b/x.txt']}, "
                "{language: c, dataset: data}, {language: d, dataset: owner/name}]",
                "tokenizer={pretrained: tokenizer}",
                "model={pretrained: model}",
                "arms.vanilla.model={pretrained: ~/model}",
                "yardsticks.others=[]",
                "storage=studies",
            ],
        )
    )
    assert spec.tokenizer.pretrained == str(tmp_path / "tokenizer")
    assert spec.model.pretrained == str(tmp_path / "model")
    assert spec.arms["vanilla"].model is not None
    assert spec.arms["vanilla"].model.pretrained == str(tmp_path / "home/model")
    assert spec.storage == str(tmp_path / "studies")
    sources = spec.corpora.sources
    assert sources[0].files == str(tmp_path / "*.txt")
    assert sources[1].files == (str(tmp_path / "x.txt"), "s3://b/x.txt")
    assert [source.dataset for source in sources[2:]] == [str(tmp_path / "data"), "owner/name"]
    monkeypatch.chdir(tmp_path.parent)
    assert freeze(spec) == spec


def test_names_on_the_hub_stay_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that only looks like one does not decide: what is not there is a name."""
    monkeypatch.chdir(tmp_path)
    spec = freeze(load_study("demo", ["tokenizer={pretrained: owner/name}", "model={pretrained: owner/name}"]))
    assert (spec.tokenizer.pretrained, spec.model.pretrained) == ("owner/name", "owner/name")
    with pytest.raises(InputError, match="no such home folder"):
        freeze(load_study("demo", ["storage=~nobody-of-this-name/studies"]))


@pytest.mark.parametrize("same", [True, False])
def test_a_study_whose_text_lies_elsewhere_goes_on_with_the_same_text_alone(tmp_path, monkeypatch, same):
    """As that of a job, which is sent again; also where the study has its answer already."""
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        place.mkdir()
        (place / "en.txt").write_text("one two\n\nthree four\n")
        (place / "fr.txt").write_text("un deux\n" if same or place == places[0] else "trois\n")
    monkeypatch.chdir(places[0])
    spec = spec_of(tmp_path / "store")
    name = fingerprint(freeze(spec).corpora, make_tokenizer())
    corpus = tmp_path / "store" / "corpora" / name
    write_corpus(corpus, {"en": 8, "fr": 8})
    manifest = (corpus / "manifest.json").read_text()
    (corpus / "manifest.json").write_text(manifest.replace('"small"', f'"{name}"'))
    make_tokenizer().save_pretrained(corpus / "tokenizer")
    folder = Location(tmp_path / "store" / "trained")
    write_frozen(freeze(spec), folder)
    recorder = session(freeze(spec), folder)
    recorder.record(corpus_record(Location(corpus), spec.corpora))
    with recorder.phase("compare"):
        pass
    recorder.close()
    monkeypatch.chdir(places[1])
    if same:
        assert Study(spec).resume().history.finished
    else:
        with pytest.raises(InputError, match="began with another text") as refused:
            Study(spec).resume()
        assert f"h2h resume {folder}" in refused.value.remedy
    assert Study.open(folder).resume().history.finished
