"""The Slurm script and the SkyPilot task, run with commands that only write down how they were called."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from ray.scripts import symmetric_run

import cluster

RAY = """
echo "ray $* mode=$RAY_AUTH_MODE" >> "$CALLS"
case "$1" in
  get-auth-token) mkdir -p ~/.ray; umask 022; echo secret > ~/.ray/auth_token; echo secret ;;
  health-check) grep -q "ray start --head" "$CALLS" && [ -z "${NO_HEAD:-}" ] ;;
  start) exec sleep 60 ;;
esac
"""
SRUN = """
echo "srun $*" >> "$CALLS"
while [[ "$1" == --* ]]; do shift; done
exec "$@"
"""
SCONTROL = """
echo "scontrol $*" >> "$CALLS"
case "$1" in show) echo node1; echo node2; echo node3 ;; esac
"""
GETENT = """
[ -n "${ONLY_LOOPBACK:-}" ] || echo "10.0.0.7 STREAM $2"
echo "127.0.1.1 STREAM $2"
"""
H2H = """
trap 'echo saved >> "$CALLS"; exit 130' TERM
echo "h2h $*" >> "$CALLS"
if [ "$STUDY" = waits ]; then while :; do sleep 0.1; done; fi
exit "$STUDY"
"""
RAY_MODULE = """
import os
looks = 0

def init(address, log_to_driver):
    print("ray.init", address, file=open(os.environ["CALLS"], "a"))

def nodes():
    global looks
    looks += 1
    return [{"Alive": True}] * min(looks + 1, int(os.environ["NODES"])) + [{"Alive": False}]
"""


class Slurm:
    """A folder with the script and all commands that it calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls_file = folder / "calls"
        self.calls_file.touch()
        (folder / "bin").mkdir()
        commands = {"ray": RAY, "srun": SRUN, "scontrol": SCONTROL, "getent": GETENT, "h2h": H2H}
        commands |= {"python": f'exec {sys.executable} "$@"', "hostname": "echo 10.0.0.9 172.17.0.1"}
        for name, body in commands.items():
            (folder / "bin" / name).write_text(f"#!/usr/bin/env bash\n{body}")
            (folder / "bin" / name).chmod(0o755)
        (folder / "modules").mkdir()
        (folder / "modules" / "ray.py").write_text(RAY_MODULE)
        self.script = folder / "slurm.sh"
        self.script.write_text(cluster.path("slurm").read_text())
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, study: str = "0", **environment: str) -> subprocess.Popen[str]:
        variables = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "modules"),
            "HOME": str(self.folder),
            "CALLS": str(self.calls_file),
            "STUDY": study,
            "NODES": "3",
            "SLURM_JOB_ID": "42",
            "SLURM_JOB_NODELIST": "node[1-3]",
            "SLURM_JOB_NUM_NODES": "3",
            "SLURM_CPUS_PER_TASK": "8",
            "SLURM_GPUS_PER_NODE": "a100:4",
        } | environment
        process = subprocess.Popen(
            ["bash", str(self.script), *(arguments or ("study.yaml", "/shared/studies"))],
            env=variables,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + 60
        while not any(words in call for call in self.calls()):
            assert time.monotonic() < deadline, self.calls()
            time.sleep(0.05)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """As Slurm does, end what a script has left behind when it ends."""
    slurm = Slurm(tmp_path)
    yield slurm
    for process in slurm.processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ended(process: subprocess.Popen[str]) -> int:
    """The exit code. What is left in the background holds the output open, so that it is not read here."""
    return process.wait(timeout=60)


def test_the_slurm_script_starts_ray_on_all_nodes_and_then_the_study(slurm: Slurm) -> None:
    assert ended(slurm.start()) == 0
    calls = slurm.calls()
    (head,) = [call for call in calls if call.startswith("ray start --head")]
    (worker,) = [call for call in calls if call.startswith("ray start --address")]
    assert "--node-ip-address=10.0.0.7 --port=6379 --dashboard-host=127.0.0.1" in head
    assert "--address=10.0.0.7:6379" in worker
    for start in (head, worker):
        assert "--block --num-cpus=8 --num-gpus=4 --temp-dir=/tmp/h2h-42 mode=token" in start
    steps = [call for call in calls if call.startswith("srun")]
    assert "srun --nodes=1 --ntasks=1 --nodelist=node1 --cpus-per-task=8 ray start --head" in steps[0]
    assert "srun --nodes=2 --ntasks=2 --exclude=node1 --cpus-per-task=8 --kill-on-bad-exit=0 ray start" in steps[1]
    study = "h2h run study.yaml --resume --plain --address 10.0.0.7:6379 --set storage=/shared/studies"
    order = [calls.index(head), calls.index(worker), calls.index("ray.init 10.0.0.7:6379"), calls.index(study)]
    assert order[0] < min(order[1:])
    assert order[2] < order[3]
    assert not any(call.startswith("scontrol requeue") for call in calls)


def test_the_slurm_scripts_token_is_private(slurm: Slurm) -> None:
    process = slurm.start()
    assert ended(process) == 0
    assert (slurm.folder / ".ray" / "auth_token").stat().st_mode & 0o077 == 0
    assert process.stdout is not None
    os.killpg(process.pid, signal.SIGKILL)  # what runs in the background holds the output open
    assert "secret" not in process.stdout.read()


def test_one_node_is_a_cluster_too(slurm: Slurm) -> None:
    assert ended(slurm.start(SLURM_JOB_NUM_NODES="1", NODES="1")) == 0
    assert not any(call.startswith("ray start --address") for call in slurm.calls())


def test_a_head_that_knows_its_name_as_loopback_takes_an_address_that_others_reach(slurm: Slurm) -> None:
    assert ended(slurm.start(ONLY_LOOPBACK="yes")) == 0
    assert any("--node-ip-address=10.0.0.9 " in call for call in slurm.calls())


def test_near_the_time_limit_the_study_is_saved_and_the_job_put_back_into_the_queue(slurm: Slurm) -> None:
    process = slurm.start(study="waits")
    slurm.wait_for("h2h run")
    process.send_signal(signal.SIGUSR1)
    assert ended(process) == 130
    assert slurm.calls()[-2:] == ["saved", "scontrol requeue 42"]


def test_a_terminated_script_saves_the_study_and_is_not_put_back(slurm: Slurm) -> None:
    process = slurm.start(study="waits")
    slurm.wait_for("h2h run")
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 130
    assert slurm.calls()[-1] == "saved"


def test_a_failed_study_is_a_failed_job(slurm: Slurm) -> None:
    assert ended(slurm.start(study="1")) == 1
    assert not any(call.startswith("scontrol requeue") for call in slurm.calls())


@pytest.mark.parametrize("missing", [{"NO_HEAD": "yes"}, {"NODES": "2"}], ids=["the head", "a worker"])
def test_a_job_whose_ray_does_not_start_fails_before_the_study(slurm: Slurm, missing: dict[str, str]) -> None:
    text = slurm.script.read_text()
    assert "patience=300 " in text
    slurm.script.write_text(text.replace("patience=300 ", "patience=1 "))
    assert ended(slurm.start(**missing)) == 1
    assert not any(call.startswith("h2h") for call in slurm.calls())


def test_the_slurm_script_without_its_arguments_says_how_it_is_called(slurm: Slurm) -> None:
    process = slurm.start("study.yaml")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output == "usage: sbatch slurm.sh STUDY.yaml STORAGE\n"


def test_the_slurm_job_has_its_nodes_alone_is_told_of_its_end_and_may_begin_again() -> None:
    lines = cluster.path("slurm").read_text().splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert {"--exclusive", "--requeue", "--signal=B:USR1@300", "--open-mode=append", "--ntasks-per-node=1"} <= {
        *options
    }
    first_command = next(index for index, line in enumerate(lines) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:]), "Slurm reads none after a command"


