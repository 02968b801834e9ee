"""The command line: one screen, no traceback, exit code 2 and no Ray for every mistake."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from cluster.local import free_port
from orchestrator.cli import main
from orchestrator.config.files import dump_study, freeze, going_on, load_study
from orchestrator.config.study import StudySpec
from orchestrator.study import Study
from trainables.errors import InputError
from trainables.storage import Location

ONE_GRAMMAR = "corpora.sources=[{language: a, grammar: veldan, documents: 500}]"
SMALL = [ONE_GRAMMAR, "tokenizer.train.vocabulary_size=300"]


@pytest.fixture
def h2h(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder, where importing Ray is an error; returns its exit code and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def run(*arguments, overrides=()):
        try:
            code = main([*arguments, *(part for override in overrides for part in ("--set", override))])
        except SystemExit as stop:  # argparse's
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


def refused(result, *fragments):
    code, _, err = result
    assert code == 2
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 24
    for fragment in fragments:
        assert fragment in err


@pytest.mark.parametrize(
    ("overrides", "fragments"),
    [
        (["serch=1"], ["unknown key 'serch'", "where: --set serch=1", "did you mean 'search'"]),
        (["budget.flops=1e12"], ["tokens and flops are both set"]),
        (["model.shape=bert-tiny"], ["does not fit the arm's objective", "needs a decoder", "neox-tiny"]),
        (["model.position_limit=32"], ["takes 32 tokens, a sequence has 64", "--set model.position_limit=64"]),
        (
            ["model={config: {model_type: gpt_neox, hiden_size: 64}}"],
            ["unknown key 'hiden_size'", "model.config.hiden_size", "did you mean 'hidden_size'"],
        ),
        (
            ["model={config: {model_type: gpt_neox, hidden_size: 100, num_attention_heads: 12}}"],
            ["there is no such model", "hidden size"],
        ),
        (["tokenizer={pretrained: nowhere/at/all}"], ["there is no tokenizer nowhere/at/all"]),
        (["model.shape=larg"], ["unknown shape 'larg'", "where: --set model.shape=larg", "Valid: base, bert-base"]),
        (["model.shape=tny"], ["where: --set model.shape=tny", "did you mean 'tiny'"]),
        (["tokenizer.pretrained=gpt2"], ["--set tokenizer.pretrained=gpt2", "--set tokenizer='{pretrained: gpt2}'"]),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_mistakes_in_a_study(h2h, command, overrides, fragments):
    refused(h2h(command, "demo", overrides=overrides), *fragments)


def test_a_date_is_a_name(h2h):
    code, out, _ = h2h("plan", "demo", "--no-calibration", overrides=["name=2026-11-22"])
    assert code == 0
    assert "2026-11-22" in out


def test_a_folder_that_has_a_shipped_studys_name(h2h, tmp_path):
    """The name is the shipped study's; the folder is called by its path."""
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "study.yaml").write_text(dump_study(freeze(load_study("demo", ["question=Which?", "confirm.seeds=2"]))))
    assert h2h("plan", "demo", "--no-calibration", overrides=["confirm.seeds=5"])[0] == 0
    assert Study("demo").spec.confirm.seeds != 2
    refused(h2h("compare", "demo"), "no study lies in", "the folder ./demo has one: name it so, with ./")
    refused(h2h("compare", "./demo"), "has not begun to record anything", f"remedy: h2h resume {folder}")
    refused(h2h("plan", "./demo", overrides=["confirm.seeds=3"]), "a frozen study cannot be overridden", "./demo holds")


