"""A study that is compared at several budgets, stops when it has its answer, is extended, and is verified."""

from __future__ import annotations

import copy as copies
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.analysis.compare import compare
from orchestrator.analysis.comparison import Comparison, Pair
from orchestrator.cli import main
from orchestrator.config.files import dump_study, make_study
from orchestrator.ledger.chain import HEAD_OF_NOTHING, head_after, link, unlink
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import protocol_digest, require_unchanged, study_digest
from orchestrator.ledger.records import Record, parse_record
from orchestrator.ledger.segments import read_ledger
from orchestrator.reporting.results import Results
from orchestrator.study import Study
from orchestrator.verification.findings import Verification
from orchestrator.verification.verify import verify
from tests.helpers.study import small_study
from trainables.errors import InputError
from trainables.storage import Location

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

TOKENS = 8 * 32 * 200  # both arms are well above the unigram, or neither could be called equivalent

MARGIN = 0.035
"""The second half of the budget brings both arms more, by some 0.05, and they differ by less."""


@pytest.fixture(scope="module")
def extended(ray_cluster, tmp_path_factory) -> tuple[Study, Results]:
    """Run to its end; then with more seeds and more search. The second is its results before it was extended."""
    spec = small_study(
        "evidence",
        tmp_path_factory.mktemp("studies"),
        training={"batch_sequences": 8, "learning_rate": 3e-3, "schedule": "wsd", "cooldown": 0.25},
        confirm={"seeds": 7, "stopping": {"minimum": 6}, "evaluations": 2, "anytime": [0.5], "margin": MARGIN},
        budget={"tokens": TOKENS},
    )
    study = Study(spec)
    before = study.run()
    assert before.answer.note == "", "what was recorded follows from the ledger"
    assert verify(study.folder).mismatches == []
    again = Study.open(study.folder)
    again.extend(["confirm.seeds=8", "confirm.stopping=null", "search.budget_per_arm=3"])
    return again, before


def recorded_pair(history: History) -> Pair:
    """The only pair of the comparison that the ledger has."""
    assert history.comparison is not None
    comparison = Comparison.from_json(history.comparison.comparison)
    assert comparison is not None
    (pair,) = comparison.pairs
    return pair


def test_seeds_end_with_the_answer(extended):
    """The difference lies within the margin: six seeds settle it, of seven."""
    _, before = extended
    pair = recorded_pair(before.history)
    assert pair.verdict == "equivalent"
    assert pair.yardsticks["recovery_accuracy"].n == 6
    assert {trial.seed for trial in before.history.trials_of("confirm")} == set(range(1, 7))


def test_shares_of_the_budget_are_compared_for_the_price_of_their_cooldowns(extended):
    _, before = extended
    pair, history = recorded_pair(before.history), before.history
    row = pair.branches[0]
    assert (row.share, row.n, row.role) == (0.5, 6, "exploratory")
    assert [point.yardstick for point in pair.branches] == list(pair.yardsticks)
    for arm in ("headless", "vanilla"):
        runs = history.trials_of("anytime", arm)
        assert [run.seed for run in runs] == list(range(1, 7))
        for run in runs:
            assert run.outcome == "completed"
            assert run.measures[-1].spent["tokens"] == TOKENS / 2
            assert run.measures[0].spent["tokens"] > TOKENS * 3 / 8  # it left its trunk there
            trunk = history.trials[f"confirm-{arm}-{run.number:03d}"]
            assert trunk.measures[-1].spent["tokens"] == TOKENS
        spent = before.answer.comparison.arms[arm].spent["anytime"]["tokens"]
        assert spent == pytest.approx(6 * 0.25 * TOKENS / 2, rel=0.1)


def test_an_extended_study_keeps_what_it_has_and_says_so(extended):
    study, before = extended
    history = study.results.history
    assert {t.seed for t in history.trials_of("confirm")} >= set(range(1, 9))
    for name, earlier in before.history.trials.items():
        assert history.trials[name].measures == earlier.measures, "run again"
    for arm in ("headless", "vanilla"):
        assert len(history.trials_of("search", arm)) > len(before.history.trials_of("search", arm))
        assert history.spent("search", arm, "tokens") <= 3 * TOKENS
    assert "Exploratory: the study was extended" in study.results.verdict
    assert "Exploratory" not in before.verdict
    assert verify(study.folder).mismatches == []


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("confirm.seeds=8", "nothing to extend"),
        ("confirm.seeds=2", "can only grow"),
        ("confirm.margin=0.1", "cannot change"),
        ("budget.tokens=100000", "cannot change"),
        ("corpora.alpha=0.5", "cannot change"),
        ("confirm.stopping={minimum: 2}", "nothing to run"),
    ],
)
def test_what_cannot_be_extended(extended, override, what):
    study, _ = extended
    records = read_ledger(study.folder / "ledger")
    with pytest.raises(InputError, match=what):
        study.extend([override])
    assert read_ledger(study.folder / "ledger") == records


