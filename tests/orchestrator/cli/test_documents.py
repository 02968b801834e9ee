"""What commands print for programs: every document is by its schema, and standard output has nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from orchestrator.cli import main, make_parser
from orchestrator.cli.command import COMMANDS
from orchestrator.cli.output import DOCUMENTS, schema_of
from orchestrator.config.folder import LEDGER
from orchestrator.execution import jobs
from orchestrator.ledger.history import read_history
from orchestrator.reporting.results import Results
from orchestrator.study import Study
from tests.helpers.commands import run_command
from tests.helpers.trained_study import write_trained_study
from trainables.storage import Location

WITHOUT_JSON = {"schema", "completion"}
"""What they print is for programs already."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_trained_study(tmp_path_factory.mktemp("studies"))


def run(*words: object) -> tuple[int, str]:
    """A command's exit code and what it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main(list(map(str, words)))
        except SystemExit as end:
            code = int(end.code or 0)
    return code, output.getvalue()


def require(kind: str, text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    validator = jsonschema.Draft202012Validator(schema_of(kind))
    validator.validate(document)
    return document


@pytest.mark.parametrize("kind", ["study", *DOCUMENTS])
def test_schemas_are_sound_and_name_their_form(kind: str) -> None:
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    if kind not in ("study", "record"):
        assert schema["properties"]["format"]["const"].startswith(f"headtohead.{kind}/")
        # Documents say more in later versions, but each version says all of what it may.
        assert schema["additionalProperties"] is False


def test_an_unknown_document_is_told_the_nearest() -> None:
    code, message = run_command("schema", "--of", "trails")
    assert code == 2
    assert "did you mean 'trials'" in message


def test_every_command_that_prints_takes_json() -> None:
    texts = {"verify": ["s"], "export": ["s", "--to", "x"], "evaluate": ["s", "--tasks", "x"], "jobs": ["a"]}
    texts |= {
        "submit": ["s", "--address", "x"],
        "doctor": [],
        "enqueue": ["s", "a", "x=1"],
        "init": [],
        "list": [],
        "serve": ["s"],
        "track": ["s", "--to", "mlflow"],
    }
    for name in COMMANDS.keys() - WITHOUT_JSON:
        assert make_parser().parse_args([name, *texts.get(name, ["s"]), "--json"]).json, name


def test_what_is_read_of_a_study(study: Path) -> None:
    found = {
        kind: require(kind, run(*words, "--json")[1])
        for kind, words in {
            "report": ("compare", study),
            "reports": ("compare", study, study),
            "catalogue": ("list",),
            "studies": ("list", study.parent),
            "trials": ("show", study),
            "trial": ("show", study, "confirm-vanilla-001"),
            "verification": ("verify", study),
            "clean": ("clean", study),
            "corpus": ("corpus", study),
            "tracked": ("track", study, "--to", "tensorboard"),
        }.items()
    }
    history = read_history(Location(study) / LEDGER)
    assert [trial["trial"] for trial in found["trials"]["trials"]] == list(history.trials)
    trial = history.trials["confirm-vanilla-001"]
    assert found["trial"]["trial"]["yardsticks"]["recovery_mrr"] == trial.score("recovery_mrr")
    assert found["trial"]["evaluations"][-1]["scores"]["recovery_mrr"]["languages"].keys() == {"en", "fr"}
    assert found["verification"]["sound"] is True
    assert found["studies"]["studies"][0]["verdicts"] == ["headless – vanilla: vanilla is ahead, " + _difference(study)]
    assert found["clean"]["removed"] is False
    assert len(list((study / "trials").glob("*/start-*/step-*"))) == 16, "without --yes all is still there"
    # A finished study's answer, without Ray.
    assert require("report", run("resume", study, "--json")[1]) == found["report"]


def _difference(study: Path) -> str:
    row = Results(str(study)).answer.comparison.pairs[0].yardsticks["recovery_mrr"]
    assert row.interval is not None
    return f"{row.difference:+.3f} [{row.interval[0]:.3f}, {row.interval[1]:.3f}]"


def test_records_as_they_are_written(study: Path) -> None:
    code, text = run("watch", study, "--json")
    validator = jsonschema.Draft202012Validator(schema_of("record"))
    lines = list(map(json.loads, text.splitlines()))
    for line in lines:
        validator.validate(line)
    assert code == 0
    assert lines[0]["kind"] == "study"
    assert sum(line["kind"] == "end" for line in lines) == 8


def test_what_is_written(study: Path, tmp_path: Path) -> None:
    words = ("report", study, "--out", tmp_path / "r.html", "--json")
    assert require("written", run(*words)[1])["files"] == [str(tmp_path / "r.html")]
    words = ("export", study, "--arm", "vanilla", "--to", tmp_path / "model", "--json")
    files = require("written", run(*words)[1])["files"]
    assert {Path(file) for file in files} == {file for file in (tmp_path / "model").rglob("*") if file.is_file()}


def test_a_plan(study: Path) -> None:
    document = require("plan", run("plan", "demo", "--json", "--set", f"storage={study.parent}")[1])
    arms = {arm["name"]: arm for arm in document["arms"]}
    assert arms["headless"]["head_parameters"] == 0
    assert arms["vanilla"]["head_parameters"] == 2000 * 128
    assert document["device_seconds"] > 0
    assert document["study"]["confirm"]["seeds"] == 6
    quick = require("plan", run("plan", "demo", "--json", "--no-calibration")[1])
    assert quick["device_seconds"] is None


def test_prepared_text(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Study, "prepare", lambda self, address, progress: Study.open(str(study)).corpus())
    document = require("corpus", run("prepare", study, "--json")[1])
    assert document["languages"] == ["en", "fr"]
    assert sum(document["target_mix"].values()) == pytest.approx(1.0)


def test_jobs(monkeypatch: pytest.MonkeyPatch, study: Path) -> None:
    job = jobs.StudyJob(submission_id="h2h-1", status="RUNNING", began=1.0, ended=None, study="demo")
    monkeypatch.setattr(jobs, "study_jobs", lambda address: [job])
    assert require("jobs", run("jobs", "http://x", "--json")[1])["jobs"] == [job.model_dump()]
    for runs, status in ((True, "STOPPING"), (False, "ENDED")):
        monkeypatch.setattr(jobs, "stop_job", lambda address, name, runs=runs: runs)
        assert require("submission", run("jobs", "http://x", "--stop", "h2h-1", "--json")[1])["status"] == status

    def submit(*_: object, on_line: object = None, **__: object) -> jobs.Submission:
        assert callable(on_line)
        on_line("a line of the job")
        return jobs.Submission("h2h-2", "http://x", "FAILED", "it failed")

    monkeypatch.setattr(jobs, "submit", submit)
    code, text = run("submit", study, "--address", "http://x", "--json")
    assert code == 1
    assert require("submission", text)["status"] == "FAILED"


def test_the_address_of_live_pages(monkeypatch: pytest.MonkeyPatch, study: Path) -> None:
    from orchestrator.reporting.serve import server

    async def serve(storage: Location, host: str, port: int, say: object) -> None:
        assert callable(say)
        say("http://127.0.0.1:1/?token=x")

    monkeypatch.setattr(server, "serve", serve)
    assert require("address", run("serve", study, "--json")[1])["address"] == "http://127.0.0.1:1/?token=x"


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["compare", "nosuch"], "no study 'nosuch'"),
        (["show", "{}", "confirm-vanila-001"], "no trial is called"),
        (["show", "{}", "--arm", "vanila"], "no arm is called"),
        (["list", "/nowhere"], "there is no folder"),
        (["plan", "demo", "--set", "serch=1"], "unknown key 'serch'"),
        (["plan", "demo", "confirm.seeds=3"], "plan knows no 'confirm.seeds=3'"),
        (["compare", "{}", "--jsn", "--json"], "compare knows no '--jsn'"),
        (["init", "--yes"], "which files?"),
    ],
)
def test_a_refusal_is_a_document_too(study: Path, words: list[str], fragment: str) -> None:
    code, text = run(*(word.format(study) for word in words), *([] if "--json" in words else ["--json"]))
    document = require("error", text)
    assert code == document["code"] == 2
    assert fragment in str(document["what"])
    assert document["remedy"]
    if "confirm.seeds=3" in words:
        assert document["remedy"] == "--set confirm.seeds=3"


def test_one_that_the_parser_makes_is_a_document_too() -> None:
    command = [sys.executable, "-m", "orchestrator.cli", "shw", "x", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean 'show'" in str(require("error", done.stdout)["what"])


def test_quiet_and_verbose(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(study.parent), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["list", str(study.parent)]) == 0
    assert "h2h: reading" in capsys.readouterr().err
    assert main(["list", "/nowhere", "--verbose"]) == 2
    told = capsys.readouterr().err
    assert "h2h: there is no folder" in told
    assert "in studies_of" in told, "where in the program it is from"
    assert main(["list", "/nowhere", "--quiet"]) == 2
    assert "h2h: there is no folder" in capsys.readouterr().err, "why nothing was done is always told"


def test_tasks_of_a_model(study: Path, tmp_path: Path) -> None:
    run("export", study, "--arm", "vanilla", "--to", tmp_path / "model")
    words = [(f"a{second} b{second}", n) for n, second in enumerate("abcdefghijklmnop")]  # that its tokenizer knows
    pairs = [{"good": text, "bad": text[::-1], "id": n} for text, n in words]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    task = {"name": "pairs", "languages": ["en"], "kind": "minimal_pairs", "cluster": "id"}
    (tmp_path / "pairs.yaml").write_text(json.dumps(task | {"local": {"files": {"test": "pairs.jsonl"}}}))
    document = require(
        "evaluation", run("evaluate", tmp_path / "model", "--tasks", tmp_path / "pairs.yaml", "--json")[1]
    )
    (found,) = document["tasks"]
    assert (found["task"], found["language"], found["chance"]) == ("pairs", "en", 0.5)
    assert 0 < found["items"] <= len(words)
    assert 0 <= found["right"] <= 1
