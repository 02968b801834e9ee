"""A study that is compared at several budgets, stops when it has its answer, is extended, and is verified."""

from __future__ import annotations

import copy as copies
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.analysis.comparison import compare
from orchestrator.analysis.verification import RawTrial, Verification, _check_balance, _is_among_best, verify
from orchestrator.cli import main
from orchestrator.config.files import absolute, dump_study, load_study, make_study, study_names
from orchestrator.ledger.history import History
from orchestrator.ledger.protocol import (
    deciding,
    protocol,
    protocol_digest,
    protocols_after,
    require_unchanged,
    study_digest,
)
from orchestrator.ledger.segments import Record, read_ledger
from orchestrator.study import Study
from tests.helpers.study import small_study
from trainables.errors import InputError
from trainables.storage import Location

TOKENS = 8 * 32 * 40


@pytest.fixture(scope="module")
def extended(ray_cluster, tmp_path_factory) -> tuple[Study, History]:
    """Run to its end; then with more seeds and more search. The second is its history before it was extended."""
    spec = small_study(
        "evidence",
        tmp_path_factory.mktemp("studies"),
        training={"batch_sequences": 8, "learning_rate": 3e-3, "schedule": "wsd", "cooldown": 0.25},
        confirm={"seeds": 3, "stopping": {"minimum": 2}, "evaluations": 2, "anytime": [0.5], "margin": 0.9},
    )
    study = Study(spec)
    before = study.run().history
    assert verify(study.folder).mismatches == []
    again = Study.open(study.folder)
    again.extend(["confirm.seeds=4", "confirm.stopping=null", "search.budget_per_arm=3"])
    return again, before


def test_seeds_end_with_the_answer(extended):
    """Any difference lies within a margin of 0.9: two seeds settle it, of three."""
    _, before = extended
    (pair,) = before.comparison["pairs"]
    assert pair["verdict"] == "equivalent"
    assert pair["yardsticks"]["recovery_accuracy"]["n"] == 2
    assert {trial.seed for trial in before.trials_of("confirm")} == {1, 2}


def test_shares_of_the_budget_are_compared_for_the_price_of_their_cooldowns(extended):
    _, before = extended
    (pair,) = before.comparison["pairs"]
    row = pair["anytime"][0]
    assert (row["share"], row["n"], row["role"]) == (0.5, 2, "exploratory")
    assert [point["yardstick"] for point in pair["anytime"]] == list(pair["yardsticks"])
    for arm in ("headless", "vanilla"):
        runs = before.trials_of("anytime", arm)
        assert [run.seed for run in runs] == [1, 2]
        for run in runs:
            assert run.outcome == "completed"
            assert run.measures[-1]["spent"]["tokens"] == TOKENS / 2
            assert run.measures[0]["spent"]["tokens"] > TOKENS * 3 / 8  # it left its trunk there
            trunk = before.trials[f"confirm-{arm}-{run.number:03d}"]
            assert trunk.measures[-1]["spent"]["tokens"] == TOKENS
        spent = before.comparison["arms"][arm]["spent"]["anytime"]["tokens"]
        assert spent == pytest.approx(2 * 0.25 * TOKENS / 2, rel=0.1)


def test_an_extended_study_keeps_what_it_has_and_says_so(extended):
    study, before = extended
    history = study.results.history
    assert {t.seed for t in history.trials_of("confirm")} >= {1, 2, 3, 4}
    for name, trial in before.trials.items():
        assert history.trials[name].measures == trial.measures, "run again"
    for arm in ("headless", "vanilla"):
        assert len(history.trials_of("search", arm)) > len(before.trials_of("search", arm))
        assert history.spent("search", arm, "tokens") <= 3 * TOKENS
    assert "Exploratory: the study was extended" in study.results.verdict
    assert "Exploratory" not in before.comparison
    assert verify(study.folder).mismatches == []


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("confirm.seeds=4", "nothing to extend"),
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


def change(folder: Path, edit: Any) -> None:
    """Rewrite the ledger's records."""
    for file in (folder / "ledger").glob("*.jsonl"):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        for record in records:
            edit(record)
        file.write_text("".join(json.dumps(record) + "\n" for record in records))


def polish(record: dict[str, Any]) -> None:
    if record["kind"] == "comparison":
        record["pairs"][0]["yardsticks"]["recovery_accuracy"]["difference"] += 0.01