# --- verification -------------------------------------------------------------------------------------------


@pytest.fixture
def copy(extended, tmp_path) -> Path:
    shutil.copytree(Path(extended[0].folder.uri), tmp_path / "copy")
    return tmp_path / "copy"


Raw = dict[str, Any]
"""A record as a line of a ledger has it: what is touched need not be a record any more."""


def raw(folder: Path) -> list[Raw]:
    files = sorted((folder / "ledger").glob("*.jsonl"))
    return [json.loads(unlink(line).record) for file in files for line in file.read_bytes().splitlines()]


def put(folder: Path, records: Iterable[Raw]) -> None:
    """Write the ledger anew, in one file, chained."""
    for file in (folder / "ledger").glob("*.jsonl"):
        file.unlink()
    head, lines = HEAD_OF_NOTHING, list[bytes]()
    for record in records:
        lines.append(link(head, json.dumps(record).encode()))
        head = head_after(head, lines[-1])
    (folder / "ledger" / "000001.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def change(folder: Path, edit: Callable[[Raw], None]) -> None:
    """Rewrite the ledger's records."""
    records = raw(folder)
    for record in records:
        edit(record)
    put(folder, records)


def polish(record: Raw) -> None:
    if record["kind"] == "comparison":
        record["comparison"]["pairs"][0]["yardsticks"]["recovery_accuracy"]["difference"] += 0.01


def flatter(record: Raw) -> None:
    """A better score: the mean over languages no longer holds, nor the comparison."""
    if record["kind"] == "measure" and record["arm"] == "headless" and record["yardsticks"]:
        record["yardsticks"]["recovery_accuracy"]["overall"] *= 1.1


def flatter_thoroughly(record: Raw) -> None:
    """With its languages: the comparison that was drawn from it still gives it away."""
    if record["kind"] == "measure" and record["arm"] == "headless" and record["yardsticks"]:
        score = record["yardsticks"]["recovery_accuracy"]
        score["overall"] *= 1.1
        score["languages"] = {name: 1.1 * value for name, value in score["languages"].items()}


def other_data(record: Raw) -> None:
    if record["kind"] == "measure" and record["arm"] == "headless" and record["phase"] == "confirm":
        record["digest"] = record["digest"][::-1]


def overspend(record: Raw) -> None:
    if record["kind"] == "measure" and record["phase"] == "confirm" and record["progress"] == 1.0:
        record["spent"]["tokens"] *= 2


def another_question(record: Raw) -> None:
    if record["kind"] == "study":
        record["protocol"]["confirm"]["margin"] = 0.1


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        (polish, "comparison.pairs[0].yardsticks.recovery_accuracy.difference"),
        (flatter, "recovery_accuracy"),
        (flatter_thoroughly, "comparison."),
        (other_data, "data as of"),
        (overspend, "within its budget"),
        (another_question, "protocol"),
    ],
)
def test_a_ledger_that_was_touched_is_noticed(copy, edit, where):
    change(copy, edit)
    found = verify(Location(copy))
    assert any(where in mismatch.where for mismatch in found.mismatches), found.mismatches[:5]


def rewrite(folder: Path, edit: Callable[[list[Raw]], list[Raw] | None]) -> Verification:
    """Change the ledger, draw the comparison from it anew, and verify it."""
    records = raw(folder)
    records = edit(records) or records
    for index, record in enumerate(records):
        if record["kind"] == "comparison":
            drawn = compare(History.of(typed(records[:index]), Location(folder)))
            records[index] = record | {"comparison": drawn.to_json()}
    put(folder, records)
    return verify(Location(folder))


def typed(records: Iterable[Raw]) -> list[Record]:
    return [parse_record(json.dumps(record).encode()) for record in records]


def sessions(records: list[Raw]) -> list[Raw]:
    return [record for record in records if record["kind"] == "study"]


def another_margin(records: list[Raw]) -> None:
    """Beside the protocol: it is what the comparison reads."""
    for session in sessions(records):
        session["design"]["margin"] = 1e-6


def another_margin_and_protocol(records: list[Raw]) -> None:
    another_margin(records)
    for session in sessions(records):
        session["protocol"]["confirm"]["margin"] = 1e-6
        session["protocol_digest"] = protocol_digest(session["protocol"])


