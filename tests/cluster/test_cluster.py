"""The cluster definitions against the schemas that read them, and the local cluster's life and death."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import cluster
from cluster import local as local_cluster
from cluster.local import LocalCluster
from cluster.watchdog import MARK_VARIABLE, marked, psutil
from orchestrator.execution import jobs
from tests.helpers.repository import REPOSITORY
from trainables.errors import InputError

LAUNCHER_FILES = ("aws", "gcp")
KUBERAY_FILES = ("kuberay-raycluster", "kuberay-rayjob")  # more in test_kuberay.py
SCRIPTS = ("skypilot", "slurm")  # in test_scripts.py


@pytest.fixture(autouse=True)
def own_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the test's own, so that the user's stays as it is."""
    token = tmp_path / "auth_token"
    token.write_text("a-token-of-the-tests")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)


def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def wheel(extras: str = "") -> str:
    """The product where a user has laid it: its bare name would install what others put on an index."""
    name, version = project()["name"], project()["version"]
    return f"{name}{extras} @ https://PLACE/{name}-{version}-py3-none-any.whl"


def ray_version() -> str:
    """The minor version that pyproject.toml asks for, such as ``2.60``."""
    requirement = next(text for text in project()["dependencies"] if text.startswith("ray["))
    return requirement.partition(">=")[2].partition(",")[0]


def definition(name: str) -> dict[str, Any]:
    return yaml.safe_load(cluster.path(name).read_text())


def kuberay_cluster(name: str) -> dict[str, Any]:
    spec = definition(name)["spec"]
    return spec.get("rayClusterSpec", spec)


def test_every_definition_is_tested_here() -> None:
    assert cluster.names() == sorted((*LAUNCHER_FILES, *KUBERAY_FILES, *SCRIPTS))


def test_a_misspelt_definition_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'aws'"):
        cluster.path("awz")


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_launcher_files_fit_rays_schema(name: str) -> None:
    import ray.autoscaler

    schema = json.loads(Path(ray.autoscaler.__file__).with_name("ray-schema.json").read_text())
    jsonschema.validate(definition(name), schema)


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_launcher_files_install_the_product_and_share_the_token(name: str) -> None:
    config = definition(name)
    assert any(f'pip install "{wheel("[cluster]")}"' in command for command in config["setup_commands"])
    assert "~/.ray/auth_token" in config["file_mounts"].values()
    assert any("RAY_AUTH_MODE=token" in command for command in config["initialization_commands"])
    assert any("--dashboard-host=127.0.0.1" in command for command in config["head_start_ray_commands"])


def test_the_other_definitions_install_the_product() -> None:
    assert f'pip install "{wheel("[cluster]")}"' in definition("skypilot")["setup"]
    assert yaml.safe_load(definition("kuberay-rayjob")["spec"]["runtimeEnvYAML"]) == {"pip": [wheel()]}


@pytest.mark.parametrize("name", LAUNCHER_FILES)
def test_launcher_files_scale_workers_from_zero_within_the_cap(name: str) -> None:
    config = definition(name)
    workers = {kind: node for kind, node in config["available_node_types"].items() if kind != config["head_node_type"]}
    assert all(node["min_workers"] == 0 for node in workers.values())
    assert sum(node["max_workers"] for node in workers.values()) == config["max_workers"]
    head = json.dumps(config["available_node_types"][config["head_node_type"]])
    assert "spot" not in head
    assert "preemptible" not in head


@pytest.mark.parametrize("name", KUBERAY_FILES)
def test_kuberay_manifests_state_one_ray_version_everywhere(name: str) -> None:
    spec = kuberay_cluster(name)
    assert spec["rayVersion"].startswith(f"{ray_version()}.")
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    images = {container["image"] for group in groups for container in group["template"]["spec"]["containers"]}
    assert {image.partition(":")[2].partition("-")[0] for image in images} == {spec["rayVersion"]}