FILES = {
    "none/*.txt": (None, ["no file matches", "corpora.sources[0].files"]),
    "empty.txt": (b"", ["empty.txt is empty"]),
    "plain.jsonl.gz": (b'{"text": "a"}\n', ["of another format than its name says", "gzip"]),
    "plain.parquet": (b"hello", ["of another format than its name says"]),
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n', ["a line is not JSON", "line 2"]),
    "column.jsonl": (b'{"txt": "a"}\n', ["there is no column 'text'", "did you mean 'txt'", "text_column"]),
    "latin.txt": (b"caf\xe9 au lait", ["bytes that are not UTF-8", "line 1", "iconv"]),
    "file.foo": (b"a", ["unknown file format", ".jsonl"]),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_files_that_cannot_be_read(h2h, tmp_path, command, name):
    content, fragments = FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    overrides = [f"corpora.sources=[{{language: en, files: '{name}'}}]", "yardsticks.others=[]"]
    refused(h2h(command, "demo", overrides=overrides), *fragments)


def test_missing_files_come_before_what_depends_on_them(h2h, tmp_path):
    """The demo's yardsticks take minimal pairs on, which files have none of."""
    source = "corpora.sources=[{language: en, files: '%s'}]"
    refused(h2h("plan", "demo", overrides=[source % "nothing/*.txt"]), "no file matches", "sources[0].files")
    (tmp_path / "here.txt").write_text("a")
    refused(h2h("plan", "demo", overrides=[source % "here.txt"]), "there are no minimal pairs")


def test_a_suffix_in_common_makes_no_name_near(h2h, tmp_path):
    (tmp_path / "tiny.yaml").write_text(dump_study(load_study("demo")))
    for missing, near in (("nothere.yaml", False), ("tinny.yaml", True), ("tiny.yml", True)):
        result = h2h("plan", missing)
        refused(result, f"no study '{missing}'", "tiny.yaml")
        assert ("did you mean 'tiny.yaml'" in result[2]) == near


def test_a_vocabulary_larger_than_the_text(h2h):
    result = h2h("run", "demo", overrides=[ONE_GRAMMAR, "tokenizer.train.vocabulary_size=200000"])
    refused(result, "larger than the text supports", "--set tokenizer.train.vocabulary_size=")


def test_too_few_documents_to_hold_any_out(h2h):
    source = "corpora.sources=[{language: a, grammar: veldan, documents: 2}]"
    refused(h2h("run", "demo", overrides=[source]), "no document of 'a' is in the", "corpora.sources[0]")


def test_more_than_the_machine_has(h2h):
    many = ["resources.workers=4096", "training.batch_sequences=4096", "budget.tokens=1e9"]
    refused(h2h("run", "demo", overrides=[*SMALL, *many]), "a trial needs 4096 CPUs", "--set resources.workers=")
    result = h2h("run", "demo", overrides=[*SMALL, "resources.gpus_per_worker=99"])
    refused(result, "a trial needs 99 GPUs", "--set resources.")


def test_a_plan_that_cannot_run_here_is_refused_but_for_a_cluster(h2h, monkeypatch):
    many = ["resources.workers=4096", "training.batch_sequences=4096", "budget.tokens=1e9"]
    code, out, error = h2h("plan", "demo", "--no-calibration", overrides=many)
    assert (code, "a trial needs 4096 CPUs" in error) == (2, True)
    assert "confirm" in out  # the plan itself is shown
    assert h2h("plan", "demo", "--no-calibration", "--address", "auto", overrides=many)[0] == 0
    monkeypatch.setenv("RAY_ADDRESS", "ray://somewhere:10001")
    assert h2h("plan", "demo", "--no-calibration", overrides=many)[0] == 0


def test_a_picture_needs_a_folder_to_be_in(h2h, tmp_path):
    picture = tmp_path / "nowhere" / "x.svg"
    refused(h2h("corpus", "demo", "--svg", str(picture)), f"there is no folder {picture.parent}", "--svg")
    assert not picture.parent.exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_storage_that_cannot_be_written(h2h, tmp_path, command):
    (tmp_path / "file").write_text("")
    refused(h2h(command, "demo", overrides=[f"storage={tmp_path}/file/x"]), "cannot write", f"--set storage={tmp_path}")
    refused(h2h(command, "demo", overrides=["storage=foo://x"]), "cannot open the location foo://x")


def test_a_plan_writes_nothing(h2h, tmp_path):
    assert h2h("plan", "demo", "--no-calibration", overrides=[f"storage={tmp_path}/new/folder"])[0] == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["127.0.0.1:PORT", "[::1]:PORT", "nowhere", "a..b:6379"])
