"""The best of a search is one trial, whoever is asked: what is shown, confirmed, compared, exported and reported."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from rich.console import Console

from orchestrator import formatting
from orchestrator.analysis.compare import compare
from orchestrator.analysis.selection import best_trials
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EndRecord, MeasureRecord, Record, TrialRecord
from orchestrator.reporting.dashboard import render
from orchestrator.reporting.export import _chosen_run
from orchestrator.reporting.log_lines import lines_of
from orchestrator.reporting.optuna_journal import OPTUNA_FILE, write_optuna_journal
from orchestrator.reporting.results import Results
from orchestrator.scheduling.search import SearchPhase
from search_spaces import Configuration
from tests.helpers.ledgers import run
from tests.helpers.ledgers import study as study_record
from tests.helpers.timed_phases import Recorded, study
from trainables.storage import Location

Scored = dict[str, list[tuple[float, Configuration]]]


def scored(records: list[Record], primary: str) -> Scored:
    """By arm, the last score and the configuration of each completed search trial: from the records themselves."""
    begun = {record.trial: record for record in records if isinstance(record, TrialRecord)}
    last = {r.trial: r.yardsticks[primary].overall for r in records if isinstance(r, MeasureRecord) and r.yardsticks}
    found: Scored = {}
    for record in records:
        if isinstance(record, EndRecord) and (record.phase, record.outcome) == ("search", "completed"):
            entry = last[record.trial], begun[record.trial].configuration
            found.setdefault(record.arm, []).append(entry)
    return found


def said_best(records: list[Record]) -> dict[str, str]:
    """By arm, the last line of the log that names a best."""
    history, found = History(), dict[str, str]()
    for record in records:
        history.apply(record)
        for line in lines_of(record, history):
            _, word, *rest = line.split()
            if word == "best":
                found[rest[0]] = line
    return found


def drawn(history: History) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(render(history))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(("primary", "better"), [("recovery_accuracy", max), ("perplexity", min)])
def test_one_best_everywhere(tmp_path: Path, primary: str, better: type[max]) -> None:  # type: ignore[valid-type]
    spec = study("search.budget_per_arm=10", "confirm.seeds=2", f"yardsticks.primary={primary}")
    driver = Recorded(spec, evaluation=1.0).run(SearchPhase)
    entries = scored(driver.records, primary)
    expected = {arm: better(own, key=lambda entry: entry[0]) for arm, own in entries.items()}  # type: ignore[operator]
    for arm, own in entries.items():  # else the check is blind
        assert len(own) > 2
        assert (expected[arm] is own[0]) + (expected[arm] is own[-1]) < 2

    searched = Results(driver.write(tmp_path / "searched"))
    write_optuna_journal(Location(tmp_path), spec, driver.history)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / OPTUNA_FILE)))
    log, shown = said_best(driver.records), drawn(searched.history)
    for arm, (score, configuration) in expected.items():
        assert searched.best(arm) == configuration
        assert compare(searched.history).arms[arm].configuration == configuration
        best = optuna.load_study(study_name=f"demo/{arm}", storage=storage).best_trial
        assert (best.value, best.params) == (score, configuration)
        settings = formatting.settings(configuration)
        assert log[arm].endswith(f"{primary}={formatting.score(score)} {settings}")
        assert settings in " ".join(shown.split()) or all(word in shown for word in settings.split())

    driver.study()
    finished = Results(driver.write(tmp_path / "finished"))
    for arm, (_, configuration) in expected.items():
        confirmed = [r for r in driver.records if isinstance(r, TrialRecord) and (r.phase, r.arm) == ("confirm", arm)]
        assert len(confirmed) == 2
        assert {json.dumps(r.configuration, sort_keys=True) for r in confirmed} == {
            json.dumps(configuration, sort_keys=True)
        }
        assert finished.best(arm) == configuration
        assert finished.answer.comparison.arms[arm].configuration == configuration
        exported = _chosen_run(finished.history, arm, Location(tmp_path))
        assert (exported.configuration, exported.seed) == (configuration, 1)


def test_equal_scores_go_to_the_earlier_and_doubles_count_once() -> None:
    """What a grid comes to twice is one configuration, confirmed once."""
    records: list[Record] = [study_record(primary="accuracy")]
    for number, (score, value) in enumerate([(0.3, 1), (0.5, 2), (0.5, 3), (0.5, 2), (0.4, 4)]):
        records += run("vanilla", number, score, phase="search", configuration={"x": value}, number=number)
    best = best_trials(History.of(records), "vanilla", 3)
    assert [(trial.number, trial.configuration["x"]) for trial in best] == [(1, 2), (2, 3), (4, 4)]