@pytest.mark.parametrize("name", KUBERAY_FILES)
def test_kuberay_manifests_authenticate_autoscale_and_cap_resources(name: str) -> None:
    manifest, spec = definition(name), kuberay_cluster(name)
    assert manifest["apiVersion"] == "ray.io/v1"
    assert manifest["kind"] == {"kuberay-raycluster": "RayCluster", "kuberay-rayjob": "RayJob"}[name]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["enableInTreeAutoscaling"] is True
    (workers,) = spec["workerGroupSpecs"]
    assert workers["minReplicas"] == workers["replicas"] == 0 < workers["maxReplicas"]
    for group in (spec["headGroupSpec"], workers):
        for container in group["template"]["spec"]["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
    (worker,) = workers["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_rayjob_runs_the_study_it_mounts() -> None:
    spec = definition("kuberay-rayjob")["spec"]
    command, verb, study, resume, option, setting = spec["entrypoint"].split()
    assert command in project()["scripts"]
    assert (verb, resume, option) == ("run", "--resume", "--set"), "else a retry would be refused"
    assert setting.startswith("storage=s3://")
    (mount,) = kuberay_cluster("kuberay-rayjob")["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert Path(study).is_relative_to(mount["mountPath"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"max_workers": 0}, "max_workers is 0"),
        ({"port": 12345}, "10002 to 19999"),
        ({"dashboard_port": 70000}, "cannot listen"),
    ],
)
def test_a_local_cluster_refuses_what_cannot_work(arguments: dict[str, int], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        LocalCluster(**arguments)  # type: ignore[arg-type]


def test_a_local_cluster_whose_nodes_could_never_come_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "cluster.py").touch()
    hidden = LocalCluster(environment={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(InputError, match="would not find headtohead"):
        hidden.start()
    assert marked(hidden.mark) == []


def test_a_local_cluster_that_does_not_start_says_so_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "print('Traceback'); print('Exception: The current node timed out'); raise SystemExit(1)"
    monkeypatch.setattr(local_cluster, "_RAY", (sys.executable, "-c", said))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        assert local_cluster.main([]) == 2
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    told = capfd.readouterr().err
    assert "Ray's cluster did not start" in told
    assert "why: Exception: The current node timed out" in told
    assert "Traceback" not in told


def started_by(owner: str) -> list[psutil.Process]:
    """Living processes started, however indirectly, with the variable ``TEST_OWNER`` set so."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if environment.get("TEST_OWNER") == owner and MARK_VARIABLE in environment:
            found.append(process)
    return found


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster.local", "--max-workers", "1"],
        cwd=REPOSITORY,
        env={**os.environ, "TEST_OWNER": str(tmp_path), "HOME": str(tmp_path), "RAY_AUTH_TOKEN_PATH": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_cluster_dies_with_its_owner(
    foreground: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    assert foreground.stdout is not None
    lines = [foreground.stdout.readline() for _ in range(4)]
    assert "h2h submit" in lines[2]
    token = tmp_path / ".ray" / "auth_token"
    assert len(token.read_text()) >= 32
    assert token.stat().st_mode & 0o077 == 0
    mine = started_by(str(tmp_path))
    assert len(mine) > 5
    folders = {word.partition("=")[2] for process in mine for word in process.cmdline() if "temp_dir=/tmp/h2h-" in word}
    assert folders
    listening = {
        connection.laddr.ip
        for process in mine
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    foreground.send_signal(number)
    foreground.wait(timeout=120)
    deadline = time.monotonic() + 120
    while started_by(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert started_by(str(tmp_path)) == []
    while any(Path(folder).exists() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(Path(folder).exists() for folder in folders)


SCALES = """
import os, time, ray
ray.init(log_to_driver=False)
workers = lambda: sum(node["Alive"] for node in ray.nodes()) - 1
assert workers() == 0
work = ray.remote(num_cpus=1)(lambda: time.sleep(12) or (ray.get_runtime_context().get_node_id(), os.getcwd()))
busy = [work.remote() for _ in range(3)]
peak = 0
while ray.wait(busy, num_returns=3, timeout=0.5)[1]:
    peak = max(peak, workers())
print("peak", peak, flush=True)
nodes, folders = map(set, zip(*ray.get(busy)))
print("apart", 1 < len(nodes) == len(folders), flush=True)
while workers():
    time.sleep(0.5)
print("idle", workers(), flush=True)
"""


@pytest.mark.slow
def test_autoscaling_goes_from_zero_to_n_to_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path / "work")
    monkeypatch.setattr(jobs, "_entrypoint", lambda *_: jobs.shlex.join(["python", "-c", SCALES]))
    lines: list[str] = []
    with LocalCluster(max_workers=3, idle_seconds=3) as local:
        ended = jobs.submit(
            "demo",
            overrides=[f"storage={tmp_path}"],
            address=local.dashboard_url,
            working_dir=tmp_path / "work",
            on_line=lines.append,
        )
    assert ended.status == "SUCCEEDED", "\n".join(lines)
    assert "peak 3" in lines
    assert "apart True" in lines, "a node shares the job's files with another"
    assert "idle 0" in lines
    assert marked(local.mark) == []
