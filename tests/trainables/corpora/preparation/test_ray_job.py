"""A job of tasks on a Ray cluster."""

from __future__ import annotations

import errno

import pytest

from trainables.corpora.preparation.ray_job import run_job
from trainables.errors import InputError
from trainables.object_store import Patience


def test_every_task_ends_once(ray_cluster) -> None:
    items = [str(number) for number in range(50)]
    assert sorted(run_job(lambda item: f"{item}!", items)) == sorted(f"{item}!" for item in items)
    assert list(run_job(str.upper, [])) == []


def test_what_the_storage_refuses_is_told_in_words(ray_cluster) -> None:
    """The preparation goes on when it is given again: no crash."""

    def fails(item: str) -> str:
        raise OSError(errno.EIO, "the store does not answer", item)

    with pytest.raises(InputError, match="cannot read or write s3://bucket/part") as refused:
        list(run_job(fails, ["s3://bucket/part"]))
    assert refused.value.why == "the store does not answer"
    assert "try again" in refused.value.remedy


def test_tasks_wait_for_a_store_as_long_as_their_driver(ray_cluster, monkeypatch) -> None:
    monkeypatch.setattr(Patience, "seconds", 123.0)

    def patience(item: str) -> str:
        from trainables.object_store import Patience

        return str(Patience.seconds)

    assert list(run_job(patience, ["one"])) == ["123.0"]
