"""``h2h enqueue``, and what is told of configurations that a person chose."""

from __future__ import annotations

import contextlib
import io
import json

import jsonschema
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from orchestrator.analysis.compare import compare
from orchestrator.analysis.methods import methods
from orchestrator.cli import main
from orchestrator.cli.output import schema_of
from orchestrator.ledger.history import History
from orchestrator.ledger.layout import REQUESTS
from orchestrator.ledger.records import EnqueuedRecord, StopRecord, TrialRecord
from orchestrator.ledger.requests import Request
from orchestrator.reporting.log_lines import lines_of
from orchestrator.reporting.optuna_journal import OPTUNA_FILE, write_optuna_journal
from orchestrator.reporting.track.projection import run_of
from orchestrator.scheduling.search import SearchPhase
from orchestrator.study import Study
from tests.helpers.commands import run_command
from tests.helpers.ledgers import changed
from tests.helpers.timed_phases import Recorded, mismatches, study
from trainables.storage import Location

CHOSEN = {"learning_rate": 0.0021}


def said(*words: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(list(words)) == 0
    return output.getvalue()


def asked(driver: Recorded, number: int = 4) -> Recorded:
    driver.record(EnqueuedRecord(arm="vanilla", number=number, configuration=CHOSEN, request="0-a.json"))
    return driver


@pytest.fixture(scope="module")
def finished() -> Recorded:
    return asked(Recorded(study("search.budget_per_arm=4", "confirm.seeds=6"), evaluation=1.0)).study()


def test_it_is_told_wherever_trials_are(finished, tmp_path):
    folder = finished.write(tmp_path / "study").path
    assert "chosen by hand" in said("show", folder, "search-vanilla-004")
    shown = json.loads(said("show", folder, "--json"))
    assert [trial["trial"] for trial in shown["trials"] if trial["by_hand"]] == ["search-vanilla-004"]
    report = json.loads(said("compare", folder, "--json"))
    arms = report["comparison"]["arms"]
    assert {name: arm["search"]["by_hand"] for name, arm in arms.items()} == {"headless": 0, "vanilla": 1}
    assert "1 by hand" in said("compare", folder)


def test_it_is_told_in_the_log_to_trackers_and_in_optunas_file(finished, tmp_path):
    history = History.of(finished.records)
    (record,) = (own for own in finished.records if isinstance(own, EnqueuedRecord))
    (line,) = lines_of(record, history)
    assert line.endswith("enqueued vanilla trial=4 learning_rate=0.0021")
    own = {name for name, trial in history.trials.items() if run_of(history, trial).said.get("chosen") == "by hand"}
    assert own == {"search-vanilla-004"}
    write_optuna_journal(Location(tmp_path), finished.spec, history)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / OPTUNA_FILE)))
    trials = optuna.load_study(study_name=f"{finished.spec.name}/vanilla", storage=storage).trials
    assert [number for number, trial in enumerate(trials) if trial.user_attrs["by_hand"]] == [4]


@pytest.mark.parametrize("best", [True, False])
def test_the_methods_say_whether_it_stands_for_the_arm(finished, best):
    history = History.of(finished.records)
    comparison = compare(history)
    if best:
        arms = comparison.arms | {"vanilla": comparison.arms["vanilla"].model_copy(update={"configuration": CHOSEN})}
        comparison = comparison.model_copy(update={"arms": arms})
    text = methods(history, comparison)
    chosen = "Of vanilla's, 1 configuration was chosen by hand on the way"
    assert (f"{chosen}, its best one among them." if best else f"{chosen}.") in text
    assert "headless's" not in text


def test_a_ledger_whose_trial_had_another_configuration_is_found(finished):
    assert mismatches(finished) == []

    def edit(record):
        if isinstance(record, TrialRecord) and record.trial == "search-vanilla-004":
            return changed(record, configuration={"learning_rate": 0.0022})
        return record

    forged = Recorded(finished.spec)
    forged.records = [edit(record) for record in finished.records]
    assert "search-vanilla-004: what was enqueued" in mismatches(forged)


@pytest.mark.parametrize("outside", [{"learning_rate": 5.0}, {"temperature": 1.0}, CHOSEN | {"temperature": 1.0}, {}])
def test_a_ledger_in_which_something_was_enqueued_that_may_not_be_is_found(finished, outside):
    def edit(record):
        if isinstance(record, EnqueuedRecord | TrialRecord) and (record.arm, record.number) == ("vanilla", 4):
            return changed(record, configuration=outside)
        return record

    forged = Recorded(finished.spec)
    forged.records = [edit(record) for record in finished.records]
    assert "search-vanilla-004: in the search space of its arm" in mismatches(forged)


def test_a_search_that_goes_on_takes_it_up(tmp_path):
    driver = Recorded(study("search.budget_per_arm=4"), evaluation=1.0)
    driver.run(SearchPhase)
    cut = driver.cut(len(driver.records) // 2)
    folder = cut.write(tmp_path / "study").path
    document = json.loads(said("enqueue", folder, "vanilla", "learning_rate=0.0021", "--json"))
    jsonschema.Draft202012Validator(schema_of("enqueued")).validate(document)
    assert document["configuration"] == CHOSEN
    assert (document["taken_up"], document["command"]) == ("searching", f"h2h resume {folder}")
    (file,) = (tmp_path / "study" / REQUESTS).iterdir()
    assert Request.model_validate_json(file.read_bytes()) == Request(arm="vanilla", configuration=CHOSEN)
    cut.record(StopRecord(status="begin"))
    cut.record(StopRecord(status="end"))
    other = cut.write(tmp_path / "stopped").path
    text = said("enqueue", other, "headless", "temperature=0.2")
    assert f"takes this up by:  h2h resume {other}" in text
    assert "negatives=null" in text, "as it is typed"


def test_a_search_that_has_ended_takes_it_up_when_it_is_extended(finished, tmp_path):
    location = finished.write(tmp_path / "study")
    text = said("enqueue", location.path, "vanilla", "learning_rate=0.0021")
    assert f"h2h extend {location.path} --set search.budget_per_arm=5" in text
    found = Study.open(location.path).enqueue("headless", {"temperature": 0.2})
    assert found.filled == ("learning_rate", "negatives")
    assert "as in the arm's first configuration: learning_rate, negatives" in str(found)
    assert len(list((tmp_path / "study" / REQUESTS).iterdir())) == 2


def test_what_cannot_be_asked(finished, tmp_path):
    folder = str(tmp_path / "study")
    finished.write(tmp_path / "study")
    for words, fragments in {
        ("nobody", "learning_rate=1e-3"): ("no arm is called 'nobody'", "headless"),
        ("vanilla", "learning_rate=7"): ("cannot be 7",),
        ("vanilla", "temperature=7"): ("does not vary 'temperature'", "learning_rate"),
    }.items():
        code, text = run_command("enqueue", folder, *words)
        assert code == 2
        assert all(fragment in text for fragment in fragments), text
    assert not (tmp_path / "study" / REQUESTS).exists()
    code, text = run_command("enqueue", str(tmp_path / "nowhere"), "vanilla", "learning_rate=1e-3")
    assert code == 2
    assert "nowhere" in text
    unsearched = Recorded(study("search.budget_per_arm=0"))
    code, text = run_command("enqueue", unsearched.write(tmp_path / "set").path, "vanilla", "learning_rate=1e-3")
    assert code == 2
    assert "the study searches nothing" in text
    assert Location(tmp_path / "set").names()
