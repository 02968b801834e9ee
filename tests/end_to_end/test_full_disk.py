"""A full disk: one clear message, nothing that was whole is lost, and with space again it goes on to the same files.

On a small filesystem of its own, where one can be mounted; otherwise, and for every single write, the operating
system's answer is given by hand.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from orchestrator.config.files import load_study
from orchestrator.execution.executor import Executor
from orchestrator.ledger.chain import unlink
from orchestrator.ledger.history import History
from orchestrator.ledger.records import EventRecord
from orchestrator.ledger.segments import LedgerReader, LedgerWriter, read_ledger
from orchestrator.reporting.optuna_journal import write_optuna_journal
from tests.helpers.corpus import write_corpus
from tests.helpers.ledgers import study
from tests.helpers.preparation import TOKENIZER, corpora_of, files_of, in_this_process, write_language
from tests.helpers.trials import comparable, make_config, make_state, make_trial, run
from trainables.corpora.preparation import duplicates
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.reading import portions
from trainables.corpora.stream import checksums
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location
from trainables.training.checkpoint import Checkpoints
from trainables.trial import DiskFull

torch.set_num_threads(1)

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 400 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a filesystem")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, left_bytes: int = 0) -> Path:
    """Take all space but so much, in pages."""
    filler = folder / "filler"
    free = os.statvfs(folder)
    with suppress(OSError):  # a checkpoint on its way takes its space beside this
        filler.write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - left_bytes))
    return filler


def assert_says_what_where_and_what_to_do(error: InputError, folder: Path) -> None:
    assert "the disk is full" in error.what
    assert str(folder) in error.where
    assert "No space left on device" in error.why
    assert "make space" in error.remedy


@pytest.fixture
def alone(ray_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks in this process, every file a part of its own."""
    monkeypatch.setattr(portions, "PART_BYTES", 1)
    monkeypatch.setattr(preparation, "run_job", in_this_process)
    monkeypatch.setattr(duplicates, "run_job", in_this_process)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    write_language(folder, "en", 300, num_files=3)
    write_language(folder, "fr", 150)
    return folder


@pytest.fixture(scope="module")
def tokenizer(text: Path):
    return make_tokenizer(corpora_of(text), TOKENIZER)


