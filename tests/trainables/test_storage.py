"""The same code on a local folder and on an object store (a local S3 server)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator

import numpy as np
import obstore
import pytest
import torch

from cluster.local import free_port
from orchestrator.ledger import lease, local_log
from orchestrator.ledger.chain import unlink
from orchestrator.ledger.records import EventRecord
from orchestrator.ledger.segments import LedgerReader, LedgerWriter, read_ledger
from tests.helpers.files import write_table
from tests.helpers.object_store import BUCKET, environment, s3_server
from tests.helpers.trials import make_state
from trainables import object_store, storage
from trainables.corpora.config import CorporaConfig, SourceConfig, TokenizerConfig
from trainables.corpora.preparation import duplicates
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.reading import lines as lines_module
from trainables.corpora.reading import portions as portions_module
from trainables.corpora.reading.check import check_sources
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.portions import divide, expand
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location, uri_of
from trainables.training.checkpoint import Checkpoints


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """URI of a bucket."""
    pytest.importorskip("moto")
    with s3_server() as port, environment(port):
        yield f"s3://{BUCKET}"


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
    assert not (place / "a").exists(), "it is a folder"
    assert json.loads(file.read_bytes()) == {"text": "日本"}
    assert (place / "a").names() == ["b.json"]
    assert file.name == "b.json"
    (place / "a").delete()
    assert not file.exists()
    (place / "a").delete()  # nothing there: nothing to do


def test_a_bucket_that_is_not_there_is_not_waited_for(s3, monkeypatch):
    monkeypatch.setattr(object_store.Patience, "seconds", 300.0)
    with pytest.raises(FileNotFoundError, match=r"^there is no bucket \S+ \(NoSuchBucket\)$"):
        Location("s3://there-is-no-such-bucket/studies").names()


def test_a_ledger_is_read_while_it_is_written_and_by_sessions(place):
    folder = place / "ledger"
    reader = LedgerReader(folder)
    assert reader.poll() == []
    first = LedgerWriter(folder)
    first.append(EventRecord(message="one"), durable=True)
    assert [record.message for record in reader.poll()] == ["one"]
    first.append(EventRecord(message="two"))
    first.close()
    second = LedgerWriter(folder)
    second.append(EventRecord(message="three"), durable=True)
    assert [record.message for record in reader.poll()] == ["two", "three"]
    assert [record.message for record in read_ledger(folder)] == ["one", "two", "three"]
    segments = ["000001.jsonl", "000002.jsonl"] if place.local else ["000001.jsonl"]
    assert folder.names() == [*segments, "lease.json"]
    with pytest.raises(ValueError, match="time"):
        second.append(EventRecord(message="four", time=float("nan")))


def test_a_local_ledger_has_one_writer(tmp_path):
    folder = Location(tmp_path) / "ledger"
    writer = LedgerWriter(folder)
    with pytest.raises(InputError, match="another process runs this study"):
        LedgerWriter(folder)
    writer.close()
    LedgerWriter(folder).close()


def test_a_local_ledger_is_locked_by_a_file_that_is_open_for_writing(tmp_path, monkeypatch):
    """Of a folder's lock NFS and Lustre tell no other machine, and NFS of a file's that is open for reading neither."""
    locked = []

    def flock(descriptor, _):
        locked.append((stat.S_ISREG(os.fstat(descriptor).st_mode), fcntl.fcntl(descriptor, fcntl.F_GETFL)))

    monkeypatch.setattr(fcntl, "flock", flock)
    LedgerWriter(Location(tmp_path) / "ledger").close()
    ((is_file, mode),) = locked
    assert is_file
    assert mode & os.O_RDWR


def test_a_lock_of_another_machine_is_told_as_one(tmp_path, monkeypatch):
    """By EACCES, as SMB does."""
    monkeypatch.setattr(fcntl, "flock", raises(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(InputError, match="another process runs this study"):
        LedgerWriter(Location(tmp_path) / "ledger")


def test_what_cannot_be_put_on_the_disk_keeps_nobody_out(tmp_path, monkeypatch):
    writer = LedgerWriter(Location(tmp_path) / "ledger")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", raises(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            writer.close()
    LedgerWriter(Location(tmp_path) / "ledger").close()


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", raises(OSError(errno.EOPNOTSUPP, "Operation not supported")))
    with pytest.raises(InputError, match=r"cannot be locked(.|\n)*Operation not supported(.|\n)*an object store"):
        LedgerWriter(Location(tmp_path) / "ledger")


def test_a_writer_that_finds_no_space_keeps_nobody_out(tmp_path, monkeypatch):
    folder = Location(tmp_path) / "ledger"
    with monkeypatch.context() as patch:
        patch.setattr(local_log, "note_holder", raises(FullDiskError("the disk is full")))
        with pytest.raises(FullDiskError):
            LedgerWriter(folder)
    LedgerWriter(folder).close()


def raises(error):
    def call(*_):
        raise error

    return call


def test_a_session_of_the_same_process_keeps_a_second_one_out_of_an_object_store(s3, tmp_path, monkeypatch):
    """As a notebook's cell does that is run again."""
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.1)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.2)
    folder = Location(s3) / tmp_path.name
    writer = LedgerWriter(folder)
    with pytest.raises(InputError, match="another process runs this study"):
        LedgerWriter(folder)
    writer.append(EventRecord(message="one"), durable=True)
    writer.close()
    LedgerWriter(folder).close()


