"""The report: one page, every number of which is one of the JSON's."""

import itertools
import json
import re

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from orchestrator.analysis.answer import answer_of
from orchestrator.analysis.report import StudyReport, report_of
from orchestrator.cli import main
from orchestrator.ledger.history import History, read_history
from orchestrator.ledger.records import ArmDesign, EndRecord, MeasureRecord
from orchestrator.reporting.dashboard import print_results
from orchestrator.reporting.notebook import results_html
from orchestrator.reporting.page.page import report_page
from orchestrator.reporting.results import Results
from tests.helpers import ledgers
from tests.helpers.demonstration import records, with_branches
from tests.helpers.ledgers import MASKED, around, changed, event, phase, run, study, write_ledger
from tests.helpers.pages import cells_of, read_page, unknown_numbers
from trainables.evaluation import Score
from trainables.storage import Location

HOSTILE = "</script><script>alert(1)</script>'\"><img src=x onerror=alert(2)> אבג \u202eevil"
LATIN = {"headless", "vanilla"}


def hostile():
    """A study whose every free text is an attack."""
    yield study(name="hostile", question=HOSTILE, fixed={"question": HOSTILE, HOSTILE: [HOSTILE]}, seeds=4)
    yield event(HOSTILE)
    yield phase("confirm", "begin")
    for seed, level in enumerate(around(0.4)[:4], start=1):
        for arm in MASKED:
            lost = seed == 3 and arm == "vanilla"
            for record in run(arm, seed, level, configuration={"learning_rate": HOSTILE}, outcome="completed"):
                if isinstance(record, EndRecord) and lost:
                    record = changed(record, outcome="failed", reason=HOSTILE)
                if isinstance(record, MeasureRecord):
                    scores = {
                        name: Score(overall=own.overall, languages={"en": own.overall, HOSTILE: own.overall})
                        for name, own in record.yardsticks.items()
                    }
                    record = record.model_copy(update={"yardsticks": scores})
                yield record


