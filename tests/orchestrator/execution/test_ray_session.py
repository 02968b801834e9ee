"""One connection to Ray a process, which its studies share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import ray

from orchestrator.execution.ray_session import _Connection, ray_address
from trainables.errors import InputError


class Ray:
    """Whether it is connected, and how often it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there, self.times = False, 0
        monkeypatch.setattr(ray, "is_initialized", lambda: self.there)

    def connect(self, stack: ExitStack) -> None:
        self.there, self.times = True, self.times + 1
        stack.callback(self.end)

    def end(self) -> None:
        self.there = False


def test_the_last_study_that_needs_it_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of two that a notebook began, of which the first ends first."""
    made, connection = Ray(monkeypatch), _Connection()
    first, second = ExitStack(), ExitStack()
    first.enter_context(connection.used(made.connect))
    second.enter_context(connection.used(made.connect))
    first.close()
    assert made.there
    second.close()
    assert not made.there
    assert made.times == 1
    with connection.used(made.connect):
        assert made.times == 2
    assert not made.there


def test_one_that_was_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    made, connection = Ray(monkeypatch), _Connection()
    made.there = True
    with connection.used(made.connect):
        pass
    assert made.there
    assert made.times == 0


def test_one_that_could_not_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, connection = Ray(monkeypatch), _Connection()
    undone = []

    def refused(stack: ExitStack) -> None:
        stack.callback(undone.append, "folder")
        raise ConnectionError

    with pytest.raises(ConnectionError), connection.used(refused):
        pass
    assert undone == ["folder"]
    with connection.used(made.connect):
        assert made.there
    assert not made.there


@pytest.mark.parametrize("variable", [None, "", "local"])
@pytest.mark.parametrize("given", [None, "", "local"])
def test_no_address_and_rays_word_for_this_machine_are_this_machines_own_cluster(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, given: str | None
) -> None:
    """Which is private; Ray's own ``local`` listens for others."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_address(given) is None


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("http://127.0.0.1:8265", "h2h submit STUDY --address http://127.0.0.1:8265"),
        ("http://[", "HOST:PORT"),
        ("ray://head:10001", "HOST:PORT"),
        ("foo://x", "HOST:PORT"),
    ],
)
def test_an_address_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, address: str, remedy: str) -> None:
    with pytest.raises(InputError) as given:
        ray_address(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError) as of_the_environment:
        ray_address(None)
    assert (given.value.where, of_the_environment.value.where) == ("--address", "RAY_ADDRESS")
    assert remedy in given.value.remedy