def test_a_long_ledger_is_cut_into_segments_on_an_object_store(s3):
    folder = Location(s3) / "long"
    writer = LedgerWriter(folder)
    for number in range(40):
        writer.append(EventRecord(message=str(number) * 40_000), durable=True)
    writer.close()
    assert len(folder.names()) > 1
    assert [record.message[:2] for record in read_ledger(folder)][:12:11] == ["00", "11"]
    assert len(read_ledger(folder)) == 40
    second = LedgerWriter(folder)
    second.append(EventRecord(message="of another session"))
    second.close()
    assert all(unlink(line.text).before == line.head for line in LedgerReader(folder).lines())


def as_of_another_machine(folder: Location, monkeypatch) -> None:
    """Whether the holder's process still runs cannot be seen from here; nobody waits long for it."""
    monkeypatch.setattr(lease, "HELD_SECONDS", 0.5)
    monkeypatch.setattr(lease, "_machine", lambda: "another")


def test_a_second_writer_of_an_object_store_is_refused_with_who_writes(s3, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.1)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.2)
    folder, said = Location(s3) / tmp_path.name, list[str]()
    writer = LedgerWriter(folder)
    as_of_another_machine(folder, monkeypatch)
    with pytest.raises(InputError, match=f"another process runs this study(.|\n)*process {os.getpid()} on"):
        LedgerWriter(folder, said.append)
    assert "waiting" in said[0]
    writer.close()  # it is let go
    said.clear()
    LedgerWriter(folder, said.append).close()
    assert not said


def test_nothing_counts_that_a_writer_does_whose_lease_was_taken_over(s3, tmp_path, monkeypatch):
    """Stopped for longer than that, and continued."""
    folder = Location(s3) / tmp_path.name
    stopped = LedgerWriter(folder)  # renews it every some seconds: not while this test runs
    stopped.append(EventRecord(message="one"), durable=True)
    as_of_another_machine(folder, monkeypatch)
    other = LedgerWriter(folder)
    other.append(EventRecord(message="two"), durable=True)
    with pytest.raises(InputError, match="another process runs this study"):
        stopped.append(EventRecord(message="lost"), durable=True)
    with pytest.raises(InputError, match="another process runs this study"):
        stopped.check()
    other.append(EventRecord(message="three"))
    stopped.close()
    other.close()
    assert [record.message for record in read_ledger(folder)] == ["one", "two", "three"]