def flatter(record: dict[str, Any]) -> None:
    """A better score: the mean over languages no longer holds, nor the comparison."""
    if record["kind"] == "measure" and record["arm"] == "headless" and record["yardsticks"]:
        record["yardsticks"]["recovery_accuracy"]["overall"] *= 1.1


def flatter_thoroughly(record: dict[str, Any]) -> None:
    """With its languages: the comparison that was drawn from it still gives it away."""
    if record["kind"] == "measure" and record["arm"] == "headless" and record["yardsticks"]:
        score = record["yardsticks"]["recovery_accuracy"]
        score["overall"] *= 1.1
        score["languages"] = {name: 1.1 * value for name, value in score["languages"].items()}


def other_data(record: dict[str, Any]) -> None:
    if record["kind"] == "measure" and record["arm"] == "headless" and record["phase"] == "confirm":
        record["digest"] = record["digest"][::-1]


def overspend(record: dict[str, Any]) -> None:
    if record["kind"] == "measure" and record["phase"] == "confirm" and record["progress"] == 1.0:
        record["spent"]["tokens"] *= 2


def another_question(record: dict[str, Any]) -> None:
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


def rewrite(folder: Path, edit: Callable[[list[Record]], list[Record] | None]) -> Verification:
    """Change the ledger, draw the comparison from it anew, and verify it."""
    records = read_ledger(Location(folder) / "ledger")
    records = edit(records) or records
    for index, record in enumerate(records):
        if record["kind"] == "comparison":
            drawn = json.loads(json.dumps(compare(History.of(records[:index]))))
            records[index] = {"kind": "comparison", "time": record["time"]} | drawn
    for file in (folder / "ledger").glob("*.jsonl"):
        file.unlink()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "ledger" / "000001.jsonl").write_text(lines)
    return verify(Location(folder))


def sessions(records: list[Record]) -> list[Record]:
    return [record for record in records if record["kind"] == "study"]


def another_margin(records: list[Record]) -> None:
    """Beside the protocol: it is what the comparison reads."""
    for session in sessions(records):
        session["margin"] = 1e-6


def another_margin_and_protocol(records: list[Record]) -> None:
    another_margin(records)
    for session in sessions(records):
        session["protocol"]["confirm"]["margin"] = 1e-6
        session["protocol_digest"] = protocol_digest(session["protocol"])


def another_target_in_a_session(records: list[Record]) -> None:
    """In the first session alone: the last is still that of the study's file."""
    first = sessions(records)[0]
    first["yardsticks"]["target"] = first["protocol"]["yardsticks"]["target"] = 0.5
    first["protocol_digest"] = protocol_digest(first["protocol"])


def no_answer(records: list[Record]) -> list[Record]:
    last = max(index for index, record in enumerate(records) if record["kind"] == "comparison")
    return records[:last] + records[last + 1 :]


def the_extension(records: list[Record]) -> Record:
    (extension,) = (record for record in records if record["kind"] == "extension")
    return extension


def an_extension_that_says_less(records: list[Record]) -> None:
    del the_extension(records)["changes"]["confirm.seeds"]


def an_extension_of_another(records: list[Record]) -> None:
    the_extension(records)["changes"]["confirm.seeds"][0] = 2


def no_extension(records: list[Record]) -> list[Record]:
    records.remove(the_extension(records))
    return records


def unbalanced(records: list[Record]) -> list[Record]:
    """The extended search of one arm had more trials: copies of those that it had."""
    place = records.index(the_extension(records))
    ours = [r for r in records[place:] if r.get("phase") == "search" and r.get("arm") == "headless"]
    more = [record | {"trial": f"{record['trial']}{i}"} for i in range(6) for record in ours]
    end = max(i for i, r in enumerate(records) if (r["kind"], r.get("phase")) == ("phase", "search"))
    return records[:end] + more + records[end:]


def not_the_best(records: list[Record]) -> None:
    for record in records:
        if record["kind"] == "trial" and (record["phase"], record["arm"]) == ("confirm", "vanilla"):
            record["configuration"] = record["configuration"] | {"learning_rate": 1e-4}


def other_seeds(records: list[Record]) -> None:
    for record in records:
        if record["kind"] == "trial" and record["phase"] == "confirm":
            record["seed"] += 4


def a_larger_budget(records: list[Record]) -> None:
    for record in records:
        if record["kind"] == "trial" and (record["phase"], record["arm"]) == ("search", "vanilla"):
            record["amount"] *= 2


