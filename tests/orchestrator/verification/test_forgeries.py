"""What ``h2h verify`` finds of a forged study; and what only a published head, or scoring again, can find."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orchestrator.analysis.compare import compare
from orchestrator.cli import main
from orchestrator.ledger.chain import HEAD_OF_NOTHING, head_after, link, unlink
from orchestrator.ledger.history import History
from orchestrator.ledger.records import Record, parse_record
from orchestrator.reporting.results import Results
from orchestrator.verification.findings import Verification
from orchestrator.verification.verify import verify
from tests.helpers.trained_study import write_trained_study
from trainables.evaluation.item_scores import from_parquet, items_file, to_parquet
from trainables.evaluation.yardstick import Items
from trainables.hashing import checksum
from trainables.storage import Location

torch.set_num_threads(1)

ADDED = 0.12
LOSER = "vanilla"
Edit = Callable[[list[dict[str, Any]], Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    return write_trained_study(tmp_path_factory.mktemp("studies"))


@pytest.fixture
def study(honest: Path, tmp_path: Path) -> Path:
    """A copy to forge."""
    shutil.copytree(honest.parent, tmp_path / "studies")
    return tmp_path / "studies" / honest.name


def forge(study: Path, edit: Edit, *, rechained: bool) -> None:
    """Edit the ledger's records as a forger would, with an answer that follows from them; the chain is left as it was,
    or made anew."""
    files = {file: file.read_bytes().splitlines() for file in sorted((study / "ledger").glob("*.jsonl"))}
    written = [json.loads(line) | {"segment": file.name} for file, lines in files.items() for line in lines]
    forged, head = edit(written, study), HEAD_OF_NOTHING
    before, parsed, out = None, list[Record](), {file.name: list[bytes]() for file in files}
    for content in forged:
        segment, before = content.pop("segment"), content.pop("before")
        record = parse_record(json.dumps(content).encode())
        if record.kind == "comparison":
            content["comparison"] = compare(History.of(parsed, Location(study))).to_json()
        parsed.append(record)
        line = link(head if rechained else before, json.dumps(content).encode())
        head = head_after(head, line)
        out[segment].append(line + b"\n")
    for name, lines in out.items():
        (study / "ledger" / name).write_bytes(b"".join(lines))


def kinds(found: Verification, study: Path) -> set[str]:
    """Of what a mismatch is; the honest study has none of it."""
    wheres = [mismatch.where for mismatch in found.mismatches]
    return {
        "chain" if "the digest of what is before it" in where else where.replace(str(study), "") for where in wheres
    }


def finals(written: list[dict[str, Any]], arm: str = LOSER) -> list[dict[str, Any]]:
    return [r for r in written if r["kind"] == "measure" and r["arm"] == arm and r["progress"] == 1.0]


def add(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
    """The loser's scores are higher by so much at the end."""
    for record in finals(written):
        score = record["yardsticks"]["recovery_mrr"]
        score["overall"] += ADDED
        score["languages"] = {name: value + ADDED for name, value in score["languages"].items()}
    return written


def lower(score: dict[str, Any]) -> None:
    """To the half, in all languages."""
    score["overall"] /= 2
    score["languages"] = {name: value / 2 for name, value in score["languages"].items()}


def change_items(file: Location, change: Callable[[str, Items], Items]) -> str:
    """Another file in the place of one; its digest."""
    found = from_parquet(file.read_bytes(), str(file))
    content: dict[str, dict[str, dict[str, Items]]] = {}
    for (yardstick, scorer), own in found.items():
        changed = {name: change(yardstick, part) for name, part in own.languages.items()}
        content.setdefault(scorer, {})[yardstick] = changed
    file.write_bytes(data := to_parquet(content))
    return checksum(data)