def test_an_address_where_nothing_answers(h2h, tmp_path, monkeypatch, address):
    address = address.replace("PORT", str(free_port()))
    for arguments in (["run", "demo"], ["prepare", "demo"]):
        refused(h2h(*arguments, "--address", address), f"no Ray cluster answers at {address}")
    monkeypatch.setenv("RAY_ADDRESS", address)
    refused(h2h("run", "demo"), f"no Ray cluster answers at {address}")
    assert not list(tmp_path.iterdir()), "the study's name is not taken"


@pytest.mark.parametrize("command", ["plan", "run", "watch", "compare"])
def test_no_such_study(h2h, command):
    refused(h2h(command, "dmo"), "no study 'dmo'", "did you mean 'demo'")


@pytest.mark.parametrize("command", ["compare", "resume"])
def test_a_study_that_has_not_begun(h2h, command):
    refused(h2h(command, "demo"), "no study lies in")


def test_a_study_that_has_begun_does_not_change(h2h, tmp_path):
    folder = tmp_path / "studies" / "demo"
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text(dump_study(freeze(load_study("demo"))))
    anew = f"h2h run {folder}/study.yaml --set name=ANOTHER   makes a new one"
    for begun in ("demo", str(folder)):
        refused(h2h("run", begun), "exists already", "h2h resume", anew)
    frozen = h2h("resume", str(folder), overrides=["seed=1"])
    refused(frozen, "a frozen study cannot be overridden", f"h2h resume {folder}   goes on as it began", anew)
    assert h2h("plan", f"{folder}/study.yaml", "--no-calibration", overrides=["name=ANOTHER"])[0] == 0
    refused(h2h("extend", str(folder)), "no --set was given", "such as --set confirm.seeds=12")
    fixed = h2h("extend", str(folder), overrides=["confirm.margin=0.1"])
    refused(fixed, "'confirm.margin' of a study that has begun cannot change", "what may change: search.budget_")
    assert "did you mean" not in fixed[2]
    for words in (("resume", "demo"), ("run", "demo", "--resume")):
        refused(h2h(*words, overrides=["confirm.seeds=9"]), "began with another 'confirm'", "h2h resume")


@pytest.mark.parametrize("command", ["compare", "verify"])
def test_a_study_that_was_stopped_before_its_first_record(h2h, tmp_path, command):
    """Also by the name of the folder that it lies in; with what a Ray that did not start has left of another."""
    folder = tmp_path / "studies" / "slow"
    (folder / "ledger").mkdir(parents=True)
    (folder.parent / "tiny" / "ledger").mkdir(parents=True)
    (folder / "study.yaml").write_text(dump_study(freeze(load_study("demo"))))
    result = h2h(command, str(folder))
    refused(result, "has not begun to record anything", f"remedy: h2h resume {folder}")
    assert "did you mean" not in result[2]
    refused(h2h(command, "studies"), "no study lies in", f"remedy: one of those in it: {folder}\n")
    refused(h2h(command, "studies/slwo"), "did you mean 'slow'?")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["plan"], "STUDY"),
        (["submit", "demo"], "--address"),
        (["rn", "demo"], "did you mean 'run'?"),
        (["plna", "demo"], "did you mean 'plan'?"),
        (["zzzzzzz"], "there is no command 'zzzzzzz'"),
    ],
)
def test_commands_that_are_none(h2h, arguments, fragment):
    result = h2h(*arguments)
    refused(result, "usage: h2h", fragment)
    assert ("did you mean" in result[2]) == ("did you mean" in fragment)


