"""Submitting studies to a job server: what travels, what comes back, and what each failure says."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus

from cluster.local import LocalCluster
from cluster.watchdog import marked
from orchestrator.execution import jobs
from trainables.errors import InputError

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A job server that asks for a token."""
    token = tmp_path_factory.mktemp("token") / "auth_token"
    token.write_text(TOKEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_AUTH_MODE", raising=False)
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setattr(jobs, "_POLL_SECONDS", 0.3)
        with LocalCluster(autoscaling=False, head_cpus=2) as cluster:
            yield cluster.dashboard_url
        assert marked(cluster.mark) == []


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "tiny study.yaml"
    file.write_text(f"name: tiny\nstorage: {tmp_path}/storage\n")
    return file


def run_instead(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the job run ``code``, with the entrypoint it would have had as its arguments."""
    original = jobs._entrypoint

    def replaced(*arguments: object) -> str:
        return shlex.join(["python", "-u", "-c", code]) + " " + original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "_entrypoint", replaced)


WRITES_RESULTS = """
import sys
from pathlib import Path
from types import SimpleNamespace
import orchestrator.execution.jobs, trainables.storage
storage = sys.argv[sys.argv.index("--set") + 1].partition("=")[2]
study = Path(sys.argv[5]).read_text()
print("imported from", orchestrator.execution.jobs.__file__)
result = trainables.storage.Location(storage) / "result.json"
result.write_json({"argv": sys.argv[1:], "study": study})
print("done", end="")
"""


@pytest.mark.slow
def test_the_study_and_our_packages_travel_and_the_results_come_back_through_storage(
    server: str, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(monkeypatch, WRITES_RESULTS)
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")  # Ray's client would prefer it to the argument
    storage = tmp_path / "a folder; with $signs"
    lines: list[str] = []
    ended = jobs.submit(
        study, address=server, overrides=[f"storage={storage}", "budget.tokens=10"], on_line=lines.append
    )
    assert (ended.status, ended.exit_code) == ("SUCCEEDED", 0), lines
    assert lines[-1] == "done"
    repository = str(Path(jobs.__file__).parents[2])
    imported = next(line for line in lines if line.startswith("imported from /"))
    assert "py_modules" in imported
    assert repository not in imported
    result = json.loads((storage / "result.json").read_text())
    assert result["study"] == study.read_text()
    assert result["argv"] == [
        *["python", "-m", "orchestrator.cli", "run", "tiny study.yaml", "--resume"],
        *["--set", f"storage={storage}", "--set", "budget.tokens=10"],
    ]


@pytest.mark.slow
def test_a_failing_job_keeps_its_output_and_exits_with_1(
    server: str, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(monkeypatch, "import sys; print('before'); sys.exit(3)")
    lines: list[str] = []
    ended = jobs.submit(study, address=server, runtime_env={"py_modules": []}, on_line=lines.append)
    assert (ended.status, ended.exit_code) == ("FAILED", 1)
    assert any("ended as FAILED" in line for line in lines)
    assert lines.count("before") == 1, "Ray's message has the output's end again"
    assert "3" in ended.message


@pytest.mark.slow
def test_env_vars_pass_and_following_can_be_interrupted_while_the_job_goes_on(
    server: str, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_instead(monkeypatch, "import os, time; print(os.environ['GREETING']); time.sleep(600)")
    lines: list[str] = []
    environment = {"py_modules": [], "env_vars": {"GREETING": "hello"}}

    def interrupt_at_greeting(line: str) -> None:
        lines.append(line)
        if line == "hello":
            raise KeyboardInterrupt

    left = jobs.submit(study, address=server, runtime_env=environment, on_line=interrupt_at_greeting)
    assert (left.status, left.exit_code) == ("DETACHED", 130), lines
    assert any("the job goes on" in line for line in lines)
    assert any(f"--follow {left.submission_id}" in line for line in lines)
    client = jobs._connect(server)
    assert client.get_job_status(left.submission_id) == "RUNNING"
    assert client.stop_job(left.submission_id)


@pytest.mark.slow
def test_a_job_that_somebody_stops_ends_as_stopped(server: str, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_instead(monkeypatch, "import time; print('hello', flush=True); time.sleep(600)")
    lines: list[str] = []

    def stop_at_greeting(line: str) -> None:
        lines.append(line)
        if line == "hello":
            jobs.stop_job(server, lines[0].split()[1])

    ended = jobs.submit(study, address=server, runtime_env={"py_modules": []}, on_line=stop_at_greeting)
    assert (ended.status, ended.exit_code) == ("STOPPED", 130)
    assert lines.count("hello") == 1


def test_a_job_not_waited_for(server: str, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_instead(monkeypatch, "print('hello')")
    lines: list[str] = []
    environment = {"py_modules": []}
    submitted = jobs.submit(study, address=server, runtime_env=environment, wait=False, on_line=lines.append)
    assert (submitted.status, submitted.exit_code) == ("SUBMITTED", 0)
    assert any(f"h2h jobs {server} --follow {submitted.submission_id}" in line for line in lines)
    lines.clear()
    ended = jobs.follow_job(server, submitted.submission_id, lines.append)
    assert (ended.status, lines[-1]) == ("SUCCEEDED", "hello")
    job = next(job for job in jobs.study_jobs(server) if job.submission_id == submitted.submission_id)
    assert (job.status, job.study) == ("SUCCEEDED", "tiny study.yaml")
    assert not jobs.stop_job(server, submitted.submission_id), "it has ended"
    with pytest.raises(InputError, match="has no study's job") as caught:
        jobs.stop_job(server, submitted.submission_id[:-1])
    assert f"did you mean '{submitted.submission_id}'" in caught.value.remedy


@pytest.mark.slow
def test_rays_own_command_runs_ours(server: str, tmp_path: Path) -> None:
    """As docs/clusters.md has it; the study is not there, which our command says."""
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "job", "submit", "--address", server, "--", "h2h", "resume", str(tmp_path / "nothing")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"RAY_AUTH_MODE": "token", "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 1
    said = next(line for line in done.stdout.splitlines() if line.startswith("h2h: "))
    assert str(tmp_path) in said


@pytest.mark.parametrize(
    ("entrypoint", "study"),
    [
        ("python -m orchestrator.cli run 'my study.yaml' --resume --set storage=s3://b", "my study.yaml"),
        ("h2h run --resume demo", "demo"),
        ("/opt/venv/bin/h2h resume s3://b/studies/demo", "s3://b/studies/demo"),
        ("bash -c 'h2h run demo'", None),
        ("h2h watch demo", None),
        ("h2h", None),
        ("h2h run --set storage=s3://b/x my.yaml --resume", "my.yaml"),
        ("h2h run --set=storage=s3://b/x my.yaml", "my.yaml"),
        ("python train.py 'unfinished", None),
    ],
)
def test_which_jobs_run_a_study(entrypoint, study):
    assert jobs._study_of(entrypoint) == study


@pytest.mark.parametrize("variable", [("RAY_AUTH_TOKEN", "wrong"), ("RAY_AUTH_MODE", "disabled")])
def test_a_wrong_or_missing_token_is_explained(
    server: str, study: Path, variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable)
    with pytest.raises(InputError, match="refuses the token") as caught:
        jobs.submit(study, address=server)
    assert "~/.ray/auth_token" in caught.value.remedy


def test_a_working_folder_over_the_cap_is_refused(server: str, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    (study.parent / "data.bin").write_bytes(random.Random(0).randbytes(101 * 2**20))
    with pytest.raises(InputError, match="too large to travel") as caught:
        jobs.submit(study, address=server, working_dir=study.parent, runtime_env={"py_modules": []})
    assert ".rayignore" in caught.value.remedy


def test_an_address_where_nobody_answers_is_refused(study: Path) -> None:
    with pytest.raises(InputError, match=r"no job server answers at http://127\.0\.0\.1:9"):
        jobs.submit(study, address="http://127.0.0.1:9")


def test_a_server_that_says_nothing_is_given_up(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a tunnel whose other end is gone."""
    monkeypatch.setattr(jobs, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=f"no job server answers at {address}"):
            jobs.study_jobs(address)


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "http://[::1", "http://", "foo://head:8265"])
def test_an_address_that_is_no_url_is_refused(study: Path, address: str) -> None:
    with pytest.raises(InputError, match="no job server's address") as caught:
        jobs.submit(study, address=address)
    assert "8265" in caught.value.remedy


