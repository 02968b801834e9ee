"""Large plain files are cut in ranges of bytes: the same documents, wherever the cuts are."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainables.corpora.config import CorporaConfig, SourceConfig, TokenizerConfig
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_sample import make_tokenizer
from trainables.corpora.reading import lines as lines_module
from trainables.corpora.reading import portions as portions_module
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.portions import Portion, divide, expand
from trainables.corpora.reading.tally import Tally
from trainables.corpora.stream.packed import PackedCorpus
from trainables.storage import Location

PIECES = [
    b'{"text": "one"}\n',
    b'{"text": "two\\nlines \\u65e5"}\r\n',
    '{"text": "ünïcödé 日本語 \U0001f600"}\n'.encode(),
    b'{"text": ""}\n',
    b"{oops\n",
    b"[1]\n",
    b'{"text": 5}\n',
    b'{"text": "b\xed\xa0\x80d"}\n',
    b'{"text": "old Macintosh"}\r{"text": "again"}\n',
    b"\n",
    b" \t\r\n",
    b"\n\n\n",
    b"\xef\xbb\xbf",
    b"plain text\n",
    b"and more of it \0\n",
    b'{"text": "' + b"long " * 20 + b'"}\n',
    b"no end",
]


def everything(portions: list[Portion], source: SourceConfig) -> tuple[list[object], Tally, list[str]]:
    """Documents, counts, and what is wrong without its place."""
    documents, tallies, wrong = list[object](), Tally(), list[str]()
    for portion in portions:
        tally = Tally()
        documents += read_documents(portion, source, tally=tally)
        wrong += [f"{one.what}: {one.why}" for one in tally.examples]
        for name in ("documents", "empty", "malformed"):
            setattr(tallies, name, getattr(tallies, name) + getattr(tally, name))
    return documents, tallies, wrong


@settings(max_examples=400, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=25),
    suffix=st.sampled_from([".jsonl", ".txt"]),
    block_bytes=st.integers(1, 90),
    part_bytes=st.integers(1, 200),
)
@example([b"one\n\n", b"two\n\n", b"three"], ".txt", 4, 4)
@example([b"one\n\n", b"two\n\n", b"three"], ".txt", 5, 5)
@example([b'{"text": "aa"}\n'] * 3, ".jsonl", 15, 15)
def test_the_ranges_hold_the_whole_files_records_in_order(
    pieces: list[bytes], suffix: str, block_bytes: int, part_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(lines_module, "BLOCK_BYTES", block_bytes):
        file = Path(folder) / f"a{suffix}"
        file.write_bytes(b"".join(pieces))
        source = SourceConfig(language="en", files=str(file))
        (whole,) = expand(source)
        ranges = divide(whole, part_bytes)
        with patch("trainables.corpora.reading.tally.MOST_EXAMPLES", 10**6):
            assert everything(ranges, source) == everything([whole], source)
        assert sum(portion.size_bytes for portion in ranges) == whole.size_bytes
        if block_bytes <= part_bytes < whole.size_bytes:
            assert len(ranges) > 1
            assert all(portion.size_bytes <= part_bytes for portion in ranges)


def test_a_record_within_a_range_is_named_by_its_byte(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 100)
    file = tmp_path / "a.jsonl"
    good = b'{"text": "good"}\n'
    file.write_bytes(good * 3 + b"{first\n" + good * 20 + b"{second\n" + good + b'{"text": "b\xff"}\n')
    source = SourceConfig(language="en", files=str(file))
    tally = Tally()
    for portion in divide(expand(source)[0], 200):
        list(read_documents(portion, source, tally=tally))
    places = [one.where.removeprefix(f"{file}, ") for one in tally.examples]
    second = 3 * len(good) + 7 + 20 * len(good)
    assert places == ["line 4", f"byte {second}", f"byte {second + 8 + len(good) + 11}"]
    assert file.read_bytes()[second:].startswith(b"{second")
    assert file.read_bytes()[second + 8 + len(good) + 11] == 0xFF
    numbered = [one.where.removeprefix(f"{file}, ") for one in tally.with_lines().examples]
    assert numbered == ["line 4", f"line 25, {places[1]}", f"line 27, {places[2]}"]
    assert tally.with_lines().with_lines() == tally.with_lines()


def test_a_line_longer_than_ranges_is_read_once(tmp_path: Path, monkeypatch) -> None:
    """A range in which no record begins is not read beyond its own end, however long the line."""
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(lines_module, "READ_BYTES", 1 << 12)
    text = "word " * 40_000
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}) + '\n{"text": "last"}\n')
    source = SourceConfig(language="en", files=f"{tmp_path}/a.jsonl")
    ranges = divide(expand(source)[0], 1 << 12)
    assert len(ranges) > 40
    read: list[int] = []
    line = lines_module.io.BufferedReader.readline

    class Counted(lines_module.io.BufferedReader):
        def readline(self, size: int | None = -1) -> bytes:
            found = line(self, size)
            read.append(len(found))
            return found

    monkeypatch.setattr(lines_module.io, "BufferedReader", Counted)
    assert [d.text for portion in ranges for d in read_documents(portion, source)] == [text, "last"]
    assert sum(read) < 2 * len(text)


@pytest.mark.parametrize("suffix", [".jsonl", ".txt"])
def test_one_large_file_is_prepared_by_many_tasks(tmp_path: Path, ray_cluster: None, monkeypatch, suffix: str) -> None:
    """The tokens of all parts are those of the file; what fills no sequence in its part comes at the end."""
    monkeypatch.setattr(preparation, "run_job", lambda task, items: map(task, items))
    texts = [f"text {n} of {n * n * 17} and {n % 7}" for n in range(3000)]
    lines = [json.dumps({"text": t}) + "\n" if suffix == ".jsonl" else t + "\n\n" for t in texts]
    (tmp_path / f"a{suffix}").write_text("".join(lines))
    shares = {"validation_share": 0.1, "test_share": 0.1, "sequence_length": 16}
    source = {"language": "en", "files": f"{tmp_path}/a{suffix}"}
    corpora = CorporaConfig.model_validate({"sources": [source], **shares})
    size = {"type": "byte_bpe", "vocabulary_size": 300}
    tokenizer = make_tokenizer(corpora, TokenizerConfig.model_validate({"train": size}))
    whole = prepare(corpora, tokenizer, Location(tmp_path / "whole"))
    monkeypatch.setattr(portions_module, "PART_BYTES", 10_000)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 1000)
    cut = prepare(corpora, tokenizer, Location(tmp_path / "cut"))
    assert len(cut.splits["train"]["en"].shards) > 8
    for split in whole.splits:
        one, other = whole.splits[split]["en"], cut.splits[split]["en"]
        assert (one.documents, one.tokens) == (other.documents, other.tokens)
    corpora_in = {}
    for name, manifest in (("whole", whole), ("cut", cut)):
        corpus = PackedCorpus(Location(tmp_path / name) / manifest.fingerprint)
        corpora_in[name] = corpus.take("train", "en", np.arange(corpus.sequences("train", "en"))).ravel()
    record = json.loads((tmp_path / "whole" / whole.fingerprint / "parts/en-00000.json").read_text())
    end = np.frombuffer(base64.urlsafe_b64decode(record["tails"]["train"]), np.uint16)
    # Each part's rows are found in the whole, in order, less than a sequence's length after the last.
    stream, place, skipped = [*corpora_in["whole"].tolist(), *end.tolist()], 0, list[int]()
    *of_parts, of_tails = [
        np.load(tmp_path / "cut" / cut.fingerprint / shard.file).ravel().tolist()
        for shard in cut.splits["train"]["en"].shards
    ]
    for rows in of_parts:
        skip = next(skip for skip in range(16) if stream[place + skip :][: len(rows)] == rows)
        skipped += stream[place : place + skip]
        place += skip + len(rows)
    skipped += stream[place:]
    assert of_tails == skipped[: len(skipped) // 16 * 16]
