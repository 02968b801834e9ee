"""Processes that ask models: what each of them has, and that one which is lost is a message without a traceback."""

from __future__ import annotations

import os
import signal

import pytest
import ray

from orchestrator.config.resources import ResourcesSpec
from orchestrator.execution.evaluation import as_they_end, require_room
from trainables.errors import InputError
from trainables.object_store import Patience


def test_a_process_that_is_killed_each_time_is_one_message(ray_cluster):
    def asked(answer):
        if answer == "none":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    resources = ResourcesSpec(attempts=1, gpus_per_worker=0)
    assert list(as_they_end(asked, [("one",)], resources, lambda done: None)) == ["one"]
    with pytest.raises(InputError, match=r"was lost(.|\n)*what was answered is kept"):
        list(as_they_end(asked, [("none",)], resources, lambda done: None))


def test_each_has_the_patience_of_who_asks(ray_cluster, monkeypatch):
    """Else an outage of the storage of some seconds ends a study that fine-tunes."""

    def patience(_):
        return Patience.seconds

    monkeypatch.setattr(Patience, "seconds", Patience.FOR_STUDIES)
    resources = ResourcesSpec(gpus_per_worker=0)
    assert list(as_they_end(patience, [("one",)], resources, lambda done: None)) == [Patience.FOR_STUDIES]


@pytest.mark.parametrize("devices", [{"cpus_per_worker": 800, "gpus_per_worker": 0}, {"gpus_per_worker": 3}])
def test_what_there_is_no_room_for_is_refused(ray_cluster, devices):
    with pytest.raises(InputError, match=r"asking a model takes (800 CPUs|3 GPUs)(.|\n)*it would wait for ever"):
        require_room(ResourcesSpec(**devices))
    require_room(ResourcesSpec(gpus_per_worker=0))


@pytest.mark.parametrize(("wanted", "there", "reserved"), [(None, 2.0, 1), (None, 0.0, 0), (0, 2.0, 0), (2, 2.0, 2)])
def test_each_has_the_gpus_of_a_trials_worker(monkeypatch, wanted, there, reserved):
    """Else all would be on the first GPU at once."""
    found = {}

    class Remote:
        def options(self, **options):
            found.update(options)

    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 16.0, "GPU": there})
    monkeypatch.setattr(ray, "remote", lambda function: Remote())
    list(as_they_end(str, [], ResourcesSpec(gpus_per_worker=wanted), lambda done: None))
    assert found["num_gpus"] == reserved
