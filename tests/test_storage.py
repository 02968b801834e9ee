"""The same code on a local folder and on an object store (a local S3 server)."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest
import torch

from orchestrator.ledger import LedgerReader, LedgerWriter, read_ledger
from trainables.errors import InputError
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """URI of a bucket."""
    pytest.importorskip("moto")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"))
                break
            except OSError:
                time.sleep(0.1)
        yield "s3://bucket"
    finally:
        patch.undo()
        server.terminate()
        server.wait()


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path) -> Location:
    uri = str(tmp_path) if request.param == "local" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    return Location(uri) / "studies"


def test_files_and_folders(place):
    place.require_writable()
    assert place.names() == []
    file = place / "a" / "b.json"
    assert not file.exists()
    file.write_json({"text": "ü"})
    file.write_json({"text": "日本"})
    assert file.exists()
    assert (place / "a").exists()
    assert file.read_json() == {"text": "日本"}
    assert (place / "a").names() == ["b.json"]
    assert file.name == "b.json"
    (place / "a").delete()
    assert not file.exists()
    (place / "a").delete()  # nothing there: nothing to do


def test_a_ledger_is_read_while_it_is_written_and_by_sessions(place):
    folder = place / "ledger"
    reader = LedgerReader(folder)
    assert reader.poll() == []
    first = LedgerWriter(folder)
    first.append("event", message="one")
    assert [record["message"] for record in reader.poll()] == ["one"]
    first.append("event", message="two", flush=False)
    first.close()
    second = LedgerWriter(folder)
    second.append("event", message="three")
    assert [record["message"] for record in reader.poll()] == ["two", "three"]
    assert [record["message"] for record in read_ledger(folder)] == ["one", "two", "three"]
    assert folder.names() == ["000001.jsonl", "000002.jsonl"]
    with pytest.raises(ValueError, match="JSON"):
        second.append("event", value=float("nan"))


def test_a_local_ledger_has_one_writer(tmp_path):
    folder = Location(tmp_path) / "ledger"
    writer = LedgerWriter(folder)
    with pytest.raises(InputError, match="another process runs this study"):
        LedgerWriter(folder)
    writer.close()
    LedgerWriter(folder).close()


def test_a_long_ledger_is_cut_into_segments_on_an_object_store(s3):
    folder = Location(s3) / "long"
    writer = LedgerWriter(folder)
    for number in range(40):
        writer.append("event", message=str(number) * 40_000)
    writer.close()
    assert len(folder.names()) > 1
    assert [record["message"][:2] for record in read_ledger(folder)][:12:11] == ["00", "11"]
    assert len(read_ledger(folder)) == 40


def test_checkpoints(place):
    groups = {"model": {"weight": torch.randn(3, 2)}, "optimiser": {"exp_avg": torch.randn(3, 2)}}
    checkpoints = Checkpoints(place / "trials" / "one")
    for step in (1, 2, 3):
        checkpoints.save(step, groups, {"measure": {"at": step}})
    checkpoints.wait()
    assert checkpoints.steps() == [2, 3]
    saved, messages = Checkpoints(place / "trials" / "one").load_newest(lambda state: groups)
    assert (saved.step, saved.state["measure"], messages) == (3, {"at": 3}, [])
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            assert torch.equal(saved.tensors[group][name], tensor)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(InputError, match="cannot open the location"):
        Location("carrier-pigeon://loft/studies")
