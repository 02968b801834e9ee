"""Checkpoints that nothing needs: which they are, and that all commands find what they need once they are gone."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.config.folder import LEDGER
from orchestrator.execution.cleaning import remove_checkpoints, unneeded_checkpoints
from orchestrator.ledger.layout import LEASE_FILE
from orchestrator.ledger.lease import Holder
from orchestrator.ledger.local_log import lock
from orchestrator.reporting.export import export_study
from orchestrator.reporting.studies import studies_of
from orchestrator.verification.verify import verify
from tests.helpers.commands import run_command
from tests.helpers.ledgers import end, phase, trial, write_ledger
from tests.helpers.ledgers import study as study_record
from tests.helpers.object_store import BUCKET, environment, s3_server
from tests.helpers.trained_study import write_trained_study
from trainables.errors import InputError
from trainables.storage import Location


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trained_study(tmp_path_factory.mktemp("studies"))


@pytest.fixture
def study(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained.parent, tmp_path / "s")
    return tmp_path / "s" / "trained"


def checkpoints(study: Path) -> set[str]:
    return {f"{path.parent.parent.name}/{path.name}" for path in (study / "trials").glob("*/start-*/step-*")}


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_the_last_model_of_each_run_stays_and_all_finds_it(study: Path, tmp_path: Path) -> None:
    before, ledger = size(study / "trials"), {f: f.read_bytes() for f in (study / "ledger").glob("*.jsonl")}
    head = verify(Location(study)).head
    found = unneeded_checkpoints(Location(study))
    assert {one.step for one in found.unneeded} == {6}
    assert len(found.unneeded) == found.kept == 8
    assert checkpoints(study) == {
        f"{name.name}/step-{step:08d}" for name in (study / "trials").iterdir() for step in (6, 12)
    }
    removed = remove_checkpoints(found)
    assert removed.removed
    assert before - size(study / "trials") == removed.freed_bytes == found.freed_bytes > 0
    assert {name.rpartition("-")[2] for name in checkpoints(study)} == {"00000012"}
    assert ledger == {file: file.read_bytes() for file in (study / "ledger").glob("*.jsonl")}, "history is not touched"
    again = verify(Location(study), head=head, rescored=8)
    assert again.sound, again.in_words()
    assert any("of 8 checkpoints" in note for note in again.notes)
    assert export_study(Location(study), Location(tmp_path / "model"), arm="vanilla")
    assert not unneeded_checkpoints(Location(study)).unneeded


def test_a_damaged_last_model_keeps_what_is_before_it(study: Path) -> None:
    place = study / "trials" / "confirm-vanilla-000" / "start-0001" / "step-00000012"
    model = bytearray((place / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (place / "model.safetensors").write_bytes(model)
    (study / "trials" / "confirm-vanilla-001" / "start-0001" / "step-00000012" / "state.json").unlink()
    found = unneeded_checkpoints(Location(study))
    assert not {one.trial for one in found.unneeded} & {"confirm-vanilla-000", "confirm-vanilla-001"}
    assert any(
        "confirm-vanilla-000: model.safetensors of the checkpoint of step 12 is damaged" in n for n in found.notes
    )
    assert any("confirm-vanilla-001: the checkpoint of step 6 is not that of its end" in note for note in found.notes)


def test_what_runs_or_may_go_on_keeps_what_it_needs(trained: Path, tmp_path: Path) -> None:
    """A made-up ledger: a search trial of each outcome, one that runs, and a branch that has not begun."""
    outcomes = ("diverged", "failed", "lost", "pruned", "runs")
    asked = {outcome: trial("search", "vanilla", number) for number, outcome in enumerate(outcomes)}
    ends = [end(own, outcome) for outcome, own in asked.items() if outcome != "runs"]
    write_ledger(tmp_path / "s", [study_record(), phase("search", "begin"), *asked.values(), *ends])
    for name in [*(own.trial for own in asked.values()), "anytime-vanilla-000-at-0.5"]:
        shutil.copytree(trained / "trials" / "confirm-vanilla-000", tmp_path / "s" / "trials" / name)
    found = unneeded_checkpoints(Location(tmp_path / "s"))
    broken = {(asked[outcome].trial, step) for outcome in outcomes[:3] for step in (6, 12)}
    assert {(one.trial, one.step) for one in found.unneeded} == broken | {(asked["pruned"].trial, 6)}
    assert found.kept == 5


def test_a_study_that_runs_is_left_alone(study: Path) -> None:
    found = unneeded_checkpoints(Location(study))
    descriptor = lock(study / LEDGER)
    with pytest.raises(InputError, match="another process runs this study"):
        remove_checkpoints(found)
    os.close(descriptor)
    assert len(checkpoints(study)) == 16


def test_the_command_asks(study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", str(study)]) == 0
    assert "--yes removes them" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in ("n", "", "what?"):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert main(["clean", str(study)]) == 0
    assert len(checkpoints(study)) == 16
    monkeypatch.setattr("builtins.input", lambda _: "y")
    capsys.readouterr()
    assert main(["clean", str(study)]) == 0
    assert "removed 8 checkpoints" in capsys.readouterr().out
    assert len(checkpoints(study)) == 8
    assert main(["clean", str(study), "--yes"]) == 0
    assert "no checkpoint can go" in capsys.readouterr().out


def test_a_folder_without_a_study(tmp_path: Path) -> None:
    code, message = run_command("clean", str(tmp_path))
    assert code == 2
    assert "no study lies in" in message


def test_on_an_object_store(trained: Path) -> None:
    with s3_server() as port, environment(port):
        storage = Location(f"s3://{BUCKET}/studies")
        for file in trained.rglob("*"):
            if file.is_file() and file.name != LEASE_FILE:
                (storage / file.relative_to(trained.parent).as_posix()).write_bytes(file.read_bytes())
        (line,) = studies_of(storage).studies
        assert (line.name, line.standing, line.ended) == ("trained", "finished", 8)
        assert "vanilla is ahead" in line.verdicts[0]
        folder = storage / "trained"
        found = unneeded_checkpoints(folder)
        assert found.freed_bytes == unneeded_checkpoints(Location(trained)).freed_bytes
        kept = threading.Event()
        thread = threading.Thread(target=_renew, args=(folder, kept))
        thread.start()
        while not (folder / LEDGER / LEASE_FILE).exists():
            time.sleep(0.1)
        try:
            with pytest.raises(InputError, match="another process runs this study"):
                remove_checkpoints(found)
        finally:
            kept.set()
            thread.join()
        (folder / LEDGER / LEASE_FILE).delete()
        assert remove_checkpoints(found).removed
        assert not unneeded_checkpoints(folder).unneeded
        assert verify(folder, head=verify(Location(trained)).head).sound


def _renew(folder: Location, until: threading.Event) -> None:
    """As another machine's process does."""
    holder = Holder.here().model_copy(update={"machine": "another"})
    for times in range(100):
        if until.wait(0.5):
            return
        (folder / LEDGER / LEASE_FILE).write_json(holder.model_copy(update={"renewed": times}).model_dump())
