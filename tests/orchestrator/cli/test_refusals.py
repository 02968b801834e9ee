"""What a file, a folder, a store or the output refuses is a message: exit code 2, and no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import IO

import pytest

from orchestrator.cli import main
from orchestrator.config.files import dump_study, freeze, load_study
from orchestrator.reporting.results import Results
from tests.helpers.commands import run_command
from tests.helpers.demonstration import records
from tests.helpers.ledgers import write_ledger
from trainables.errors import storage_errors


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A finished study's folder, which any user can reach; the tests' own folders are their user's alone."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    folder = place / "demo"
    write_ledger(folder, records())
    (folder / "study.yaml").write_text(dump_study(freeze(load_study("demo", [f"storage={place}"]))))
    monkeypatch.chdir(place)
    yield folder
    shutil.rmtree(place)


@pytest.mark.parametrize(
    ("locked", "command"),
    [
        *(("study.yaml", command) for command in ("verify", "corpus", "plan")),
        *(("ledger", command) for command in ("compare", "verify", "watch", "corpus")),
        *(("ledger/000001.jsonl", command) for command in ("compare", "verify", "watch")),
        *((".", command) for command in ("compare", "verify", "watch", "export")),
    ],
)
def test_what_may_not_be_read_is_named(study: Path, locked: str, command: str) -> None:
    options = {"plan": ["--no-calibration"], "export": ["--to", f"{study}-model"]}.get(command, [])
    run_command(command, str(study), *options)
    storage_errors()  # all is imported: who may read nothing may not import either
    (study / locked).chmod(0)
    root = os.geteuid() == 0  # who may read all
    if root:
        os.seteuid(65534)
    try:
        code, message = run_command(command, str(study), *options)
    finally:
        if root:
            os.seteuid(0)
        (study / locked).chmod(0o755)
    assert code == 2
    assert "cannot read or write" in message
    assert "Permission denied" in message
    assert str(study) in message
    assert "damaged" not in message


@pytest.mark.parametrize("command", ["compare", "verify", "watch", "corpus"])
def test_a_ledger_that_is_a_file(study: Path, command: str) -> None:
    shutil.rmtree(study / "ledger")
    (study / "ledger").write_text("x")
    code, message = run_command(command, str(study))
    assert code == 2
    assert f"'{study}/ledger'" in message
    assert "Not a directory" in message
    with pytest.raises(NotADirectoryError, match="ledger"):
        Results(str(study))


def test_a_folder_called_study_yaml_is_no_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").mkdir()
    for command in ("compare", "watch", "resume"):
        code, message = run_command(command, str(tmp_path))
        assert code == 2
        assert "no study lies in" in message


class Refusing(BaseHTTPRequestHandler):
    """Answers as a store does to who may not read it."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("command", ["compare", "verify", "watch", "corpus"])
def test_an_object_store_that_refuses(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        code, message = run_command(command, "s3://bucket/studies/demo")
    finally:
        server.shutdown()
    assert code == 2
    assert "cannot read or write" in message
    assert "ACCESS_DENIED" in message or "Access Denied" in message
    assert ("h2h: reading s3://bucket/studies/demo ..." in message) == (command == "watch")


def test_a_hub_that_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    code, message = run_command("watch", "hf://owner/name")
    assert code == 2
    assert "offline mode is enabled" in message


def h2h(words: str, output: int | IO[str], **environment: str) -> subprocess.CompletedProcess[str]:
    command, own = [sys.executable, "-m", "orchestrator.cli", *words.split()], {**os.environ, **environment}
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=own)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@pytest.mark.parametrize("words", ["compare {}", "list", "schema"])
def test_an_output_that_is_full(study: Path, words: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = h2h(words.format(study), full)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_output_that_knows_no_plus_minus(study: Path) -> None:
    done = h2h(f"compare {study}", subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout
    assert "headless" in done.stdout


@pytest.mark.parametrize("items", ["0", "-1", "many", "1.5"])
def test_a_number_of_examples_that_is_none(items: str) -> None:
    code, said = run_command("evaluate", "model", "--tasks", "blimp", "--items", items)
    assert code == 2
    assert f"'{items}' is no number of examples" in said


def test_a_shipped_studys_name_is_not_waited_for_where_a_folder_here_has_it(study: Path) -> None:
    """``demo`` names studies/demo, where nothing has begun; ./demo has a study."""
    assert Path.cwd() == study.parent
    code, message = run_command("watch", "demo")
    assert code == 2
    assert "the folder ./demo has one: name it so, with ./" in message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["init", "--kind", "decodr"], "--kind cannot be 'decodr'\n  remedy: did you mean 'decoder'? Valid: decoder,"),
        (["track", "x", "--to", "tensorbord"], "--to cannot be 'tensorbord'\n  remedy: did you mean 'tensorboard'?"),
        (["completion", "basj"], "shell cannot be 'basj'\n  remedy: did you mean 'bash'? Valid: bash, fish, zsh"),
    ],
)
def test_a_choice_that_is_none_names_the_nearest(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_task_that_is_none_is_told_at_its_flag() -> None:
    code, said = run_command("evaluate", "model", "--tasks", "blmp")
    assert code == 2
    assert "where: --tasks\n" in said
    assert "did you mean 'blimp'" in said


def test_a_name_that_no_study_can_have_is_refused_before_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "en.txt").write_text("a\n\nb\n")
    monkeypatch.setattr("orchestrator.planning.draft.draft", lambda *_: pytest.fail("the files were read"))
    code, said = run_command("init", str(tmp_path / "en.txt"), "--name", "mein größter", "--yes")
    assert code == 2
    assert "where: --name\n" in said
    assert "why: the value is 'mein größter'" in said
