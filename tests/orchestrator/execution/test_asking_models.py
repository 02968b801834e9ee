"""A process that asks a model is lost: a message, and no traceback of Ray's."""

from __future__ import annotations

import os
import signal

import pytest

from orchestrator.config.resources import ResourcesSpec
from orchestrator.execution.evaluation import as_they_end
from trainables.errors import InputError


def test_a_process_that_is_killed_each_time_is_one_message(ray_cluster):
    def asked(answer):
        if answer == "none":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    resources = ResourcesSpec(attempts=1, gpus_per_worker=0)
    assert list(as_they_end(asked, [("one",)], resources, lambda done: None)) == ["one"]
    with pytest.raises(InputError, match=r"was lost(.|\n)*what was answered is kept"):
        list(as_they_end(asked, [("none",)], resources, lambda done: None))
