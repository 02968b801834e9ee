"""``h2h corpus`` of a study that has begun finds its text by the ledger, and trains no tokenizer to know its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.config.files import dump_study, freeze, load_study
from orchestrator.ledger.records import CorpusRecord
from tests.helpers.commands import run_command
from tests.helpers.demonstration import records
from tests.helpers.ledgers import write_ledger
from tests.helpers.trained_study import write_trained_study


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a tokenizer is trained")

    monkeypatch.setattr("trainables.corpora.preparation.tokenizer_sample.train_tokenizer", refuse)


def write_unfinished(storage: Path, corpus: CorpusRecord | None) -> None:
    spec = freeze(load_study("demo", [f"storage={storage}"]))
    write_ledger(storage / "demo", [records()[0], *([corpus] if corpus else [])])
    (storage / "demo" / "study.yaml").write_text(dump_study(spec))


def test_text_that_is_not_prepared_yet(tmp_path: Path) -> None:
    write_unfinished(tmp_path, None)
    for named in (["demo", "--set", f"storage={tmp_path}"], [str(tmp_path / "demo")]):
        code, message = run_command("corpus", *named)
        assert code == 2
        assert "the study's text is not prepared yet" in message
        assert f"h2h resume {tmp_path}/demo" in message


def test_text_that_is_gone(tmp_path: Path) -> None:
    write_unfinished(tmp_path, CorpusRecord(fingerprint="abc", vocabulary_size=9, sequence_length=64, languages={}))
    code, message = run_command("corpus", "demo", "--set", f"storage={tmp_path}")
    assert code == 2
    assert f"there is no prepared corpus in {tmp_path}/corpora/abc" in message


def test_text_that_was_moved_with_its_study(tmp_path: Path) -> None:
    study = write_trained_study(tmp_path / "before")
    study.parent.rename(tmp_path / "after")
    assert main(["corpus", str(tmp_path / "after" / "trained"), "--samples", "0"]) == 0