def another_target_in_a_session(records: list[Raw]) -> None:
    """In the first session alone: the last is still that of the study's file."""
    first = sessions(records)[0]
    first["design"]["yardsticks"]["target"] = first["protocol"]["yardsticks"]["target"] = 0.5
    first["protocol_digest"] = protocol_digest(first["protocol"])


def no_answer(records: list[Raw]) -> list[Raw]:
    last = max(index for index, record in enumerate(records) if record["kind"] == "comparison")
    return records[:last] + records[last + 1 :]


def the_extension(records: list[Raw]) -> Raw:
    (extension,) = (record for record in records if record["kind"] == "extension")
    return extension


def an_extension_that_says_less(records: list[Raw]) -> None:
    del the_extension(records)["changes"]["confirm.seeds"]


def an_extension_of_another(records: list[Raw]) -> None:
    the_extension(records)["changes"]["confirm.seeds"][0] = 2


def no_extension(records: list[Raw]) -> list[Raw]:
    records.remove(the_extension(records))
    return records


def unbalanced(records: list[Raw]) -> list[Raw]:
    """The extended search of one arm had more trials: copies of those that it had."""
    place = records.index(the_extension(records))
    ours = [r for r in records[place:] if r.get("phase") == "search" and r.get("arm") == "headless"]
    more = [record | {"trial": f"{record['trial']}{i}"} for i in range(6) for record in ours]
    end = max(i for i, r in enumerate(records) if (r["kind"], r.get("phase")) == ("phase", "search"))
    return records[:end] + more + records[end:]


def not_the_best(records: list[Raw]) -> None:
    for record in records:
        if record["kind"] == "trial" and (record["phase"], record["arm"]) == ("confirm", "vanilla"):
            record["configuration"] = record["configuration"] | {"learning_rate": 1e-4}


def other_seeds(records: list[Raw]) -> None:
    for record in records:
        if record["kind"] == "trial" and record["phase"] == "confirm":
            record["seed"] += 8


def a_larger_budget(records: list[Raw]) -> None:
    for record in records:
        if record["kind"] == "trial" and (record["phase"], record["arm"]) == ("search", "vanilla"):
            record["amount"] *= 2


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        (another_margin, "session 2: by its protocol.margin"),
        (another_margin_and_protocol, "study.yaml: protocol.confirm.margin"),
        (another_target_in_a_session, "session 2: protocol, by the session before.yardsticks.target"),
        (no_answer, "a comparison where the study came to its end"),
        (an_extension_that_says_less, "session 2: protocol, by the session before.confirm.seeds"),
        (an_extension_of_another, "extension: before.confirm.seeds"),
        (no_extension, "session 2: protocol, by the session before.search.budget_per_arm"),
        (unbalanced, "of 3 trial budgets of search"),
        (not_the_best, "confirm-vanilla-000: among the best configurations"),
        (other_seeds, "confirm-vanilla-000: a seed of the protocol"),
        (a_larger_budget, "search-vanilla-000: its budget"),
    ],
)
def test_what_decides_is_bound_even_where_the_comparison_follows_from_it(copy, edit, where):
    found = rewrite(copy, edit)
    assert any(where in mismatch.where for mismatch in found.mismatches), found.mismatches[:5]


def test_a_margin_beside_the_protocol_would_decide(copy):
    """Else the first of the changes above would prove nothing."""
    before = recorded_pair(Results(Location(copy)).history)
    rewrite(copy, another_margin)
    after = recorded_pair(Results(Location(copy)).history)
    assert before.verdict == "equivalent" != after.verdict


def test_a_ledger_rewritten_as_it_was_is_as_recorded(copy):
    assert rewrite(copy, lambda records: None).mismatches == []


# --- the protocol -------------------------------------------------------------------------------------------