def ended_by_no_cap(records: list[Record]) -> list[Record]:
    """Confirmation stopped by hand when it looked good, as if a cap had."""
    end = next(i for i, r in enumerate(records) if (r["kind"], r.get("phase")) == ("phase", "compare"))
    cap = {"kind": "cap", "time": records[end]["time"], "message": "", "phase": "confirm", "seeds": 2}
    return [*records[:end], cap, *records[end:]]


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        (ended_by_no_cap, "the cap's end of confirm: a cap in the protocol"),
        (another_margin, "session 2: by its protocol.margin"),
        (another_margin_and_protocol, "study.yaml: protocol.confirm.margin"),
        (another_target_in_a_session, "session 2: protocol, by the session before.yardsticks.target"),
        (no_answer, "a comparison where the study came to its end"),
        (an_extension_that_says_less, "session 2: protocol, by the session before.confirm.seeds"),
        (an_extension_of_another, "extension: before.confirm.seeds"),
        (no_extension, "session 2: protocol, by the session before.search.budget_per_arm"),
        (unbalanced, "the widest lead"),
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
    (before,) = History.of(read_ledger(Location(copy) / "ledger")).comparison["pairs"]
    rewrite(copy, another_margin)
    (after,) = History.of(read_ledger(Location(copy) / "ledger")).comparison["pairs"]
    assert (before["verdict"], after["verdict"]) == ("equivalent", "undecided")


def test_a_ledger_rewritten_as_it_was_is_as_recorded(copy):
    assert rewrite(copy, lambda records: None).mismatches == []


@pytest.mark.parametrize(
    ("top", "cost", "best"),
    [
        (1, None, {"c"}),
        (2, None, {"c", "b"}),
        (3, None, {"c", "b", "a"}),
        (1, "flops", {"a"}),  # within 0.05 of c, and cheaper; d is cheaper still, and worse
        (2, "flops", {"a", "b"}),
        (1, "joules", {"b"}),  # of c and a none were measured
    ],
)
def test_the_best_of_a_search(top, cost, best):
    """c is there twice, which takes no second place; e was stopped on its way."""
    fixed = {
        "search": {"budget_per_arm": 4, "cost": cost},
        "confirm": {"top": top, "margin": 0.05},
        "yardsticks": {"primary": "recovery_accuracy"},
    }
    scores = [("a", 0.46, 1.0), ("b", 0.47, 2.0), ("c", 0.5, 3.0), ("c", 0.49, 3.0), ("d", 0.2, 0.5)]
    scores += [("e", 0.9, 0.1)]

    def begin(space: str) -> Record:
        return {"phase": "search", "arm": "x", "configuration": {"space": space}}

    trials = {
        str(number): RawTrial(
            begin(space),
            [
                {
                    "yardsticks": {"recovery_accuracy": {"overall": score}},
                    "spent": {"flops": spent} | ({"joules": 1.0} if space == "b" else {}),
                }
            ],
            "pruned" if space == "e" else "completed",
        )
        for number, (space, score, spent) in enumerate(scores)
    }
    assert {space for space in "abcdef" if _is_among_best(fixed, trials, begin(space))} == best


@pytest.mark.parametrize(
    ("unit", "spent", "concurrent", "balanced"),
    [
        ("device_seconds", [1.0], 1, True),
        ("device_seconds", [1.04], 1, True),  # it ended a step late
        ("device_seconds", [1.0, 0.5], 1, False),  # half a trial is no step
        ("device_seconds", [1.0, 0.5], 2, True),
        ("tokens", [1.0], 1, True),
        ("tokens", [1.04], 1, False),  # a trial in tokens is never late
    ],
)
def test_the_lead_of_an_arm(unit, spent, concurrent, balanced):
    """One arm's trials spent so much, in trial budgets, before another's first."""
    records: list[Record] = [
        {
            "kind": "study",
            "arms": {"a": {}, "b": {}},
            "budget": {"unit": unit, "amount": 100.0},
            "search_budget": 4,
            "concurrent_per_arm": concurrent,
            "protocol": {"search": {"halving": {"kind": "stopping", "reduction": 3, "rungs": 1}}},
        }
    ]
    for number, share in enumerate(spent):
        measure = {"kind": "measure", "phase": "search", "arm": "a", "trial": f"a{number}", "rung": None}
        records.append(measure | {"spent": {unit: 100.0 * share}})
    found = Verification()
    _check_balance(found, records, {})
    assert (found.mismatches == []) is balanced, found.mismatches


# --- the protocol -------------------------------------------------------------------------------------------