def test_an_outage_of_the_store_costs_nothing(s3, tmp_path, monkeypatch):
    """Requests fail, or their answers are lost on the way; nobody waits for them."""
    folder, whole = Location(s3) / tmp_path.name, obstore.put
    chance = random.Random(0)

    def unreliable(*args, **options):
        fate = chance.random()
        if fate < 0.4:
            raise obstore.exceptions.GenericError("no answer")
        done = whole(*args, **options)
        if fate < 0.7:
            raise obstore.exceptions.GenericError("the answer is lost")
        return done

    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.01)
    writer = LedgerWriter(folder)
    monkeypatch.setattr(obstore, "put", unreliable)
    monkeypatch.setattr(object_store, "_LONGEST_PAUSE", 0.01)
    for number in range(12):
        writer.append(EventRecord(message=str(number)), durable=number % 2 > 0)
    writer.close()
    assert [record.message for record in read_ledger(folder)] == [str(number) for number in range(12)]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (obstore.exceptions.GenericError("no answer"), "has not answered"),
        (obstore.exceptions.PermissionDeniedError("denied"), "refuses to be written to"),
    ],
)
def test_a_store_that_is_lost_ends_the_writer(s3, tmp_path, monkeypatch, error, what):
    writer = LedgerWriter(Location(s3) / tmp_path.name)

    def lost(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", lost)
        patch.setattr(object_store.Patience, "FOR_STUDIES", 0.5)
        with pytest.raises(InputError, match=what):
            writer.append(EventRecord(message="one"), durable=True)
        with pytest.raises(InputError, match=what):
            writer.append(EventRecord(message="two"))
        writer.close()


def test_checkpoints(place):
    groups = {"model": {"weight": torch.randn(3, 2)}, "optimiser": {"exp_avg": torch.randn(3, 2)}}
    checkpoints = Checkpoints(place / "trials" / "one")
    for step in (1, 2, 3):
        checkpoints.save(step, groups, make_state(next_sequence=step))
    checkpoints.wait()
    assert checkpoints.steps() == [2, 3]
    saved, messages = Checkpoints(place / "trials" / "one").load_newest(lambda state: groups)
    assert (saved.step, saved.state.next_sequence, messages) == (3, 3, [])
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            assert torch.equal(saved.tensors[group][name], tensor)


@pytest.mark.parametrize("uri", ["s3://", "gs:///x", "s3://?region=eu-west-1"])
def test_a_store_without_a_bucket_is_refused(uri):
    """As of a variable that is not set: joined with a name it would be a folder here."""
    with pytest.raises(InputError, match="names no bucket"):
        Location(uri)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(InputError, match="cannot open the location"):
        Location("carrier-pigeon://loft/studies")


@pytest.mark.parametrize(
    "query", ["", "?region=eu-west-1", "?region=eu-west-1&endpoint_override=127.0.0.1:9000&scheme=http"]
)
def test_what_a_uri_says_of_its_store_is_said_of_all_in_the_folder(query: str, monkeypatch) -> None:
    if not query:  # else AWS is asked where the bucket lies
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    folder = Location(f"s3://bucket/studies{query}")
    demo = folder / "demo"
    assert (demo.uri, demo.path, demo.name) == (f"s3://bucket/studies/demo{query}", "bucket/studies/demo", "demo")
    assert (demo / "ledger").path == "bucket/studies/demo/ledger"
    assert demo.parent.uri == folder.uri
    assert Location(demo.uri).path == demo.path
    if query:
        assert demo.filesystem.region == "eu-west-1"


def test_a_question_mark_is_one_of_a_name_on_this_machine(tmp_path) -> None:
    folder = Location(tmp_path / "what?")
    (folder / "a?b").write_bytes(b"x")
    assert (tmp_path / "what?" / "a?b").read_bytes() == b"x"
    assert (folder / "a?b").parent.uri == folder.uri


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_a_google_store_that_does_not_answer_is_given_up(scheme: str, monkeypatch) -> None:
    monkeypatch.setattr(object_store, "REQUEST_SECONDS", 1)
    monkeypatch.setattr(object_store.Patience, "seconds", 1)
    closed = f"scheme=http&endpoint_override=127.0.0.1:{free_port()}"
    folder = Location(f"{scheme}://anonymous@bucket/studies?{closed}") / "demo"
    with pytest.raises(OSError, match="retries"):
        folder.names()
    monkeypatch.setattr(storage, "GCS_SECONDS", 1)
    with pytest.raises(OSError, match="Retry policy exhausted"):  # as files of text are read
        (Location(f"{scheme}://anonymous@other/text?{closed}")).filesystem.get_file_info("other/text")


STRANGE = "my text/日本 100%+#é"
"""What a name on an object store may hold and a URI may not."""


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".txt", ".parquet"])
def test_files_of_strange_names_are_read_through_a_wildcard(s3: str, tmp_path, monkeypatch, suffix: str) -> None:
    """Whole and, where the format allows, in ranges: the same documents as from this machine."""
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    texts = [f"text {n} of {n * 17} 日本" for n in range(500)]
    file = tmp_path / f"a{suffix}"
    if suffix == ".txt":
        file.write_text("\n\n".join(texts))
    else:
        write_table(file, texts)
    Location(uri_of("s3://", f"bucket/{tmp_path.name}/{STRANGE}{suffix}")).write_bytes(file.read_bytes())
    local = SourceConfig(language="en", files=str(file))
    for pattern in (f"my text/*{suffix}", f"**/日本 ???????{suffix}", f"my%20text/*é{suffix}"):
        source = SourceConfig(language="en", files=f"{s3}/{tmp_path.name}/{pattern}")
        check_sources([source])
        (whole,) = expand(source)
        assert whole.size_bytes == file.stat().st_size
        assert Location(whole.name).name == f"{STRANGE}{suffix}".rpartition("/")[2]
    ranges = divide(whole, 4000)
    assert (len(ranges) > 2) == (suffix in (".jsonl", ".txt", ".parquet"))
    expected = [d for portion in expand(local) for d in read_documents(portion, local)]
    assert [document.text for document in expected] == texts
    for portions in ([whole], ranges):
        found = [d for portion in portions for d in read_documents(portion, source)]
        # A group begins with its file's name.
        assert [(d.text, d.document_id) for d in found] == [(d.text, d.document_id) for d in expected]
        assert [d.group.rpartition("\0")[2] for d in found] == [d.group.rpartition("\0")[2] for d in expected]


