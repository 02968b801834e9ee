"""A prepared corpus of which something is not what was written: refused by name, never misread."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.corpus import write_corpus
from trainables.corpora.stream.checksums import cache_folder, checksum
from trainables.corpora.stream.packed import PackedCorpus, read_manifest
from trainables.errors import InputError
from trainables.storage import Location

Content = dict[str, Any]


def counts(content: Content) -> Content:
    return content["splits"]["train"]["en"]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("splits"),
        lambda content: content["splits"].pop("test"),
        lambda content: content["splits"]["train"].pop("en"),
        lambda content: content.update(languages=["en", "fr"]),
        lambda content: content.update(dtype="float64"),
        lambda content: content.update(sequence_length=0),
        lambda content: content.update(vocabulary_size=10**30),
        lambda content: content.update(separator_token=10**6),
        lambda content: content.update(format_version="5"),
        lambda content: content.update(unknown=1),
        lambda content: counts(content).update(sequences=1),
        lambda content: counts(content).update(documents=-1),
        lambda content: counts(content)["shards"][0].update(sequences=-5),
        lambda content: counts(content)["shards"][0].update(file="../../etc/passwd"),
        lambda content: counts(content)["shards"][0].update(file="shards/../../../x.npy"),
        lambda content: counts(content)["shards"][0].update(file=f"shards/train/{'x' * 300}.npy"),
        lambda content: content.update(sources=[{"documents": "many"}]),
        lambda content: content.update(sources=[{"examples": [["what"]]}]),
    ],
)
def test_a_manifest_is_parsed_once(tmp_path: Path, change: Callable[[Content], object]) -> None:
    write_corpus(tmp_path, {"en": 20})
    file = tmp_path / "manifest.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    if content["format_version"] == "5":  # a number in quotes is that number
        assert read_manifest(Location(tmp_path)).format_version == 5
        return
    with pytest.raises(InputError, match=r"is damaged(?s:.*)manifest.json(?s:.*)remove the folder"):
        PackedCorpus(Location(tmp_path))


@pytest.mark.parametrize("content", [b"[]", b"4", b"[" * 100_000, b"\xff", b'{"format_version": 1e400}', b"null"])
def test_a_manifest_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        PackedCorpus(Location(tmp_path))


def test_a_shard_of_fewer_sequences_than_the_manifest_says(tmp_path: Path) -> None:
    """Its checksum is right, so it is the manifest that was changed."""
    write_corpus(tmp_path, {"en": 20})
    file = tmp_path / "manifest.json"
    content = json.loads(file.read_text())
    counts(content)["sequences"] = counts(content)["shards"][0]["sequences"] = 1000
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"manifest\.json of the prepared corpus is damaged"):
        PackedCorpus(Location(tmp_path)).take("train", "en", np.array([500]))
    shard = tmp_path / counts(content)["shards"][0]["file"]
    shard.write_bytes(b"")
    counts(content)["shards"][0]["checksum"] = checksum(b"")
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="is damaged"):
        PackedCorpus(Location(tmp_path)).take("train", "en", np.array([0]))


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[1, 2]", b'{"language": "en"}', b"\xff", b'{"language": 1, "good": 2}', b"[" * 100_000]
)
def test_minimal_pairs_are_parsed_once(tmp_path: Path, line: bytes) -> None:
    corpus = write_corpus(tmp_path, {"en": 20})
    good = {"language": "en", "phenomenon": "order", "good": "a b", "bad": "b a"}
    file = tmp_path / "minimal_pairs.jsonl"
    file.write_text(json.dumps(good) + "\n")
    assert [pair._asdict() for pair in corpus.minimal_pairs()] == [good]
    file.write_bytes(json.dumps(good).encode() + b"\n" + line + b"\n")
    with pytest.raises(InputError, match=r"minimal_pairs.jsonl of the prepared corpus is damaged(?s:.*)h2h prepare"):
        corpus.minimal_pairs()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = tmp_path / "machine"
    machine.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(machine))
    corpus = write_corpus(tmp_path / "corpus", {"en": 20})
    cache = cache_folder()
    cache.write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"cannot be remembered(?s:.*)TMPDIR"):
        corpus.take("train", "en", np.array([0]))
    cache.unlink()
    assert len(corpus.take("train", "en", np.array([0]))) == 1


def test_a_tokenizer_that_is_gone_is_named(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"en": 20})
    with pytest.raises(InputError, match="tokenizer of the prepared corpus is missing"):
        corpus.tokenizer()
