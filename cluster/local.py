"""A Ray cluster on this machine that grows and shrinks by itself: a cloud's autoscaling, tried for nothing.

``python -m cluster.local --max-workers 3`` starts a head without CPUs; Ray's autoscaler adds nodes of
``--cpus-per-worker`` when tasks wait for them and removes them when they idle. The nodes are processes, so they share
this machine's real CPUs and memory. The cluster listens on the loopback interface only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from orchestrator.execution.privacy import LOOPBACK_ONLY, ensure_private_token, free_port
from orchestrator.planning.machine import require_whole_ray
from trainables.errors import InputError

_MARK_VARIABLE = "H2H_LOCAL_CLUSTER"  # as in watchdog.py, which is not imported here: it imports ray
# Ray's default for its workers' own ports: a chosen port among them clashes at random.
_RAY_WORKER_PORTS = range(10002, 20000)
_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_NODES = "cluster.local_nodes"
_FIND_NODES = (sys.executable, "-P", "-c", f"import importlib.util as i; assert i.find_spec('{_NODES}')")
_TELL_LIMITS = (sys.executable, "-P", str(Path(__file__).with_name("limits.py")))


class LocalCluster:
    """A Ray head node on the loopback interface, with an autoscaler or without; a context manager. It ends with the
    ``with`` block, with :meth:`stop`, or with the process that started it, however that one dies. Only its own
    processes are ended. Raises InputError if a number is out of range or a port is taken.

    Args:
        autoscaling: add and remove worker nodes; without, the head is the whole cluster.
        head_cpus: CPUs of the head node; by default 0 with autoscaling and 1 without.
        cpus_per_worker: CPUs of each worker node. Ray counts them; the machine need not have them.
        idle_seconds: a worker node without work goes after this time.
        port, dashboard_port: of Ray's control service (GCS), and of dashboard and job server; by default free ones.
        authentication: ``token`` refuses who does not have the user's token (``RAY_AUTH_TOKEN``,
            ``RAY_AUTH_TOKEN_PATH`` or ``~/.ray/auth_token``, made if there is none); ``disabled`` lets every
            user of this machine run code as you: for throw-away tests.
        environment: more environment variables for all of the cluster's processes.
    """

    def __init__(
        self,
        *,
        autoscaling: bool = True,
        head_cpus: int | None = None,
        max_workers: int = 2,
        cpus_per_worker: int = 1,
        idle_seconds: float = 30.0,
        port: int | None = None,
        dashboard_port: int | None = None,
        authentication: Literal["token", "disabled"] = "token",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        require_whole_ray("a cluster", "cluster.local")
        self.autoscaling, self.authentication, self.idle_seconds = autoscaling, authentication, idle_seconds
        self.head_cpus = head_cpus if head_cpus is not None else (0 if autoscaling else 1)
        self.max_workers, self.cpus_per_worker = max_workers, cpus_per_worker
        for name, least in (("head_cpus", 0), ("max_workers", 1), ("cpus_per_worker", 1)):
            if getattr(self, name) < least:
                what = f"{name} is {getattr(self, name)}"
                raise InputError(what, where="cluster.local", remedy=f"give at least {least}")
        self._port = _checked(port, "port") if port else free_port()
        self._dashboard_port = _checked(dashboard_port, "dashboard_port") if dashboard_port else free_port()
        self.mark = uuid.uuid4().hex  # in the environment of all of its processes
        self._environment = {**os.environ, **(environment or {}), **self._own_environment()}
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What ``ray.init`` takes, in a process that has the :attr:`client_environment`."""
        return f"127.0.0.1:{self._port}"

    @property
    def dashboard_url(self) -> str:
        """The dashboard and job server: what ``h2h submit --address`` takes."""
        return f"http://127.0.0.1:{self._dashboard_port}"

    @property
    def client_environment(self) -> dict[str, str]:
        """The variables of a process that is to connect by ``ray.init``; ``h2h submit`` needs none."""
        return {"RAY_ADDRESS": self.address, "RAY_AUTH_MODE": self.authentication, **LOOPBACK_ONLY}

    def start(self) -> LocalCluster:
        """Start the head node; returns when it answers. Raises InputError, with Ray's words, if it does not."""
        if self.autoscaling:
            self._require_nodes()
        # A short path, since the sockets in it have names of at most 107 bytes. Nobody else can enter it: Ray's own
        # folder is inside, as Ray lets everybody write to that.
        folder = tempfile.mkdtemp(prefix="h2h-", dir="/tmp")
        # First the watchdog, so that an interruption while Ray starts leaves nothing behind. Both have sessions of
        # their own: Ctrl-C reaches this process alone, and this process ends the others in order.
        watchdog = Path(__file__).with_name("watchdog.py")
        self._watchdog = subprocess.Popen(
            [sys.executable, "-P", str(watchdog), self.mark, folder], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            if self.authentication == "token":
                ensure_private_token()
            self._run(*_RAY, "start", "--head", *self._head_options(folder))
            if self.autoscaling:
                most = {"CPU": self.cpus_per_worker}
                self._run(*_TELL_LIMITS, self.address, json.dumps(most), str(self.max_workers))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the cluster's processes and remove its temporary folder; nothing where it is not running."""
        if self._watchdog is not None:
            self._watchdog.communicate()  # closes its standard input and waits
            self._watchdog = None

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _require_nodes(self) -> None:
        """Ray's autoscaler imports the class of its nodes; where it cannot it ends, and no node ever comes."""
        found = subprocess.run(_FIND_NODES, env=self._environment, capture_output=True, check=False)
        if found.returncode:
            raise InputError(
                "Ray's autoscaler would not find headtohead",
                where="cluster.local",
                why=f"{sys.executable} knows no {_NODES}, except in the current folder",
                remedy="pip install -e . in the folder of headtohead; no other `cluster` before it on PYTHONPATH",
            )

    def _own_environment(self) -> dict[str, str]:
        own = {
            _MARK_VARIABLE: self.mark,
            "RAY_AUTH_MODE": self.authentication,
            **LOOPBACK_ONLY,
            # Ray's processes rename themselves, and without this overwrite their environment, and so the mark.
            "SPT_NOENV": "1",
            # So that a job's `python` is this one, also where its environment is not activated.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        }
        if self.autoscaling:
            own |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        return own

    def _head_options(self, folder: str) -> list[str]:
        options: dict[str, Any] = {
            "node-ip-address": "127.0.0.1",
            "port": self._port,
            "dashboard-host": "127.0.0.1",
            "dashboard-port": self._dashboard_port,
            "dashboard-agent-listen-port": free_port(),
            "ray-client-server-port": free_port(),
            "min-worker-port": 0,  # any free ones, rather than the range that every cluster shares
            "max-worker-port": 0,
            "num-cpus": self.head_cpus,
            "temp-dir": str(Path(folder, "ray")),
        }
        if self.autoscaling:
            config = Path(folder, "autoscaling.json")
            config.write_text(json.dumps(self._autoscaling_config(folder)))
            options["autoscaling-config"] = config
        return ["--disable-usage-stats", *(f"--{name}={value}" for name, value in options.items())]

    def _autoscaling_config(self, folder: str) -> dict[str, Any]:
        provider = {
            "type": "external",
            "module": f"{_NODES}.LocalNodes",
            "folder": folder,
            "gcs_address": self.address,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        }
        worker = {"resources": {"CPU": self.cpus_per_worker}, "node_config": {}, "min_workers": 0}
        node_types = {
            "ray.head.default": {"resources": {"CPU": self.head_cpus}, "node_config": {}, "max_workers": 0},
            "worker": {**worker, "max_workers": self.max_workers},
        }
        lists = ["cluster_synced_files", "initialization_commands", "setup_commands", "head_setup_commands"]
        lists += ["worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"]
        return {
            "cluster_name": "local",
            "max_workers": self.max_workers,
            "upscaling_speed": float(self.max_workers),
            "idle_timeout_minutes": self.idle_seconds / 60,
            "provider": provider,
            "head_node_type": "ray.head.default",
            "available_node_types": node_types,
            **{name: {} for name in ("auth", "docker", "file_mounts")},
            **{name: [] for name in lists},
        }

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            arguments,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InputError(
                "Ray's cluster did not start",
                where="cluster.local",
                why=next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "it does not say"),
                remedy="the same again when less runs here, if it was too slow: Ray waits half a minute for its own",
            )


def _checked(port: int, name: str) -> int:
    if port in _RAY_WORKER_PORTS:
        why = "Ray's workers take ports 10002 to 19999 for themselves"
        remedy = "choose one outside that range, or none for any free one"
        raise InputError(f"{name} is {port}", where="cluster.local", why=why, remedy=remedy)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            what, remedy = f"cannot listen on {name} {port}", "choose another, or none for any free one"
            raise InputError(what, where="cluster.local", why=str(error), remedy=remedy) from error
    return port


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of ``python -m cluster.local``: stays until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m cluster.local", description=__doc__)
    parser.add_argument("--max-workers", type=int, default=2, help="the most worker nodes")
    parser.add_argument("--cpus-per-worker", type=int, default=1, help="CPUs of each worker node")
    parser.add_argument("--head-cpus", type=int, default=0, help="CPUs of the head; 0 keeps all work on the workers")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="an idle worker node goes after this time")
    parser.add_argument("--port", type=int, help="of Ray's control service; any free one by default")
    parser.add_argument("--dashboard-port", type=int, help="of dashboard and job server; any free one by default")
    options = parser.parse_args(arguments)
    # A handler that raises also interrupts the start, after which the `with` block ends what has started.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with LocalCluster(**vars(options)) as cluster:
            print(f"a local cluster of 0 to {options.max_workers} workers runs at {cluster.address}")
            variables = " ".join(f"{name}={value}" for name, value in cluster.client_environment.items())
            print(f"  {variables} h2h run STUDY.yaml")
            print(f"  h2h submit STUDY.yaml --address {cluster.dashboard_url} --set storage=$PWD/studies")
            print("Ctrl-C ends it.", flush=True)
            threading.Event().wait()
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("the cluster has ended.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
