"""A Ray cluster of this machine whose nodes are processes that can be lost, stopped and taken away."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Self

import psutil
from ray.util import get_node_ip_address

from orchestrator.execution.privacy import free_port
from tests.helpers.ray import STARTS

_READY_SECONDS = 300.0
_HEALTH = '{"health_check_initial_delay_ms":0,"health_check_period_ms":1000,"health_check_timeout_ms":2000,"health_check_failure_threshold":3}'  # noqa: E501


class Node:
    """A node, as ``ray start --block`` runs it. All but the head have an address of their own on the loopback, so that
    a driver connects to the head and to no other."""

    def __init__(
        self, address: str, log: Path, environment: dict[str, str], *arguments: str, hidden: Path | None = None
    ) -> None:
        self.address = address
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", "--block", "--disable-usage-stats", f"--node-ip-address={address}", *arguments]
        if hidden is not None:
            command = [*alone_with(hidden), *command]
        with log.open("ab") as lines:
            self.process = subprocess.Popen(
                command, stdout=lines, stderr=lines, env=environment, start_new_session=True
            )

    def family(self) -> list[psutil.Process]:
        """All its processes, the first one last."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            return [*root.children(recursive=True)[::-1], root]
        return []

    def runs(self, title: str) -> bool:
        """Whether one of its processes is called so."""
        for process in self.family():
            with suppress(psutil.Error):
                if " ".join(process.cmdline()).startswith(title):
                    return True
        return False

    def send(self, number: signal.Signals) -> None:
        """A signal to all of them."""
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill_raylet(self) -> None:
        """As if its machine's memory was full."""
        (raylet,) = (process for process in self.family() if process.name() == "raylet")
        raylet.kill()

    def kill(self) -> None:
        """As if its machine lost its power."""
        self.send(signal.SIGKILL)
        self.process.wait()


class Nodes:
    """A head without devices, and nodes of one CPU."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count(2)
        self._temporary = tempfile.mkdtemp(prefix="h2h-nodes-", dir="/tmp")
        self.port, self._head_address = free_port(), get_node_ip_address()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # With the dashboard, as a cluster has: what killed trials left taken is found by it.
        arguments = [f"--port={self.port}", "--num-cpus=0", f"--dashboard-port={free_port()}"]
        arguments += [f"--temp-dir={self._temporary}", f"--system-config={_HEALTH}"]
        self.nodes: list[Node] = []
        log = folder / "head.log"
        self.head = started(
            lambda: Node(self._head_address, log, self.environment, "--head", *arguments),
            lambda: self._gcs("print(1)") == "1",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.nodes, self.head]:
            node.send(signal.SIGCONT)
            node.kill()
        shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def address(self) -> str:
        """To which drivers connect."""
        return f"{self._head_address}:{self.port}"

    def add(self, cpus: int = 1, hidden: Path | None = None) -> Node:
        """A node joins, which sees nothing in the folder ``hidden``."""
        arguments = f"--address={self.address}", f"--num-cpus={cpus}"

        def start() -> Node:
            number = next(self._numbers)
            log = self._folder / f"node-{number}.log"
            tried.append(Node(f"127.0.0.{number}", log, self.environment, *arguments, hidden=hidden))
            return tried[-1]

        tried: list[Node] = []
        self.nodes.append(started(start, lambda: tried[-1].address in self.alive()))
        return self.nodes[-1]

    def lose(self, node: Node) -> None:
        """Its machine is gone."""
        self.nodes.remove(node)
        node.kill()

    def take_away(self, node: Node, seconds: float) -> None:
        """Its machine is told to go, as spot machines are, and goes after so many seconds."""
        self._gcs(
            "import time\n"
            f"node = next(n for n in ray.nodes() if n['NodeManagerAddress'] == '{node.address}' and n['Alive'])\n"
            "from ray._raylet import GcsClient\n"
            "from ray.core.generated import autoscaler_pb2\n"
            f"client = GcsClient(address='{self.address}')\n"
            "done = client.drain_node(node['NodeID'], autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION,"
            f" 'spot', int((time.time() + {seconds}) * 1000))\n"
            "print(done)"
        )

    def alive(self) -> list[str]:
        """The addresses of the nodes that the cluster counts."""
        found = self._gcs("print(*(n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']))")
        return (found or "").split()

    def _gcs(self, code: str) -> str | None:
        """What such code of a process of its own prints; None where it fails, or takes too long."""
        program = f"import ray\nray.init('{self.address}', logging_level='ERROR', log_to_driver=False)\n{code}"
        command = [sys.executable, "-c", program]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=60)
        except subprocess.TimeoutExpired:  # begun before the head was there, it may wait for ever
            return None
        return done.stdout.strip() if done.returncode == 0 else None


def started(start: Callable[[], Node], ready: Callable[[], bool]) -> Node:
    """A node that is ready; started again where Ray's own processes were not within its half a minute."""
    for _ in range(STARTS):
        node = start()
        try:
            wait_until(lambda ends=node.process.poll: ends() is not None or ready())
        except AssertionError:
            node.kill()
            raise
        if node.process.poll() is None:
            return node
    raise AssertionError("the node did not start")


def alone_with(hidden: Path) -> list[str]:
    """What a command begins with that sees an empty folder there; the system may forbid it."""
    return ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none '{hidden}' && exec \"$@\"", "sh"]


def wait_until(happens: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
    """Raises AssertionError if it does not."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.2)