@pytest.mark.parametrize("given", ["studies", "./x", "s3:/bucket", ""])
def test_a_storage_beside_the_files_of_a_job_is_refused(study: Path, given: str) -> None:
    """Of this machine's cluster too: Ray removes them."""
    with pytest.raises(InputError, match=f"the storage is {given or 'not set'}, which") as caught:
        jobs.submit(study, address="http://127.0.0.1:9", overrides=[f"storage={given}"])
    assert f"--set storage={Path(given or 'studies').absolute()}" in caught.value.remedy


def test_a_begun_study_is_named_by_its_folder(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever its file says that it lay; a cluster elsewhere does not have it."""
    monkeypatch.chdir(study.parent)
    Path("mine").mkdir()
    with pytest.raises(InputError, match="there is no study file mine"):
        jobs.submit("mine", address="http://127.0.0.1:9")
    study.rename("mine/study.yaml")
    assert jobs._begun("mine", "http://127.0.0.1:9") == str(Path("mine").absolute())
    with pytest.raises(InputError, match="the study lies in a folder of this machine") as caught:
        jobs.submit("mine", address="http://head.example:8265")
    assert f"h2h resume {Path('mine').absolute()}" in caught.value.remedy
    assert jobs._study_file("demo", None) is None


def test_a_large_upload_has_the_time_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are sent under the time-out for connecting."""
    asked: list[tuple[float, float]] = []

    def request(*_: object, timeout: tuple[float, float], **__: object) -> requests.Response:
        asked.append(timeout)
        response = requests.Response()
        response.status_code, response._content = 200, b'{"version": "5", "ray_version": "2", "ray_commit": "x"}'
        return response

    monkeypatch.setattr(requests, "request", request)
    client = jobs._connect("http://127.0.0.1:9")
    client._do_request("PUT", "/api/packages/gcs/x.zip", data=bytes(50_000_000))
    assert max(asked[:-1]) == (10.0, 60.0)
    assert asked[-1] == (1010.0, 60.0)


@pytest.mark.parametrize("in_file", ["studies", "/studies", None])
def test_a_local_storage_is_refused_for_a_cluster_elsewhere(study: Path, in_file: str | None) -> None:
    study.write_text(f"storage: {in_file}\n" if in_file else "name: tiny\n")
    with pytest.raises(InputError, match=f"the storage is {in_file or 'not set'}") as caught:
        jobs.submit(study, address="http://head.example:8265")
    assert "s3://" in caught.value.remedy


@pytest.mark.parametrize("storage", ["file:///nfs/studies", "s3://bucket/studies", "gs://bucket"])
def test_what_all_machines_share_is_a_storage_for_any_cluster(study: Path, storage: str) -> None:
    for host in ("127.0.0.1", "head.example"):
        jobs._require_reachable_storage(study, [f"storage={storage}"], f"http://{host}:8265")
        with pytest.raises(InputError, match="a study cannot lie in hf://datasets/x/y"):
            jobs._require_reachable_storage(study, ["storage=hf://datasets/x/y"], f"http://{host}:8265")


def test_an_override_decides_whether_the_storage_is_reachable(study: Path) -> None:
    study.write_text("storage: s3://bucket/studies\n")
    with pytest.raises(InputError, match="the storage is here"):
        jobs.submit(study, address="http://head.example:8265", overrides=["storage=here"])


def test_a_missing_study_file_and_one_outside_the_working_folder_are_refused(study: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no study file"):
        jobs.submit("no/such.yaml", address="http://127.0.0.1:9")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match="is not in the working folder"):
        jobs.submit(study, address="http://127.0.0.1:9", working_dir=tmp_path / "elsewhere")


def test_the_entrypoint_survives_a_shell() -> None:
    study, setting = "s3://b/a study", "question=Who's $1st; `me`?"
    words = ["python", "-m", "orchestrator.cli", "run", study, "--resume", "--set", setting]
    assert shlex.split(jobs._entrypoint(study, [setting])) == words
    assert "$1st" not in jobs._entrypoint("demo", ["a=$1st"]).replace("'a=$1st'", "")


def test_a_runtime_environment_is_read_from_a_file_or_from_the_words_themselves(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("pip: [headtohead]\n")
    assert jobs.read_runtime_env(str(file)) == {"pip": ["headtohead"]}
    assert jobs.read_runtime_env('{"env_vars": {"A": "1"}}') == {"env_vars": {"A": "1"}}
    with pytest.raises(InputError, match="no mapping"):
        jobs.read_runtime_env("missing.yaml")
    with pytest.raises(InputError, match="not YAML"):
        jobs.read_runtime_env("{pip: [")
    long = f"env_vars:\n  A: {'a' * 300}\n"
    assert jobs.read_runtime_env(long) == {"env_vars": {"A": "a" * 300}}


@pytest.mark.parametrize(
    ("environment", "refusal"),
    [({"py_moduels": []}, "unknown key 'py_moduels'"), ({"py_modules": "s3://b/x.zip"}, "'py_modules' is no list")],
)
def test_a_runtime_environment_of_which_ray_would_make_something_else_is_refused(
    study: Path, environment: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(InputError, match=refusal):
        jobs.submit(study, address="http://127.0.0.1:9", runtime_env=environment)


class Flaky:
    """A job server's client whose answers are given; an exception among them is raised."""

    def __init__(self, *answers: tuple[str, str] | Exception) -> None:
        self.answers = list(answers)

    def get_job_info(self, submission_id: str) -> SimpleNamespace:
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, self.logs = answer
        return SimpleNamespace(status=JobStatus(status), message="")

    def get_job_logs(self, submission_id: str) -> str:
        return self.logs


def test_following_shows_each_line_once_across_time_outs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.0)
    client = Flaky(
        ("RUNNING", "one\ntw"),
        requests.ReadTimeout(),
        ("RUNNING", "one\ntwo\n"),
        RuntimeError("504"),
        ("SUCCEEDED", "one\ntwo\nend"),
    )
    lines: list[str] = []
    ended = jobs._follow(client, "id", "http://head:8265", lines.append)  # type: ignore[arg-type]
    assert ended.status == "SUCCEEDED"
    assert lines == ["one", "two", "end"]


def test_following_gives_up_on_a_lost_server_and_says_how_to_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "_PATIENCE_SECONDS", 0.05)
    lines: list[str] = []
    client = Flaky(("RUNNING", "one\n"), requests.ConnectionError("refused"))
    ended = jobs._follow(client, "id", "http://head:8265", lines.append)  # type: ignore[arg-type]
    assert (ended.status, ended.exit_code) == ("UNREACHABLE", 1)
    assert any("h2h jobs http://head:8265 --follow id" in line for line in lines)


def test_a_token_that_was_changed_while_following_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_POLL_SECONDS", 0.0)
    client = Flaky(("RUNNING", "one\n"), AuthenticationError("401"))
    with pytest.raises(InputError, match="refuses the token"):
        jobs._follow(client, "id", "http://head:8265", lambda _: None)  # type: ignore[arg-type]