def three_arms(seeds=12, searched=164):
    """As large as a study is planned to be."""
    chance = np.random.default_rng(0)
    arms = MASKED | {"third": ArmDesign(objective="headless_mlm", task="masked", headless=True)}
    yield study(arms, seeds=seeds, search_budget=40.0)
    yield phase("search", "begin")
    for number in range(searched):
        settings = {"learning_rate": float(chance.uniform(1e-4, 1e-2)), "temperature": float(chance.uniform())}
        ended = ("completed", "pruned", "pruned", "diverged")[number % 4]
        score, arm = float(chance.uniform(0.3, 0.4)), list(arms)[number % 3]
        yield from run(arm, number // 3, score, phase="search", outcome=ended, configuration=settings, evaluations=4)
    yield phase("search", "end")
    for seed in range(1, seeds + 1):
        for place, arm in enumerate(arms):
            yield from run(arm, seed, 0.4 - 0.02 * place + float(chance.normal(0, 0.003)), evaluations=12)


@pytest.fixture(scope="module")
def report():
    return report_of(History.of(with_branches()))


@pytest.fixture(scope="module")
def page(report):
    return read_page(report_page([report]))


def shown_of(page):
    """The words of a page, and what its marks stand for; not the axes of charts."""
    words = [e.text for e in page.all("td", "th", "p", "li", "dd", "summary", "caption")]
    return "\n".join(words + [e.attributes["data-tip"] for e in page.all(*MARKS) if "data-tip" in e.attributes])


MARKS = ("path", "rect", "line", "g", "text", "circle")


@pytest.mark.parametrize("made", [with_branches, records, hostile, three_arms])
def test_every_number_of_the_page_is_in_the_json(made):
    report = report_of(History.of(list(made())))
    known = json.loads(report.model_dump_json())
    shown = shown_of(read_page(report_page([report])))
    shown = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|95%|et al\. \d{4}", "", shown)
    assert len(re.findall(r"\d\.\d\d", shown)) > 100
    assert unknown_numbers(shown, known) == []


def in_all(phases):
    """What an arm cost in all its phases, in device-seconds, and the shares."""
    parts = [sum(own[kind] for own in phases) for kind in ("useful", "overhead", "lost", "unreported")]
    return parts + [part / (sum(parts) or 1.0) for part in parts]


@pytest.mark.parametrize("made", [with_branches, hostile, three_arms])
def test_the_terminal_and_a_notebook_say_the_numbers_of_the_json(made, tmp_path, capsys):
    """Whichever of them is looked at, it is the same answer."""
    write_ledger(tmp_path / "s", list(made()))
    history = read_history(Location(tmp_path / "s" / "ledger"))
    known = json.loads(report_of(history).model_dump_json())
    known["by arm"] = [in_all([own for own in known["spending"] if own["arm"] == arm]) for arm in MASKED]
    print_results(history, Location("here"), Console(width=200, force_terminal=False))
    notebook = read_page(results_html(Location("here"), history, answer_of(history)))
    texts = capsys.readouterr().out, shown_of(notebook)
    for text, least in zip(texts, (15, 10), strict=True):
        assert len(re.findall(r"\d\.\d\d", text)) > least
        assert unknown_numbers(re.sub(r"\[?95%[^\]]*\]?|et al\. \d{4}", "", text), known) == []


def test_a_number_that_is_not_in_the_json_is_found(report):
    known = json.loads(report.model_dump_json())
    row = report.comparison.pairs[0].yardsticks["recovery_accuracy"]
    assert unknown_numbers(f"{row.difference:.3f}, 2.0M tokens, 67%, 12 s", known) == []
    assert unknown_numbers("0.987, 2.7M tokens, 3.33e-05", known) == ["0.987", "2.7M", "3.33e-05"]


def test_the_primary_row_stands_in_its_places(report, page):
    row = report.comparison.pairs[0].yardsticks["recovery_accuracy"]
    interval = f"[{row.interval[0]:.3f}, {row.interval[1]:.3f}]"
    cells = cells_of(page, "Differences, with their 95% intervals")[1]
    assert cells[2:4] == ["6", f"{row.difference:+.3f}\n{interval}"]
    assert f"{row.difference:+.3f} {interval}" in next(e.text for e in page.all("li"))
    drawn = cells_of(page, "Difference of recovery_accuracy on the test split, seed by seed")
    assert drawn[1][1:] == ["6", f"{row.mean_a:.3f}", f"{row.mean_b:.3f}", f"{row.difference:+.3f} {interval}"]
    by_seed = [float(cells[-1]) for cells in drawn[2:]]
    assert np.mean(by_seed) == pytest.approx(row.difference, abs=1e-3)


def test_every_trial_is_there(report, page):
    rows = cells_of(page, "Every trial")
    assert [row[0] for row in rows[1:]] == [trial.trial for trial in report.trials]
    assert len(rows) == 1 + 2 * 9 + 2 * 6 + 2 * 6
    failed = cells_of(page, "Trials that broke or were lost, and attempts that were repeated")
    assert failed[1:] == [["search-vanilla-005", "diverged", "0", "the loss is not a number"]]


def test_the_answer_comes_first_and_the_protocol_is_told(report, page):
    titles = [e.text for e in page.all("h2")]
    assert titles[0] == "Answer"
    assert titles.index("Robustness") < titles.index("Figures") < titles.index("Tables") < titles.index("Methods")
    text = page.text
    assert report.estimand in text
    assert report.methods in text
    assert report.protocol_digest in text


@pytest.mark.parametrize("number", [1, 2])
def test_a_page_is_well_made(report, number):
    page = read_page(report_page([report] * number))
    ids = [e.attributes["id"] for e in page.all(*{e.name for e in _walk(page)}) if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in _walk(page):
        for name in ("aria-labelledby", "for"):
            assert element.attributes.get(name, ids[0]) in ids
        if element.name == "a":
            assert element.attributes["href"].removeprefix("#") in ids
        for reference in re.findall(r"url\(#([^)]+)\)", element.attributes.get("clip-path", "")):
            assert reference in ids
    levels = [int(e.name[1]) for e in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(table.all("caption")[0].text for table in page.all("table"))
    pictures = [e for e in page.all("svg") if not e.under("svg")]
    assert len(pictures) == 9 * number
    assert all(e.attributes["role"] == "img" and "n" in e.attributes["aria-label"] for e in pictures)
    numbers = [figure.all("table") for figure in page.all("figure")]
    assert all(numbers), "without scripts and without eyes there are the numbers"


def _walk(element):
    yield element
    for child in element.children:
        if not isinstance(child, str):
            yield from _walk(child)


def test_text_of_a_study_is_text_and_nothing_else():
    html = report_page([report_of(History.of(hostile()))])
    page = read_page(html)
    assert len(page.all("script")) == 1
    assert not page.all("img", "iframe", "object", "link")
    assert not [name for e in _walk(page) for name in e.attributes if name.startswith("on")]
    assert not [v for e in _walk(page) for n, v in e.attributes.items() if n in ("src", "href") and v[:1] != "#"]
    assert page.text.count("alert(1)") >= 4, "question, protocol, configuration, reason"
    assert "\u202e" not in html, "what turns the direction of other text around is told, not done"
    assert "אבג" in html


def test_nothing_but_its_own_script_may_run(page):
    import base64
    import hashlib

    policy = page.all("meta")[1].attributes["content"]
    digest = base64.b64encode(hashlib.sha256(page.all("script")[0].text.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in "".join(v for e in _walk(page) for n, v in e.attributes.items() if n in ("src", "href"))


def test_studies_side_by_side_change_no_number(report):
    other = report_of(History.of(list(three_arms(seeds=4, searched=0))))
    alone, both = (read_page(report_page(own)) for own in ([report], [report, other]))
    first = both.all("article")[0]
    assert [t.text for t in first.all("table")] == [t.text for t in alone.all("table")]
    rows = cells_of(both, "The studies, a row for each pair of arms")
    assert [row[0] for row in rows[1:]] == ["headless-vs-vanilla", "s", "s", "s"]
    assert rows[1][5] == cells_of(alone, "Differences, with their 95% intervals")[1][3]


def test_a_large_study_is_small_enough_to_send():
    html = report_page([report_of(History.of(three_arms()))])
    assert len(html.encode()) < 3e6


def test_a_study_that_has_just_begun_has_a_page():
    page = read_page(report_page([report_of(History.of([study(fixed={})]))]))
    assert "no pair of runs is complete yet" in page.text
    assert "No trial has begun." in page.text


def test_curves_are_means_over_completed_runs_with_students_interval():
    written = [study(seeds=4)]
    for seed, level in enumerate((0.40, 0.42, 0.41), start=1):
        written += run("headless", seed, level, evaluations=4)
    written += run("headless", 4, 0.1, outcome="diverged", evaluations=4)
    (curve,) = report_of(History.of(written)).curves
    assert (curve.n, curve.planned, curve.others) == (3, 4, {"diverged": 1})
    last = curve.mean[-1]
    values = np.array([0.40, 0.42, 0.41])
    assert last.value == pytest.approx(values.mean())
    assert last.spent["tokens"] == ledgers.AMOUNT
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert last.interval == pytest.approx(expected)
    assert curve.mean[1].value == pytest.approx(values.mean() / 2)
    assert [len(own.points) for own in curve.runs] == [4, 4, 4, 4], "what diverged is drawn"


def test_languages_are_compared_seed_by_seed():
    written, a, b = [study(seeds=6)], around(0.4), around(0.38, (0.002, 0.001, -0.003, 0.0, 0.001, 0.002))
    for seed, levels in enumerate(zip(a, b, strict=True), start=1):
        for arm, level in zip(MASKED, levels, strict=True):
            written += run(arm, seed, level)
    (pair,) = report_of(History.of(written)).pairs
    differences = np.array(a) - np.array(b)
    assert [seed.difference for seed in pair.seeds] == pytest.approx(differences)
    by_language = {row.language: row for row in pair.languages}
    for language, share in (("en", 1.0), ("fr", 0.5)):  # see tests.helpers.ledgers.run
        own, row = share * differences, by_language[language]
        assert row.difference == pytest.approx(own.mean())
        assert row.interval == pytest.approx(stats.t.interval(0.95, 5, own.mean(), stats.sem(own)))
        assert not row.text


def test_profiles_count_runs_and_languages_and_what_broke_never_passes():
    written = [study(seeds=4)]
    for seed, level in enumerate((0.4, 0.2), start=1):
        written += run("headless", seed, level)
    written += run("headless", 3, 0.9, outcome="diverged")
    (found,) = report_of(History.of(written)).profiles
    scores = np.array([0.4, 0.2, 0.2, 0.1, -np.inf, -np.inf])  # en, fr of each
    assert (found.n, found.broken, found.languages) == (3, 1, 2)
    assert [p.share for p in found.points] == pytest.approx([np.mean(scores > p.value) for p in found.points])
    assert found.points[0].share == pytest.approx(0.5)
    assert found.points[-1].share == 0


def test_legends_say_n_method_and_missing_runs():
    written = [study(seeds=4)]
    for seed in range(1, 5):
        written += run("headless", seed, 0.4 + 0.001 * seed)
        written += run("vanilla", seed, 0.3, outcome="lost" if seed == 2 else "completed")
    from orchestrator.reporting.charts import charts

    found = charts(report_of(History.of(written)))
    drawn = {name: chart.to_json() for name, chart in found.items()}
    assert found["differences"].legend.endswith("Missing: seed 2 (vanilla lost).")
    assert "n = 3 seeds" in drawn["differences"]
    assert "vanilla: n = 3 of 4 runs, 1 lost" in drawn["learning-tokens"]
    for name in ("differences", "learning-tokens", "yardsticks", "languages", "profile"):
        assert "95%" in found[name].legend


def test_charts_are_valid_and_have_the_reports_numbers(report):
    from orchestrator.reporting.charts import charts

    found = charts(report)
    for chart in found.values():
        chart.drawing.to_dict()  # validated against the schema of Vega-Lite
    rows = found["differences"].data["seeds"]
    assert [row["value"] for row in rows] == [seed.difference for seed in report.pairs[0].seeds]
    assert {row["y"] for row in found["learning-tokens"].data["means"]} == {
        point.value for curve in report.curves for point in curve.mean
    }


@pytest.fixture
def folder(tmp_path):
    write_ledger(tmp_path / "demonstration", records())
    (tmp_path / "demonstration" / "study.yaml").write_text("name: demonstration")
    return tmp_path / "demonstration"


def test_the_command_writes_page_figures_and_tables(folder, tmp_path, capsys):
    figures = tmp_path / "figures"
    figures.mkdir()
    assert main(["report", str(folder), "--out", str(tmp_path / "r.html"), "--figures", str(figures)]) == 0
    assert "wrote" in capsys.readouterr().out
    assert read_page((tmp_path / "r.html").read_text()).all("h1")[0].text == "headless-vs-vanilla"
    assert (figures / "differences.svg").read_text().startswith("<svg")
    assert (figures / "differences.pdf").read_bytes().startswith(b"%PDF")
    assert (figures / "differences.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((figures / "differences.vl.json").read_text())["$schema"].startswith("https://vega.github.io")
    latex = (figures / "table-comparison.tex").read_text()
    assert r"recovery\_accuracy" in latex
    assert latex.count(r" \\") == len(Results(folder).report.comparison.pairs[0].yardsticks) + 1
    assert "| recovery_accuracy |" in (figures / "table-comparison.md").read_text()


def test_a_report_into_no_folder_is_refused(folder, tmp_path, capsys):
    assert main(["report", str(folder), "--out", str(tmp_path / "none" / "r.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["report", str(folder), "--figures", str(tmp_path / "none" / "figures")]) == 2
    assert f"there is no folder {tmp_path / 'none'}" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["report", str(folder), "--figures", str(tmp_path / "file")]) == 2
    assert "file is a file" in capsys.readouterr().err


def test_the_folder_of_figures_may_be_a_new_one(folder, tmp_path, capsys):
    figures = tmp_path / "figures"
    assert main(["report", str(folder), "--out", str(tmp_path / "r.html"), "--figures", str(figures)]) == 0
    assert (figures / "differences.svg").exists()


def test_json_is_by_its_schema_and_reads_back(folder, capsys):
    assert main(["schema", "--of", "report"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert main(["compare", str(folder), "--json"]) == 0
    text = capsys.readouterr().out
    jsonschema.validate(json.loads(text), schema)
    assert json.loads(text)["format"] == "headtohead.report/1"
    assert StudyReport.model_validate_json(text) == Results(folder).report


def test_time_to_target_draws_bounds_as_bounds():
    from orchestrator.reporting.charts import charts

    written = [study(seeds=7, anytime=(0.25, 0.5, 0.75))]
    for seed in range(1, 8):
        written += ledgers.run_with_branches("headless", seed, 0.40 + 0.001 * seed)
        written += ledgers.run_with_branches("vanilla", seed, 0.20, outcome="diverged" if seed == 3 else "completed")
    report = report_of(History.of(written))
    found = report.comparison.pairs[0].time_to_target["tokens"]
    assert (found.relation, found.interval[0]) == ("<=", None), "vanilla never gets there at one seed"
    row = charts(report)["time-to-target"].data["ratios"][0]
    assert row["label"] == f"at most {found.ratio:.2f}"
    assert row["open"]
    assert row["low"] < min(found.ratio, found.interval[1])
    assert row["high"] == found.interval[1]
