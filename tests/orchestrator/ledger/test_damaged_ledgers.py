"""A damaged ledger is refused with file, line and what to do; ``h2h verify`` says which of its records are whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.ledger.layout import LEASE_FILE
from orchestrator.ledger.recorder import Recorder
from orchestrator.ledger.records import MeasureRecord, TrialRecord, to_line
from orchestrator.ledger.segments import LedgerWriter
from orchestrator.reporting.results import Results
from orchestrator.verification.verify import verify
from tests.helpers.ledgers import write_ledger
from tests.helpers.timed_phases import Recorded, study
from trainables.errors import InputError
from trainables.storage import Location

WHOLE = Recorded(study("search.budget_per_arm=1", "confirm.seeds=2")).study()
RECORDS = WHOLE.records
FIRST = 20
"""Records of the first of two segments."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    write_ledger(folder, RECORDS[:FIRST])
    write_ledger(folder, RECORDS[FIRST:], segment=2)
    (folder / "study.yaml").write_bytes(WHOLE.file)
    return folder


def line_of(kind: type, segment: int) -> int:
    """The number of the first line of a kind in a segment."""
    own = RECORDS[:FIRST] if segment == 1 else RECORDS[FIRST:]
    return next(number for number, record in enumerate(own, start=1) if isinstance(record, kind))


def put(folder: Path, segment: int, number: int, line: bytes) -> None:
    file = folder / "ledger" / f"{segment:06d}.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[number - 1] = line
    file.write_bytes(b"\n".join(lines))


def edited(change: Callable[[dict[str, Any]], object], kind: type) -> Callable[[bytes], bytes]:
    def edit(line: bytes) -> bytes:
        content = json.loads(line)
        change(content)
        return json.dumps(content).encode()

    edit.kind = kind  # type: ignore[attr-defined]
    return edit


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a flipped bit": (lambda line: line.replace(b'"kind":', b'"kind"z', 1), "Invalid JSON"),
    "no UTF-8": (lambda line: line.replace(b"measure", b"measur\xff", 1), "Invalid JSON: invalid unicode"),
    "cut short": (lambda line: line[:-20], "Invalid JSON: EOF"),
    "an empty line": (lambda line: b"", "Invalid JSON: EOF"),
    "a list": (lambda line: b"[1]", "should be an object"),
    "a field is missing": (edited(lambda r: r.pop("spent"), MeasureRecord), "spent: Field required"),
    "of another type": (edited(lambda r: r.update(progress="half"), MeasureRecord), "progress: Input should be a"),
    "no unit": (edited(lambda r: r["spent"].pop("tokens"), MeasureRecord), "spent: Value error, tokens missing"),
    "an unknown field": (edited(lambda r: r.update(more=1), MeasureRecord), "more: Extra inputs"),
    "an unknown kind": (edited(lambda r: r.update(kind="guess"), MeasureRecord), "'guess'"),
    "not finite": (lambda line: line.replace(b'"loss":', b'"loss":NaN,"x":', 1), "loss: Input should be"),
    "of no trial": (edited(lambda r: r.update(trial="another"), MeasureRecord), "a trial that was never asked for"),
}


@pytest.mark.parametrize("segment", [1, 2])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_named(folder: Path, damage: str, segment: int, capsys: pytest.CaptureFixture[str]) -> None:
    edit, why = DAMAGE[damage]
    number = line_of(MeasureRecord, segment)
    before = (RECORDS[:FIRST] if segment == 1 else RECORDS[FIRST:])[number - 1]
    put(folder, segment, number, edit(to_line(before).rstrip(b"\n")))
    place = f"{folder}/ledger/{segment:06d}.jsonl, line {number}"
    with pytest.raises(InputError, match="the ledger is damaged") as caught:
        Results(Location(folder))
    assert caught.value.where == place
    assert why in caught.value.why
    assert "h2h verify" in caught.value.remedy
    for command in ("compare", "watch", "resume"):
        assert main([command, str(folder)]) == 2
        told = capsys.readouterr().err
        assert place in told
        assert "Traceback" not in told
    found = verify(Location(folder))
    assert found.records == len(RECORDS) - 1
    assert [line.startswith(f"{place}: ") and why in line for line in found.damaged] == [True]
    assert not found.checks
    assert main(["verify", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert f"damaged: {place}: " in shown
    assert f"{len(RECORDS) - 1:,} records are whole, 1 are not" in shown


def test_all_that_is_damaged_is_told(folder: Path) -> None:
    """What follows from a damaged record is none either: the trial of which the beginning is gone."""
    number = line_of(TrialRecord, 1)
    trial = RECORDS[number - 1]
    assert isinstance(trial, TrialRecord)
    put(folder, 1, number, b"{")
    put(folder, 2, len(RECORDS) - FIRST, b"\0\0\0")
    found = verify(Location(folder))
    following = [r for r in RECORDS if r is not trial and getattr(r, "trial", "") == trial.trial]
    assert len(following) > 3, "the check is blind"
    assert len(found.damaged) == 2 + len(following)
    assert found.records + len(found.damaged) == len(RECORDS)
    assert found.damaged[0].startswith(f"{folder}/ledger/000001.jsonl, line {number}: ")
    assert found.damaged[-1].startswith(f"{folder}/ledger/000002.jsonl, line {len(RECORDS) - FIRST}: ")


def test_a_torn_last_line_is_no_damage(folder: Path) -> None:
    """As a power cut leaves it, in any segment: what was not wholly written was not said."""
    for segment in (1, 2):
        with (folder / "ledger" / f"{segment:06d}.jsonl").open("ab") as file:
            file.write(b'{"kind": "event", "mess')
    found = verify(Location(folder))
    assert (found.records, found.damaged) == (len(RECORDS), [])
    assert Results(Location(folder)).history.finished


def test_a_segment_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "ledger" / "000003.jsonl").mkdir()
    with pytest.raises(InputError, match="the ledger is damaged") as caught:
        Results(Location(folder))
    assert caught.value.where == f"{folder}/ledger/000003.jsonl"
    assert "s a directory" in caught.value.why


def test_nothing_is_written_after_what_is_damaged(folder: Path) -> None:
    """A study that cannot be read does not go on; its files stay as they are, to be looked at."""
    put(folder, 2, 3, b"oops")
    before = {path: path.read_bytes() for path in sorted((folder / "ledger").iterdir())}
    with pytest.raises(InputError, match="the ledger is damaged"):
        Recorder(Location(folder / "ledger"))
    after = {path: path.read_bytes() for path in sorted((folder / "ledger").iterdir()) if path.stat().st_size}
    after.pop(folder / "ledger" / LEASE_FILE)  # who tried
    assert after == before
    assert main(["resume", str(folder)]) == 2


def test_a_file_that_is_no_segment_is_passed_over(folder: Path) -> None:
    """Such as an editor's, or one that a person has put there; the next segment's number follows the last one's."""
    for name in ("000002.jsonl~", "notes.jsonl", "\u00b2.jsonl", "-1.jsonl", "000009.json"):
        (folder / "ledger" / name).write_text("no record")
    assert verify(Location(folder)).records == len(RECORDS)
    LedgerWriter(Location(folder / "ledger")).close()
    assert (folder / "ledger" / "000003.jsonl").read_bytes() == b""