def edited(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Location:
    """The study's file changed by hand."""
    content = yaml.safe_load((folder / "study.yaml").read_text())
    edit(content)
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return Location(folder)


def cut(folder: Path, kind: str, **fields: str) -> list[Record]:
    """The ledger as it was when the last such record was written."""
    records = read_ledger(Location(folder) / "ledger")
    matching = [i for i, r in enumerate(records) if {"kind": kind, **fields}.items() <= r.items()]
    records = records[: matching[-1] + 1]
    for file in (folder / "ledger").glob("*.jsonl"):
        file.unlink()
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "ledger" / "000001.jsonl").write_text(lines)
    return records


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
    for key, (before, _) in records[-1]["changes"].items():
        section, last = key.split(".")
        content[section][last] = before
    (copy / "study.yaml").write_text(dump_study(make_study(content)))
    assert study_digest((copy / "study.yaml").read_bytes()) == records[0]["digest"]
    require_unchanged(folder, records)
    assert verify(folder).mismatches == []
    edited(copy, lambda content: content["confirm"].update(margin=0.1))
    with pytest.raises(InputError, match="changed after the study began"):
        require_unchanged(folder, records)
    assert [m.where for m in verify(folder).mismatches if "confirm.margin" in m.where]


def test_sessions_that_follow_one_another(copy):
    """Cut off and gone on with: another session of the same study."""

    def twice(records: list[Record]) -> list[Record]:
        return [records[0], copies.deepcopy(records[0]), *records[1:]]

    assert rewrite(copy, twice).mismatches == []

    def changed(records: list[Record]) -> None:
        sessions(records)[1]["digest"] = "0" * 16

    assert [m.where for m in rewrite(copy, changed).mismatches] == ["session 2: study.yaml"]


@pytest.mark.parametrize("name", study_names())
def test_the_protocol_is_that_of_the_frozen_file(name, tmp_path, monkeypatch):
    """However often it is loaded and wherever: a job of a cluster resumes what another folder began."""
    monkeypatch.chdir(tmp_path)
    spec = load_study(name)
    file = dump_study(absolute(spec))
    fixed = protocol(yaml.safe_load(file))
    monkeypatch.chdir("/")
    again = dump_study(absolute(make_study(yaml.safe_load(file))))
    assert protocol(yaml.safe_load(again)) == fixed == json.loads(json.dumps(fixed))
    confirm, decides = spec.confirm, deciding(fixed)
    assert decides["budget"] == {"unit": spec.budget.unit, "amount": spec.budget.amount}
    assert decides["confirm_amount"] == spec.confirm_budget.amount
    assert (decides["seeds"], decides["margin"]) == (confirm.seeds, confirm.margin)
    names = (decides["yardsticks"]["primary"], *decides["yardsticks"]["others"])
    assert names == spec.yardsticks.names


def test_protocols_after_extensions():
    """The study goes on as before or as an extension says, whose resources are not in the protocol."""
    fixed = {"confirm": {"seeds": 3, "stopping": None}, "cap": None}
    changes = {"confirm.stopping": [None, {"minimum": 2}], "cap": [None, {"usd": 1}]}
    records: list[Record] = [
        {"kind": "study", "protocol": fixed},
        {"kind": "extension", "changes": {"resources.workers": [1, 2]}},
        {"kind": "extension", "changes": changes},
    ]
    after = {"confirm": {"seeds": 3, "stopping": {"minimum": 2}}, "cap": {"usd": 1}}
    assert protocols_after(records) == [fixed, fixed, after]


def lacks_a_field(record: dict[str, Any]) -> None:
    record.pop("protocol_digest", None)


def lacks_a_beginning(record: dict[str, Any]) -> None:
    if record["kind"] == "trial" and record["trial"] == "confirm-headless-000":
        record["kind"] = "event"
        record["message"] = ""


@pytest.mark.parametrize("edit", [lacks_a_field, lacks_a_beginning])
def test_a_ledger_of_another_kind_is_refused(copy, edit):
    change(copy, edit)
    with pytest.raises(InputError, match="not as this program writes it"):
        verify(Location(copy))


def test_the_command(copy, capsys):
    assert main(["verify", str(copy)]) == 0
    assert "all as recorded" in capsys.readouterr().out
    with (copy / "study.yaml").open("a") as file:
        file.write("# touched\n")
    assert main(["verify", str(copy)]) == 1
    assert "study.yaml" in capsys.readouterr().out
    assert main(["verify", str(copy / "ledger")]) == 2
    assert "Traceback" not in capsys.readouterr().err
