"""Several studies: a storage's in a line each, and side by side without one changing another's numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.analysis.report import report_of
from orchestrator.cli import main
from orchestrator.ledger.history import History
from orchestrator.reporting import report_tables
from orchestrator.reporting.results import Results
from orchestrator.reporting.studies import studies_of
from tests.helpers.commands import run_command
from tests.helpers.demonstration import records
from tests.helpers.ledgers import write_ledger
from tests.helpers.pages import read_page
from tests.helpers.trained_study import write_trained_study
from trainables.storage import Location


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trained_study(tmp_path_factory.mktemp("studies"))


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """One that is finished, one that runs, one that has not begun, one that is damaged; and what is no study."""
    for name, number in (("whole", len(records())), ("half", 2 * len(records()) // 3)):
        write_ledger(tmp_path / name, list(records())[:number])
        (tmp_path / name / "study.yaml").write_text("name: x")
    for name in ("new", "damaged"):
        (tmp_path / name / "ledger").mkdir(parents=True)
        (tmp_path / name / "study.yaml").write_text("name: x")
    (tmp_path / "damaged" / "ledger" / "000001.jsonl").write_text("{\n")
    (tmp_path / "corpora").mkdir()
    return tmp_path


def test_a_storages_studies_in_a_line_each(storage: Path) -> None:
    lines = {line.name: line for line in studies_of(Location(storage)).studies}
    assert {name: line.standing for name, line in lines.items()} == {
        "whole": "finished",
        "half": "running",
        "new": "not begun",
        "damaged": "not begun",
    }
    half = History.of(list(records())[: 2 * len(records()) // 3])
    assert lines["half"].phase == half.phase == "confirm"
    assert lines["half"].trials == len(half.trials)
    assert (
        lines["half"].ended == sum(trial.outcome is not None for trial in half.trials.values()) < lines["half"].trials
    )
    assert "undecided" in lines["half"].verdicts[0]
    row = Results(storage / "whole").answer.comparison.pairs[0].yardsticks["recovery_accuracy"]
    assert f"{row.difference:+.3f}" in lines["whole"].verdicts[0]
    assert "damaged" in lines["damaged"].problem
    assert [line.name for line in studies_of(Location(storage / "whole")).studies] == ["whole"]


def test_the_command(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(storage)]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("whole", "half", "new", "damaged"))
    assert "corpora" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["list", str(storage / "corpora")]) == 0
    assert "no study has begun" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "laptop" in capsys.readouterr().out


def test_of_a_study_that_is_silent_the_list_says_so(storage: Path) -> None:
    half = next(line for line in studies_of(Location(storage)).studies if line.name == "half")
    whole = next(line for line in studies_of(Location(storage)).studies if line.name == "whole")
    assert half.updated is not None
    assert half.standing_in_words(half.updated + 5) == "running,\nconfirm"
    assert half.standing_in_words(half.updated + 3 * 3600) == "running,\nconfirm,\nsilent for 3.0 h"
    assert whole.standing_in_words(half.updated + 3 * 3600) == "finished"


def test_no_number_changes_by_showing_another_study(trained: Path, storage: Path) -> None:
    one, other = Results(str(trained)).report, Results(str(storage / "whole")).report
    alone = [report_tables.studies([report]).rows for report in (one, other)]
    assert report_tables.studies([one, other]).rows == (*alone[0], *alone[1])
    assert report_tables.studies([other, one]).rows == (*alone[1], *alone[0])
    pair = one.comparison.pairs[0]
    row = pair.yardsticks[one.comparison.primary]
    cells = alone[0][0].cells
    assert cells[0] == "trained"
    assert cells[2] == pair.verdict
    assert cells[4] == str(row.n) == "4"


def test_several_on_the_command_line(trained: Path, storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(trained), str(storage / "whole"), str(storage / "half")]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("headless") >= 3
    code, message = run_command("compare", str(trained), str(storage / "nothing"))
    assert code == 2
    assert "nothing" in message


def test_languages_on_the_command_line(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the reports themselves: the mean over seeds of each language's score."""
    assert main(["compare", str(trained), "--languages"]) == 0
    out = capsys.readouterr().out
    history = Results(str(trained)).history
    for language in ("en", "fr"):
        means = []
        for arm in ("headless", "vanilla"):
            runs = history.trials_of("confirm", arm)
            scores = [run.measures[-1].yardsticks["recovery_mrr"].languages[language] for run in runs]
            means.append(sum(scores) / len(scores))
        line = next(line for line in out.splitlines() if f" {language} " in line)
        assert f"{means[0]:.3f}" in line
        assert f"{means[1]:.3f}" in line
        assert f"{means[0] - means[1]:+.3f} [" in line
    assert "intervals: 95%" in out


def test_a_study_of_one_language(tmp_path: Path) -> None:
    table = report_tables.languages(report_of(History.of(records()[:5])))
    assert not table.rows


def test_studies_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = []
    for place in ("a", "b", "c"):
        folders.append(tmp_path / place / "x")
        write_ledger(folders[-1], list(records()))
        (folders[-1] / "study.yaml").write_text("name: x")
    reports = [Results(str(folder)).report for folder in folders]
    assert report_tables.names(reports) == [str(folder) for folder in folders]
    assert report_tables.names(reports[:1]) == [reports[0].name]
    assert {row.cells[0] for row in report_tables.studies(reports).rows} == {str(folder) for folder in folders}
    figures, page = tmp_path / "figures", tmp_path / "page.html"
    figures.mkdir()
    assert main(["report", *map(str, folders[:2]), "--out", str(page), "--figures", str(figures)]) == 0
    name = reports[0].name
    assert sorted(path.name for path in figures.iterdir()) == [name, f"{name}-2"]
    assert [heading.text for heading in read_page(page.read_text()).all("h2")[:1]] == [str(folders[0])]
    capsys.readouterr()


def test_a_page_in_a_folders_place_is_refused_before_it_is_drawn(trained: Path, tmp_path: Path) -> None:
    code, message = run_command("report", str(trained), "--out", str(tmp_path))
    assert code == 2
    assert f"{tmp_path} is a folder" in message
    assert "drawing" not in message


def test_a_replay_is_not_printed_for_programs(trained: Path) -> None:
    code, message = run_command("watch", str(trained), "--replay", "--json")
    assert code == 2
    assert "--replay and --json" in message


def test_a_trials_spending_names_its_units(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(str(trained))
    trial = next(iter(results.history.trials))
    assert main(["show", str(trained), trial]) == 0
    shown = capsys.readouterr().out
    assert " of device time" in shown
    assert " of wall time" in shown
    assert " of hardware" in shown


def test_trials_are_a_table_at_80_columns(
    storage: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", str(storage / "half")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["trial", "outcome"] for line in lines)
    history = Results(str(storage / "half")).history
    for name, trial in history.trials.items():
        (line,) = (own for own in lines if name in own.split())
        if trial.outcome == "completed":
            assert line.split()[1] == "completed"


@pytest.mark.parametrize("columns", [30, 40, 80])
def test_words_stay_whole_on_a_narrow_terminal(
    storage: Path, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["show", str(storage / "whole")]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    for name in Results(str(storage / "whole")).history.trials:
        assert name in shown