def edited(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Location:
    """The study's file changed by hand."""
    content = yaml.safe_load((folder / "study.yaml").read_text())
    edit(content)
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return Location(folder)


def cut(folder: Path, kind: str, **fields: str) -> list[Record]:
    """The ledger, and which runs have files, as they were when the last such record was written."""
    records = raw(folder)
    wanted = {"kind": kind, **fields}
    matching = [i for i, r in enumerate(records) if all(r.get(key) == value for key, value in wanted.items())]
    put(folder, records[: matching[-1] + 1])
    known = {record["trial"] for record in records[: matching[-1] + 1] if "trial" in record}
    for file in (*(folder / "trials").iterdir(), *(folder / "items").iterdir()):
        if file.stem.removesuffix("-floors") not in known:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    return read_ledger(Location(folder) / "ledger")


@pytest.mark.parametrize(
    ("place", "value"), [("confirm.margin", 0.1), ("confirm.seeds", 9), ("training.learning_rate", 0.1)]
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_study_that_was_changed_by_hand_does_not_go_on(copy, place, value, finished):
    if not finished:
        cut(copy, "phase", phase="confirm", status="begin")
    records = read_ledger(Location(copy) / "ledger")
    section, key = place.split(".")
    folder = edited(copy, lambda content: content[section].update({key: value}))
    for go_on in (lambda study: study.resume(), lambda study: study.extend(["confirm.seeds=12"])):
        with pytest.raises(InputError, match="changed after the study began") as error:
            go_on(Study.open(folder))
        assert place in error.value.where
        assert f"{place} was" in error.value.why
        assert f"h2h extend {folder}" in error.value.remedy
    assert read_ledger(Location(copy) / "ledger") == records


def test_a_study_of_another_file_does_not_go_on(copy):
    """Nor from Python, where the study is at hand."""
    frozen = Study.open(copy)
    confirm = frozen.spec.confirm.model_copy(update={"margin": 0.1})
    other = Study(frozen.spec.model_copy(update={"confirm": confirm}))
    other.folder = frozen.folder
    with pytest.raises(InputError, match="began with another 'confirm'"):
        other.resume()


def test_a_study_without_its_file_does_not_go_on(copy):
    study = Study.open(copy)
    (copy / "study.yaml").unlink()
    with pytest.raises(InputError, match="the study itself is missing"):
        study.run()


def test_cut_off_while_it_was_extended(copy):
    """With the file as it was before, or as it is after; and with nothing else."""
    folder, records = Location(copy), cut(copy, "extension")
    require_unchanged(folder, records)
    assert verify(folder).mismatches == []
    content = yaml.safe_load((copy / "study.yaml").read_text())
    for key, (before, _) in records[-1].changes.items():
        section, last = key.split(".")
        content[section][last] = before
    (copy / "study.yaml").write_text(dump_study(make_study(content)))
    assert study_digest((copy / "study.yaml").read_bytes()) == records[0].digest
    require_unchanged(folder, records)
    assert verify(folder).mismatches == []
    edited(copy, lambda content: content["confirm"].update(margin=0.1))
    with pytest.raises(InputError, match="changed after the study began"):
        require_unchanged(folder, records)
    assert [m.where for m in verify(folder).mismatches if "confirm.margin" in m.where]


def test_sessions_that_follow_one_another(copy):
    """Cut off and gone on with: another session of the same study."""

    def twice(records: list[Raw]) -> list[Raw]:
        return [records[0], copies.deepcopy(records[0]), *records[1:]]

    assert rewrite(copy, twice).mismatches == []

    def another_file(records: list[Raw]) -> None:
        sessions(records)[1]["digest"] = "0" * 16

    assert [m.where for m in rewrite(copy, another_file).mismatches] == ["session 2: study.yaml"]


def lacks_a_field(record: Raw) -> None:
    record.pop("protocol_digest", None)


def lacks_a_beginning(record: Raw) -> None:
    if record["kind"] == "trial" and record["trial"] == "confirm-headless-000":
        for key in set(record) - {"time"}:
            del record[key]
        record.update(kind="event", message="")


@pytest.mark.parametrize(
    ("edit", "why"),
    [(lacks_a_field, "protocol_digest: Field required"), (lacks_a_beginning, "a trial that was never asked for")],
)
def test_a_ledger_of_another_kind_is_refused(copy, edit, why, capsys):
    whole = len(raw(copy))
    change(copy, edit)
    found = verify(Location(copy))
    assert found.records + len(found.damaged) == whole
    assert why in found.damaged[0]
    assert str(copy / "ledger" / "000001.jsonl, line ") in found.damaged[0]
    assert not found.checks, "nothing is derived from the rest"
    assert main(["verify", str(copy)]) == 1
    assert f"{found.records:,} records" in capsys.readouterr().out
    with pytest.raises(InputError, match="the ledger is damaged"):
        Results(Location(copy))


def test_the_command(copy, capsys):
    assert main(["verify", str(copy)]) == 0
    assert "all as recorded" in capsys.readouterr().out
    with (copy / "study.yaml").open("a") as file:
        file.write("# touched\n")
    assert main(["verify", str(copy)]) == 1
    assert "study.yaml" in capsys.readouterr().out
    assert main(["verify", str(copy / "ledger")]) == 2
    assert "Traceback" not in capsys.readouterr().err
