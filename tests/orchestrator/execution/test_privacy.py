"""What other users of a machine must not read or change: Ray's token, and the folder of its session."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from cluster.local import LocalCluster
from orchestrator.execution.privacy import ensure_private_token, private_ray_folder
from orchestrator.execution.ray_session import ray_session
from orchestrator.planning.machine import Machine


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Ray looks for it; under the widest umask."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(0)
    yield tmp_path / ".ray" / "auth_token"
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_made_for_this_user_alone(token: Path) -> None:
    ensure_private_token()
    assert mode(token) == 0o600
    assert mode(token.parent) == 0o700
    made = token.read_text()
    assert len(bytes.fromhex(made)) == 32
    ensure_private_token()
    assert token.read_text() == made


def test_a_token_that_ray_made_keeps_its_content_and_loses_others_rights(token: Path) -> None:
    token.parent.mkdir()
    token.write_text("known to a cluster")
    token.chmod(0o644)
    ensure_private_token()
    assert (token.read_text(), mode(token)) == ("known to a cluster", 0o600)


def test_two_tokens_differ(token: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ensure_private_token()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "elsewhere" / "token"))
    ensure_private_token()
    other = tmp_path / "elsewhere" / "token"
    assert mode(other) == 0o600
    assert other.read_text() != token.read_text()


def test_a_token_in_the_environment_needs_no_file(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    ensure_private_token()
    assert not token.exists()


def test_rays_folder_lies_in_one_that_nobody_else_enters(
    token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray opens its own to everybody."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with private_ray_folder() as folder:
        inner = Path(folder)
        assert inner.is_dir()
        inner.chmod(0o777)  # as Ray does
        assert mode(inner.parent) == 0o700
        assert inner.parent.parent == tmp_path
        (inner / "session").mkdir()
    assert list(tmp_path.glob("h2h-*")) == []


def test_rays_folder_is_gone_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), private_ray_folder():
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_names_of_sockets_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unix takes 107 bytes; Ray adds a session's name and a socket's."""
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    with private_ray_folder() as folder:
        added = "/session_2026-11-22_10-00-00_000000_1234567/sockets/plasma_store.1"
        assert len((folder + added).encode()) <= 107


def test_a_studys_own_ray_is_private(token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a study starts Ray itself, it has both before Ray begins."""
    seen: list[tuple[int, int, str]] = []

    def init(**options: str) -> None:
        folder = Path(options["_temp_dir"])
        seen.append((mode(folder.parent), mode(token), options["_node_ip_address"]))

    for name in ("RAY_ADDRESS", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with ray_session(None, Machine(2, 0), dashboard=False):
        pass
    assert seen == [(0o700, 0o600, "127.0.0.1")]


def test_a_signal_to_end_is_the_studys_and_not_rays(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray ends the process with a code of its own and no word."""

    def init(**_: str) -> None:
        ray._private.utils.set_sigterm_handler(lambda *_: sys.exit(15))

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(KeyboardInterrupt), ray_session(None, Machine(2, 0), dashboard=False):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_local_cluster_is_private(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster(autoscaling=False)
    seen: list[tuple[int, int]] = []

    def run(*words: str) -> None:
        (folder,) = [Path(word.partition("=")[2]) for word in words if word.startswith("--temp-dir=")]
        seen.append((mode(folder.parent), mode(token)))

    monkeypatch.setattr(cluster, "_run", run)
    with cluster:
        assert seen == [(0o700, 0o600)]