def test_an_option_that_is_none(h2h):
    refused(h2h("plan", "demo", "--sett", "x"), "plan knows no '--sett'", "did you mean '--set'?")
    refused(h2h("plan", "demo", "--foo"), "Valid: --address, --json, --no-calibration, --quiet, --set, --verbose\n")
    refused(h2h("--quiet", "plan", "demo"), "'--quiet' stands before the command", "h2h COMMAND ... --quiet")
    refused(h2h("plan", "demo", "other"), "plan knows no 'other'")


@pytest.mark.parametrize("override", ["cap.tokens=1000", "tokenizer={pretrained: /nowhere}"])
def test_what_is_found_in_planning_names_the_override(h2h, override):
    refused(h2h("plan", "demo", overrides=[override, "yardsticks.others=[]"]), f"where: --set {override}")


def test_no_command_shows_all(h2h):
    code, out, err = h2h()
    assert (code, err) == (2, "")
    assert out.startswith("usage: h2h")
    assert all(f"    {command} " in out for command in ("run", "plan", "resume", "compare", "schema"))


def test_the_version(h2h):
    code, out, _ = h2h("--version")
    assert (code, out) == (0, f"headtohead {version('headtohead')}\n")


def test_plan_and_list(h2h):
    code, out, _ = h2h("plan", "demo")
    assert code == 0
    assert "headless_clm" in out
    code, out, _ = h2h("list")
    assert code == 0
    assert all(name in out for name in ("laptop", "headless_mlm", "pythia-70m", "recovery_mrr", "veldan", ".jsonl"))


def test_a_mistake_costs_no_import_of_ray(tmp_path):
    """Also where nothing stands in Ray's way."""
    script = (
        "import sys; from orchestrator.cli import main; "
        "code = main(['run', 'demo', '--set', 'model.position_limit=32']); "
        "assert 'ray' not in sys.modules; sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("h2h: ")
    assert not list(tmp_path.iterdir())


def test_a_study_with_relative_paths_is_the_one_that_began(tmp_path, monkeypatch):
    """It is frozen with absolute paths, and compared with the file as its author wrote it."""
    monkeypatch.chdir(tmp_path)
    study = Study("laptop", [f"storage={tmp_path}"])
    frozen = freeze(study.spec)
    assert going_on(study.spec, frozen, study.folder) == frozen
    with pytest.raises(InputError, match="began with another 'budget'"):
        going_on(Study("laptop", [f"storage={tmp_path}", "budget.tokens=5e6"]).spec, frozen, study.folder)


def test_a_study_whose_working_folder_has_moved_is_the_one_that_began(tmp_path, monkeypatch):
    """As a job's, which is another one on each cluster; what is there now is read."""

    def declared(*changes: str) -> StudySpec:
        return Study("laptop", [f"storage={tmp_path}/store", *changes]).spec

    def source(files: str) -> str:
        return f"corpora.sources=[{{language: en, files: {files}}}]"

    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    names = ["./text/*.txt", "[a.txt, ../b.txt]", f"{first}/text.txt"]
    for name in names:
        monkeypatch.chdir(first)
        frozen = freeze(declared(source(name)))
        monkeypatch.chdir(second)
        gone_on = going_on(declared(source(name)), frozen, Location(tmp_path / "store" / "laptop"))
        assert gone_on == freeze(declared(source(name)))
        for other in ["other.txt", "[a.txt]", "[a.txt, b.txt]", "xt.txt", f"{second}/text.txt"]:
            with pytest.raises(InputError, match="began with another 'corpora'"):
                going_on(declared(source(other)), frozen, Location(tmp_path / "store" / "laptop"))
    frozen = freeze(declared(source("s3://bucket/text.txt")))
    with pytest.raises(InputError, match="began with another 'corpora'"):
        going_on(declared(source("text.txt")), frozen, Location(tmp_path / "store" / "laptop"))
