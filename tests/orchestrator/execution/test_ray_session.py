"""One connection to Ray a process, which its studies share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import ray

from orchestrator.execution.ray_session import _Connection


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