def test_sources_and_corpus_on_an_object_store(s3: str, tmp_path, monkeypatch, ray_cluster) -> None:
    """The same shards as from this machine."""
    monkeypatch.setattr(preparation, "run_job", lambda task, items: map(task, items))
    monkeypatch.setattr(portions_module, "PART_BYTES", 4000)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines = [json.dumps({"text": f"text {n} of {n * n * 17}"}) + "\n" for n in range(500)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    place = f"bucket/{tmp_path.name}"
    Location(uri_of("s3://", f"{place}/{STRANGE}.jsonl")).write_bytes("".join(lines).encode())
    shards = []
    for files, store in (
        (f"{tmp_path}/*.jsonl", Location(tmp_path / "store")),
        (f"s3://{place}/*/*.jsonl", Location(f"s3://{place}/my store")),
    ):
        shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16}
        corpora = CorporaConfig.model_validate({"sources": [{"language": "en", "files": files}], **shares})
        size = {"type": "byte_bpe", "vocabulary_size": 300}
        tokenizer = make_tokenizer(corpora, TokenizerConfig.model_validate({"train": size}))
        manifest = prepare(corpora, tokenizer, store)
        corpus = PackedCorpus(store / manifest.fingerprint)
        assert len(corpus.take("train", "en", np.arange(20))) == 20
        shards.append(manifest.splits)
    assert shards[0] == shards[1]
    assert len(shards[0]["train"]["en"].shards) > 3


def test_a_corpus_is_prepared_read_and_mended(place: Location, tmp_path, monkeypatch, ray_cluster) -> None:
    """With duplicates; a shard that is damaged in the store is refused, and the part it is of made again."""
    for module in (preparation, duplicates):
        monkeypatch.setattr(module, "run_job", lambda task, items: map(task, items))
    machine = tmp_path / "machine"
    machine.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(machine))
    monkeypatch.setattr(portions_module, "PART_BYTES", 1)
    for number in range(2):
        texts = [f"text {n} of {n * number * 17} and {n % 7}" for n in range(400)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    source = {"language": "en", "files": f"{tmp_path}/*.jsonl"}
    shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16}
    corpora = CorporaConfig.model_validate({"sources": [source], "deduplicate": True, **shares})
    size = {"type": "byte_bpe", "vocabulary_size": 300}
    tokenizer = make_tokenizer(corpora, TokenizerConfig.model_validate({"train": size}))
    manifest = prepare(corpora, tokenizer, place)
    assert manifest.sources[0].documents - manifest.sources[0].duplicates == 799, "they share the first text"
    corpus = PackedCorpus(place / manifest.fingerprint)
    rows = np.arange(corpus.sequences("train", "en"))
    whole = corpus.take("train", "en", rows)
    shard = corpus.folder / manifest.splits["train"]["en"].shards[0].file
    content = shard.read_bytes()
    shard.write_bytes(content[:-7])
    shutil.rmtree(machine)
    machine.mkdir()  # another machine
    with pytest.raises(InputError, match="is damaged"):
        PackedCorpus(corpus.folder).take("train", "en", rows)
    assert prepare(corpora, tokenizer, place, verify=True) == manifest
    assert shard.read_bytes() == content
    assert (PackedCorpus(corpus.folder).take("train", "en", rows) == whole).all()