@pytest.mark.slow
def test_every_write_of_a_preparation(text, tokenizer, alone, tmp_path, monkeypatch) -> None:
    """Hashes, duplicates, shards, records, tokenizer and manifest, one after the other: the disk is full at each."""
    corpora, fsync, count = corpora_of(text, deduplicate=True), os.fsync, [0]

    def counted(descriptor: int) -> None:
        count[0] += 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    name = prepare(corpora, tokenizer, Location(tmp_path / "whole")).fingerprint
    expected = files_of(tmp_path / "whole" / name)
    num_syncs, store = count[0], tmp_path / "full"
    assert num_syncs > 2 * 25
    errors = []
    for moment in range(0, num_syncs, 2):  # of each file, not of its folder

        def full(descriptor: int, moment: int = moment) -> None:
            if count[0] == moment:
                raise FULL
            counted(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        count[0] = 0
        place = Location(store / str(moment))
        with pytest.raises(InputError) as caught:
            prepare(corpora, tokenizer, place)
        assert_says_what_where_and_what_to_do(caught.value, store)
        errors.append(caught.value.what)
        assert not list((store / str(moment)).rglob(".*")), "what was begun takes no space"
        monkeypatch.setattr(os, "fsync", fsync)
        prepare(corpora, tokenizer, place)
        assert files_of(store / str(moment) / name) == expected
    for file in ("000000 ", "tasks.json ", ".npy ", "en-00000.json ", "tokenizer.json ", "manifest.json "):
        assert any(file in error for error in errors), file


@pytest.mark.slow
def test_a_preparation_on_a_small_disk(text, tokenizer, ray_cluster, tmp_path, monkeypatch, small_disk) -> None:
    """Through Ray's tasks."""
    monkeypatch.setattr(portions, "PART_BYTES", 1)
    corpora = corpora_of(text, deduplicate=True)
    name = prepare(corpora, tokenizer, Location(tmp_path / "whole")).fingerprint
    expected = files_of(tmp_path / "whole" / name)
    seen = set()
    for left_bytes in (0, 16_384, 16_384, 16_384):
        filler = fill(small_disk, left_bytes)
        with pytest.raises(InputError) as caught:
            prepare(corpora, tokenizer, Location(small_disk))
        assert_says_what_where_and_what_to_do(caught.value, small_disk)
        seen.add(caught.value.what)
        assert not (small_disk / name / "manifest.json").exists()
        filler.unlink()
    assert len(seen) > 1, "met at one place only"
    prepare(corpora, tokenizer, Location(small_disk))
    assert files_of(small_disk / name) == expected


def test_what_is_verified_cannot_be_remembered(tmp_path, monkeypatch) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(b"content")

    def full(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(Path, "touch", full)
    monkeypatch.setattr(checksums, "cache_folder", lambda: tmp_path / "cache")
    with pytest.raises(FullDiskError) as caught:
        checksums.is_intact(file, checksums.checksum(b"content"))
    assert_says_what_where_and_what_to_do(caught.value, tmp_path)


def test_another_error_stays_itself(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        (Location(tmp_path / "file") / "below").write_bytes(b"")


# --- training -----------------------------------------------------------------------------------------------


def test_a_checkpoint_without_space_leaves_the_one_before(tmp_path, small_disk) -> None:
    """A trial of real steps: what was reported is of the checkpoint before, from which it goes on bit for bit."""
    corpus = write_corpus(tmp_path / "corpus", {"en": 300, "fr": 60})
    config = make_config()
    undisturbed = run(corpus, config, tmp_path / "undisturbed")
    fillers: list[Path] = []

    def until_full() -> None:
        for _ in make_trial(corpus, config, small_disk).run():
            if Checkpoints(Location(small_disk)).steps() and not fillers:
                fillers.append(fill(small_disk, 8192))

    with pytest.raises(FullDiskError) as caught:
        until_full()
    assert_says_what_where_and_what_to_do(caught.value, small_disk)
    whole = Checkpoints(Location(small_disk)).steps()
    assert whole, "the one before is there"
    fillers[0].unlink()
    resumed = comparable(run(corpus, config, small_disk))
    assert resumed == comparable(undisturbed)[-len(resumed) :]
    assert resumed[0][1]["step"] <= whole[-1], "nothing is left out"


def test_a_checkpoint_without_space_by_hand(tmp_path, monkeypatch) -> None:
    groups = {"model": {"weight": torch.randn(3, 2)}, "optimiser": {"exp_avg": torch.randn(3, 2)}}
    checkpoints, fsync = Checkpoints(Location(tmp_path)), os.fsync
    checkpoints.save(1, groups, make_state())
    checkpoints.wait()
    calls: list[int] = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 2:  # the model is written, and its folder
            raise FULL
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    checkpoints.save(2, groups, make_state())
    with pytest.raises(FullDiskError, match=r"optimiser\.safetensors could not be written"):
        checkpoints.wait()
    monkeypatch.setattr(os, "fsync", fsync)
    assert Checkpoints(Location(tmp_path)).steps() == [1]
    again = Checkpoints(Location(tmp_path))
    saved, messages = again.load_newest(lambda state: groups)
    assert saved is not None
    assert (saved.step, messages) == (1, [])
    again.save(2, groups, make_state())
    again.wait()
    assert checkpoints.steps() == [1, 2]


def test_a_trial_without_space_has_not_failed(monkeypatch) -> None:
    """It is interrupted, as a study is that stops: it goes on when the study is resumed, and no other trial starts."""
    executor = Executor.__new__(Executor)
    ended, asked = [], []
    monkeypatch.setattr(executor, "ended", lambda name, outcome, reason: ended.append((name, outcome)))
    monkeypatch.setattr(executor, "interrupt", lambda: asked.append(True))
    executor.failed("search-one-000", DiskFull("the disk is full: model.safetensors"))
    assert (ended, asked) == ([("search-one-000", "interrupted")], [True])
    assert executor.full_disk == "the disk is full: model.safetensors"


# --- ledger -------------------------------------------------------------------------------------------------


def test_a_ledger_on_a_full_disk_has_no_half_line(small_disk) -> None:
    folder = Location(small_disk) / "ledger"
    writer = LedgerWriter(folder)
    writer.append(EventRecord(message="first"))
    fill(small_disk)
    written: list[str] = []

    def until_full() -> None:
        while True:  # the last page of the file fills up in the middle of a record
            writer.append(EventRecord(message="x" * 999))
            written.append("x" * 5)

    with pytest.raises(FullDiskError) as caught:
        until_full()
    assert_says_what_where_and_what_to_do(caught.value, small_disk)
    assert len(read_ledger(folder)) == 1 + len(written)
    assert all(json.loads(line) for line in (small_disk / "ledger" / "000001.jsonl").read_text().splitlines())
    (small_disk / "filler").unlink()
    writer.append(EventRecord(message="there is space again"))
    writer.close()
    records = read_ledger(folder)
    assert [r.message[:5] for r in records if isinstance(r, EventRecord)] == ["first", *written, "there"]
    assert len(records) == len(written) + 2
    assert all(unlink(line.text).before == line.head for line in LedgerReader(folder).lines()), "it is chained"


def test_optunas_file_on_a_full_disk(tmp_path, monkeypatch) -> None:
    """It ends a study as the ledger does, and leaves the file before."""
    spec, history = load_study("demo"), History.of([study()])
    write_optuna_journal(Location(tmp_path), spec, history)
    before = (tmp_path / "optuna.jsonl").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise FULL

    for place, name in ((os, "fsync"), (Path, "mkdir")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, full)
            with pytest.raises(FullDiskError, match=r"optuna\.jsonl could not be written") as caught:
                write_optuna_journal(Location(tmp_path), spec, history)
        assert "make space" in caught.value.remedy
        assert "No space left on device" in caught.value.why
        assert (tmp_path / "optuna.jsonl").read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["optuna.jsonl"], "what was begun takes no space"


def test_a_ledger_cannot_be_begun_on_a_full_disk(tmp_path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(FullDiskError, match=r"000001\.jsonl could not be written"):
        LedgerWriter(Location(tmp_path))