def add_with_items(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
    """And so are the files of their items, all over."""

    def more(yardstick: str, own: Items) -> Items:
        return own._replace(value_I=own.value_I + ADDED * own.weight_I) if yardstick == "recovery_mrr" else own

    for record in finals(add(written, study)):
        record["items"] = change_items(items_file(Location(study), record["trial"]), more)
    return written


def test_an_honest_study(honest: Path) -> None:
    """Scored again and read again, it is the same to the bit."""
    found = verify(Location(honest), head=Results(Location(honest)).head, text=True, rescored=2, seed=5)
    assert found.mismatches == []
    assert {"chain", "head", "checkpoints", "floors", "item scores", "text", "scored again"} < found.checks.keys()
    (scored,) = (note for note in found.notes if note.startswith("scored again"))
    assert "--seed 5 of 8 checkpoints" in scored
    assert scored.endswith("; exactly")
    assert found.in_words().endswith(f"head {Results(Location(honest)).head}")


def test_scores_are_raised(study: Path) -> None:
    """The forgery that passed when only the ledger was looked at: the answer follows from it, and turns round."""
    before = Results(Location(study)).answer.comparison.pairs[0]
    forge(study, add, rechained=False)
    after = Results(Location(study)).answer.comparison.pairs[0]
    moved = after.yardsticks["recovery_mrr"].difference - before.yardsticks["recovery_mrr"].difference
    assert abs(moved) == pytest.approx(ADDED)
    found = kinds(verify(Location(study)), study)
    assert "chain" in found
    assert any(where.startswith("confirm-vanilla-000: recovery_mrr by ") for where in found)
    assert main(["verify", str(study)]) == 1


def test_scores_are_raised_and_the_chain_is_made_anew(study: Path) -> None:
    head = Results(Location(study)).head
    forge(study, add, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert {where.split(".")[0].split(" by ")[0] for where in found} == {
        f"confirm-{LOSER}-{number:03d}: recovery_mrr" for number in range(4)
    }
    assert "--head" in kinds(verify(Location(study), head=head), study)


def test_scores_are_raised_in_all_files(study: Path) -> None:
    """Whoever wrote every file himself is believed, but for what he published, and what models say."""
    head = Results(Location(study)).head
    forge(study, add_with_items, rechained=True)
    assert verify(Location(study)).mismatches == []
    assert kinds(verify(Location(study), head=head), study) == {"--head"}
    again = kinds(verify(Location(study), rescored=8), study)
    assert {where.split(":")[0] for where in again} == {f"confirm-{LOSER}-{number:03d}" for number in range(4)}


def test_the_spread_over_text_is_made_smaller(study: Path) -> None:
    """Scores stay, and every document has the same: only the model knows better."""

    def level(yardstick: str, own: Items) -> Items:
        return own._replace(value_I=own.ratio * own.weight_I)

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        for record in finals(written):
            record["items"] = change_items(items_file(Location(study), record["trial"]), level)
        return written

    before = Results(Location(study)).answer.comparison.pairs[0].yardsticks["recovery_mrr"].text_error
    forge(study, edit, rechained=True)
    after = Results(Location(study)).answer.comparison.pairs[0].yardsticks["recovery_mrr"].text_error
    assert after < before
    assert verify(Location(study)).mismatches == []
    again = kinds(verify(Location(study), rescored=8), study)
    assert any("items of recovery_mrr" in where for where in again)


@pytest.mark.parametrize("arms", [("headless", "vanilla"), ("vanilla",)])
def test_floors_are_lowered(study: Path, arms: tuple[str, ...]) -> None:
    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        for record in written:
            if record["kind"] == "begun" and record["floors"] and record["arm"] in arms:
                lower(record["floors"]["tables"]["unigram"]["recovery_mrr"])
        return written

    forge(study, edit, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert "confirm-vanilla-000 before its first step: recovery_mrr by unigram.overall" in found
    assert any(where.startswith("confirm-vanilla-000: recovery_mrr by unigram as of") for where in found) == (
        len(arms) == 1
    )


def test_floors_are_lowered_in_all_files(study: Path) -> None:
    def half(yardstick: str, own: Items) -> Items:
        return own._replace(value_I=own.value_I / 2) if yardstick == "recovery_mrr" else own

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        for record in written:
            if record["kind"] == "begun" and (floors := record["floors"]):
                floors["items"] = change_items(items_file(Location(study), record["trial"], floors=True), half)
                for scores in (floors["untrained"], *floors["tables"].values()):
                    lower(scores["recovery_mrr"])
        return written

    forge(study, edit, rechained=True)
    assert verify(Location(study)).mismatches == []
    again = kinds(verify(Location(study), rescored=1), study)
    assert any("before its first step: recovery_mrr by bigram" in where for where in again)


def test_floors_are_left_out(study: Path) -> None:
    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        return [r | {"floors": None} if r["kind"] == "begun" else r for r in written]

    forge(study, edit, rechained=True)
    expected = {f"{arm}: a confirmation run measured them" for arm in ("headless", "vanilla")}
    assert kinds(verify(Location(study)), study) == expected


def test_item_files_change_places(study: Path) -> None:
    """One digest of another's file; and with the digests in the ledger too."""
    one, other = (items_file(Location(study), f"confirm-{arm}-001") for arm in ("headless", "vanilla"))
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    found = verify(Location(study))
    assert {f"/items/{file.name}" for file in (one, other)} == kinds(found, study)
    assert "comparison" not in found.checks, "it cannot be computed"

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        for record in written:
            if record["kind"] == "measure" and record["items"]:
                record["items"] = checksum(items_file(Location(study), record["trial"]).read_bytes())
        return written

    forge(study, edit, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert {where.split(":")[0] for where in found} >= {"confirm-headless-001", "confirm-vanilla-001"}


@pytest.mark.parametrize("floors", [False, True])
def test_a_file_of_items_is_missing(study: Path, floors: bool, capsys: pytest.CaptureFixture[str]) -> None:
    items_file(Location(study), "confirm-vanilla-000", floors=floors).delete()
    assert main(["verify", str(study), "--rescore", "8"]) == 1
    said = capsys.readouterr().out
    assert "mismatch: " in said
    assert "are missing" in said


def test_item_files_are_left_out(study: Path) -> None:
    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        return [r | {"items": None, "checkpoint": None} if r["kind"] == "measure" else r for r in written]

    forge(study, edit, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert "confirm-headless-000: its report names their file" in found
    assert "confirm-headless-000: its report has a digest" in found


def test_a_record_is_taken_out_of_the_middle(study: Path) -> None:
    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        place = next(n for n, record in enumerate(written) if record["kind"] == "measure" and record["progress"] < 0.5)
        return [*written[:place], *written[place + 1 :]]

    forge(study, edit, rechained=False)
    assert kinds(verify(Location(study)), study) == {"chain"}


def test_a_run_is_left_out(study: Path) -> None:
    """All its records, and a chain that knows nothing of it: its files are still there."""

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        return [record for record in written if record.get("trial") != "confirm-vanilla-003"]

    forge(study, edit, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert found == {"/trials/confirm-vanilla-003", "/items/confirm-vanilla-003.parquet"}


@pytest.mark.parametrize("outcome", ["diverged", "failed", "lost"])
@pytest.mark.parametrize("thoroughly", [False, True])
def test_a_run_that_came_to_its_end_is_said_to_have_broken(study: Path, outcome: str, thoroughly: bool) -> None:
    """Then it would count as the worst model, or for nothing; ``thoroughly``: its last report goes too."""
    name = "confirm-vanilla-003"

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        last = [record for record in written if record.get("trial") == name and record["kind"] == "measure"][-1]
        for record in written:
            if record.get("trial") == name and record["kind"] == "end":
                record["outcome"] = outcome
        return [record for record in written if not (thoroughly and record is last)]

    forge(study, edit, rechained=True)
    found = [mismatch.where for mismatch in verify(Location(study)).mismatches]
    assert f"{name}: the outcome of a run with a finished model" in found


def test_an_attempt_no_longer_says_what_it_ran_on(study: Path) -> None:
    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        others = [r for r in written if r["kind"] == "begun"][2:]
        return [r | {"environment": None} if r in others else r for r in written]

    forge(study, edit, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert len(found) == 6
    assert "confirm-vanilla-003 1: it says in what it ran" in found


@pytest.mark.parametrize("number", [1, 2])
def test_a_session_is_dropped(study: Path, number: int) -> None:
    """The last one leaves no trace but the published head."""
    head = Results(Location(study)).head
    sessions = sorted((study / "ledger").glob("*.jsonl"))
    sessions[number].unlink()
    found = verify(Location(study), head=head)
    assert "--head" in kinds(found, study)
    assert ("chain" in kinds(found, study)) == (number == 1)


def test_the_chain_is_taken_out(study: Path) -> None:
    for file in (study / "ledger").glob("*.jsonl"):
        lines = [unlink(line).record for line in file.read_bytes().splitlines()]
        file.write_bytes(b"".join(line + b"\n" for line in lines))
    found = verify(Location(study))
    assert found.notes[0].startswith("131 of 131 records have no chain")
    assert "chain" not in found.checks


def test_what_was_written_after_the_published_head(study: Path) -> None:
    """It is another ledger, of which the published one is the first part."""
    head = Results(Location(study)).head
    file = sorted((study / "ledger").glob("*.jsonl"))[-1]
    with file.open("ab") as ledger:
        ledger.write(link(head, b'{"kind":"event","time":1.0,"message":"more"}') + b"\n")
    (mismatch,) = verify(Location(study), head=head[:16]).mismatches
    assert mismatch.where == "--head, which is that of the first 131 of 132 records"


def last_checkpoint(study: Path, trial: str) -> Path:
    return sorted((study / "trials" / trial).glob("start-*/step-*"))[-1]


def test_weights_are_exchanged(study: Path) -> None:
    """Two models change places, each undamaged where it lies."""
    one, other = (last_checkpoint(study, f"confirm-{arm}-001") for arm in ("headless", "vanilla"))
    one.rename(study / "aside")
    other.rename(one)
    (study / "aside").rename(other)
    found = kinds(verify(Location(study)), study)
    assert {where.split("/start")[0] for where in found} == {
        f"/trials/confirm-{arm}-001" for arm in ("headless", "vanilla")
    }


def test_runs_of_an_arm_exchange_their_seeds(study: Path) -> None:
    """Pairs are others then, and so is their spread; what each model was trained on stands beside it."""
    one, other = "confirm-vanilla-001", "confirm-vanilla-002"

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        key = "trial", "step"
        seeds = {r["trial"]: r["seed"] for r in written if r["kind"] == "trial"}
        digests = {tuple(r[k] for k in key): r["digest"] for r in written if r["kind"] == "measure"}
        for record in written:
            if record.get("trial") in (one, other):
                twin = other if record["trial"] == one else one
                if record["kind"] == "trial":
                    record["seed"] = seeds[twin]
                elif record["kind"] == "measure":
                    record["digest"] = digests[twin, record["step"]]
        return written

    before = Results(Location(study)).answer.comparison.pairs[0].yardsticks["recovery_mrr"]
    forge(study, edit, rechained=True)
    after = Results(Location(study)).answer.comparison.pairs[0].yardsticks["recovery_mrr"]
    assert after.deviation != pytest.approx(before.deviation)
    assert after.difference == pytest.approx(before.difference)
    assert kinds(verify(Location(study)), study) == {
        f"{name}: what it was trained on, by its checkpoint" for name in (one, other)
    }


def test_scores_on_the_way_are_lowered(study: Path) -> None:
    """They make the margin, where the study names none, and what a yardstick is said to tell."""

    def edit(written: list[dict[str, Any]], study: Path) -> list[dict[str, Any]]:
        for record in written:
            if record["kind"] == "measure" and record["arm"] == "vanilla" and record["progress"] < 1:
                for score in record["yardsticks"].values():
                    lower(score)
        return written

    forge(study, edit, rechained=True)
    found = kinds(verify(Location(study)), study)
    assert "confirm-vanilla-001 step 6, by its checkpoint: recovery_mrr.overall" in found


def test_weights_are_changed(study: Path) -> None:
    file = last_checkpoint(study, "confirm-vanilla-002") / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert kinds(verify(Location(study)), study) == {str(file).replace(str(study), "")}


def test_checkpoints_that_are_gone_are_told(study: Path) -> None:
    shutil.rmtree(study / "trials" / "confirm-vanilla-002")
    found = verify(Location(study), rescored=8)
    assert found.mismatches == []
    assert any(note.startswith("1 of 8 completed runs have no checkpoint here") for note in found.notes)
    assert any("of 7 checkpoints" in note for note in found.notes)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_text_is_another(study: Path, split: str) -> None:
    """With a manifest that fits it: the ledger has the manifest's digest, and of what was trained on its own."""
    corpus = study.parent / "corpora" / "small"
    shard = corpus / f"shards/{split}/en-00000.npy"
    before = checksum(shard.read_bytes())
    tokens = np.load(shard)
    tokens[:, 3] = 7
    np.save(shard, tokens)
    assert kinds(verify(Location(study), text=True), corpus) == {f"/shards/{split}/en-00000.npy: as the manifest says"}
    manifest = corpus / "manifest.json"
    manifest.write_text(manifest.read_text().replace(before, checksum(shard.read_bytes())))
    found = kinds(verify(Location(study), text=True), corpus)
    assert ".manifest.json" in found
    assert any(where.endswith("the text trained on") for where in found) == (split == "train")


def test_an_attempt_says_what_it_ran_on(honest: Path) -> None:
    for run in Results(Location(honest)).history.trials.values():
        assert run.environment is not None
        assert run.environment.versions.keys() == {"headtohead", "ray", "torch", "transformers", "optuna", "python"}
        assert run.environment.versions["torch"] == torch.__version__
        assert (run.built[0].device, run.built[0].precision) == ("cpu", "float32")


def test_a_head_that_is_none_is_refused(honest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(honest), "--head", "abc"]) == 2
    assert "--head" in capsys.readouterr().err