def test_what_rays_own_script_for_slurm_does_when_ray_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for a script of ours. When this fails, look whether Ray's serves now."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> None:
        calls.append(command[:2])
        if command[:2] == ["ray", "start"]:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(symmetric_run, "check_ray_already_started", lambda: False)
    monkeypatch.setattr(symmetric_run.subprocess, "run", run)
    arguments = ["--address", "127.0.0.1:6379", "--", "h2h", "run", "study.yaml"]
    monkeypatch.setattr(sys, "argv", ["symmetric-run", *arguments])
    assert CliRunner().invoke(symmetric_run.symmetric_run, arguments).exit_code == 0
    assert calls == [["ray", "start"], ["ray", "stop"]]


def skypilot() -> dict[str, Any]:
    task: dict[str, Any] = yaml.safe_load(cluster.path("skypilot").read_text())
    return task


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_skypilot_task_starts_ray_everywhere_and_the_study_on_the_first_machine(tmp_path: Path, rank: str) -> None:
    start = tmp_path / "sky_templates" / "ray" / "start_cluster"
    start.parent.mkdir(parents=True)
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_HEAD_PORT", "RAY_DASHBOARD_PORT", "RAY_DASHBOARD_HOST")
    shown = " ".join(f"${name}" for name in names)
    start.write_text(f'#!/usr/bin/env bash\necho "start {shown}"\n')
    start.chmod(0o755)
    programs = tmp_path / "headtohead" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    (programs / "h2h").write_text('#!/usr/bin/env bash\necho "h2h $*"\n')
    (programs / "h2h").chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "SKYPILOT_NODE_RANK": rank,
        "STORAGE": "s3://bucket/studies",
        "RAY_AUTH_TOKEN": "secret",
    }
    run = subprocess.run(["bash", "-c", skypilot()["run"]], env=environment, capture_output=True, text=True, check=True)
    study = f"h2h run {tmp_path}/study.yaml --resume --plain --address 127.0.0.1:6379 --set storage=s3://bucket/studies"
    expected = ["start token secret 6379 8265 127.0.0.1"] + ([study] if rank == "0" else [])
    assert run.stdout.splitlines() == expected


def test_the_skypilot_task_keeps_the_token_out_of_files_and_leaves_skypilots_ray_alone() -> None:
    task = skypilot()
    assert set(task) == {"name", "num_nodes", "resources", "file_mounts", "envs", "secrets", "setup", "run"}
    assert task["secrets"] == {"RAY_AUTH_TOKEN": None}
    assert list(task["file_mounts"]) == ["~/study.yaml"], "SkyPilot copies them to a bucket"
    assert task["envs"] == {"STORAGE": None}
    commands = task["setup"] + task["run"]
    assert not any(word in commands for word in ("ray stop", "6380", "8266", "0.0.0.0"))
    assert task["resources"]["use_spot"] is True
    subprocess.run(["bash", "-n"], input=task["setup"], text=True, check=True)
