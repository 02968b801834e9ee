"""A study that is compared at several budgets, stops when it has its answer, is extended, and is verified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_study import h2h, small_study

from orchestrator.history import History
from orchestrator.ledger import read_ledger
from orchestrator.study import Study
from orchestrator.verification import verify
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
        record["protocol"]["margin"] = 0.1


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


def test_the_command(copy):
    done = h2h("verify", str(copy))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as recorded" in done.stdout
    with (copy / "study.yaml").open("a") as file:
        file.write("# touched\n")
    done = h2h("verify", str(copy))
    assert done.returncode == 1
    assert "study.yaml" in done.stdout
    done = h2h("verify", str(copy / "ledger"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
