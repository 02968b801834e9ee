"""Every format gives the same documents, and every mistake its own message."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from huggingface_hub.errors import HfHubHTTPError
from pydantic import ValidationError

from tests.helpers.files import write_lines, write_table
from tests.helpers.readers import KEPT, TEXTS, documents_of
from trainables.corpora.config import SourceConfig
from trainables.corpora.grammar import LANGUAGES
from trainables.corpora.preparation.fingerprint import source_content
from trainables.corpora.reading import hugging_face as data_sets
from trainables.corpora.reading import lines as lines_module
from trainables.corpora.reading.check import check_sources
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.files import read_records
from trainables.corpora.reading.portions import divide, expand
from trainables.corpora.reading.reader import Malformed
from trainables.corpora.reading.tally import Tally, total
from trainables.errors import InputError
from trainables.storage import Location


def test_a_lone_surrogate_in_json_is_a_malformed_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "\\ud83d\\ude00 a pair"}\n{"text": "half \\ud83d"}\n')
    source = SourceConfig(language="en", files=f"{tmp_path}/a.jsonl")
    tally = Tally()
    found = [d.text for d in read_documents(expand(source)[0], source, tally=tally)]
    assert found == ["\U0001f600 a pair"]
    assert "lone surrogate" in tally.examples[0].what
    assert tally.examples[0].where.endswith("line 2")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_may_be_joined(tmp_path: Path, suffix: str) -> None:
    """As cat joins them, and as parallel compressors write them."""
    file = tmp_path / f"a.jsonl{suffix}"
    write_lines(file, GOOD * 3)
    file.write_bytes(file.read_bytes() * 2)
    assert len(documents_of(SourceConfig(language="en", files=str(file)))) == 6


def test_a_file_cut_short_within_a_bad_document_is_cut_short(tmp_path: Path) -> None:
    """What else is wrong with the same record does not hide it."""
    texts = [f"text {n} {random.Random(n).random()}" for n in range(20_000)]
    content = gzip.compress("\n\n".join(texts).encode() + b"\n\n\xff\n" + os.urandom(200_000).hex().encode())
    (tmp_path / "a.txt.gz").write_bytes(content[:-1000])
    source = SourceConfig(language="en", files=f"{tmp_path}/a.txt.gz")
    tally = Tally()
    assert len(list(read_documents(expand(source)[0], source, tally=tally))) == 20_000
    assert (tally.malformed, tally.cut_short) == (1, 1)


def test_of_many_examples_the_gravest_stays() -> None:
    """However many parts come before that of the file that is cut short."""
    small = Malformed("small", "a, line 1", "why", "remedy")
    tallies = [Tally(documents=9) for _ in range(5)]
    for tally in tallies[:4]:
        tally.count(small)
    tallies[4].count(small._replace(what="grave", num_records=None))
    whole = total(tallies)
    assert (whole.malformed, whole.cut_short) == (5, 1)
    assert [one.what for one in whole.examples] == ["grave", "small", "small"]


def test_a_share_of_malformed_records_is_tolerated(tmp_path: Path) -> None:
    """Exactly the share passes, one more record does not; of a head alone a tenth does."""
    file = tmp_path / "a.jsonl"
    file.write_bytes(GOOD * 49 + b"{oops\n")
    source = SourceConfig(language="en", files=str(file))
    check_sources([source], malformed_share=0.02)
    with pytest.raises(InputError, match=r"line 50(?s:.*)1 of 50 records of corpora.sources\[0\](?s:.*)2.000%"):
        check_sources([source], malformed_share=0.0199)
    file.write_bytes(GOOD * 40 + b"{oops\n" * 10 + GOOD * 1000)
    check_sources([source], malformed_share=0.001)
    with pytest.raises(InputError, match=r"--set corpora.malformed_share"):
        check_sources([source], malformed_share=0.0)
    file.write_bytes(GOOD * 40 + b"{oops\n" * 11 + GOOD * 1000)
    with pytest.raises(InputError, match="and 10 more malformed records"):
        check_sources([source], malformed_share=0.001)


def test_a_failing_network_is_no_malformed_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "a.jsonl.gz", GOOD * 10)
    source = SourceConfig(language="en", files=f"{tmp_path}/a.jsonl.gz")

    class Failing(io.BufferedReader):
        def readline(self, size: int | None = -1) -> bytes:
            raise OSError("When reading information for key: curlCode: 28, Timeout was reached")

    (portion,) = expand(source)
    monkeypatch.setattr(lines_module, "io", SimpleNamespace(BufferedReader=Failing))
    with pytest.raises(InputError, match="Timeout was reached") as caught:
        list(read_documents(portion, source))
    assert caught.value.what == "a.jsonl.gz could not be read"
    assert "download" not in caught.value.remedy


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_vanishes_is_no_damaged_one(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, KEPT)
    source = SourceConfig(language="en", files=f"{tmp_path}/{name}")
    (portion,) = expand(source)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"{name} could not be read(?s:.*)No such file"):
        list(read_documents(portion, source))
    if name == "a.parquet":
        with pytest.raises(InputError, match=f"{name} could not be read"):
            divide(portion, 1)


def test_a_number_of_too_many_digits_is_a_malformed_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": "b", "n": ' + "1" * 5000 + '}\n{"text": "c"}\n')
    source = SourceConfig(language="en", files=f"{tmp_path}/a.jsonl")
    tally = Tally()
    assert [d.text for d in read_documents(expand(source)[0], source, tally=tally)] == ["a", "c"]
    assert tally.malformed == 1
    assert "5000 digits" in tally.examples[0].why


def test_blank_lines_separate_the_documents_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n\none\ntwo\n \n\nthree\r\n\r\nfour")
    found = documents_of(SourceConfig(language="en", files=f"{tmp_path}/a.txt"))
    assert [document.text for document in found] == ["one\ntwo", "three", "four"]


def test_ids_depend_on_text_and_language_only(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", ["same", "other"])
    write_table(tmp_path / "b.parquet", ["first", "same"])
    english = documents_of(SourceConfig(language="en", files=(f"{tmp_path}/a.jsonl", f"{tmp_path}/b.parquet")))
    ids = [document.document_id for document in english]
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3
    german = documents_of(SourceConfig(language="de", files=f"{tmp_path}/a.jsonl"))
    assert german[0].document_id != ids[0]
    assert ids[0] == "709ee0356739f6374adfd65f60769e14"


def test_files_are_sorted_and_wildcards_stop_at_folders(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "deep/c.jsonl", "deep/er/d.jsonl", "x[1].jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_table(tmp_path / name, [name])

    def names(*patterns: str) -> list[str]:
        files = tuple(f"{tmp_path}/{pattern}" for pattern in patterns)
        return [Path(p.name).relative_to(tmp_path).as_posix() for p in expand(SourceConfig(language="en", files=files))]

    assert names("*.jsonl") == ["a.jsonl", "b.jsonl", "x[1].jsonl"]
    assert names("**/*.jsonl") == ["a.jsonl", "b.jsonl", "deep/c.jsonl", "deep/er/d.jsonl", "x[1].jsonl"]
    assert names("*/?.jsonl") == ["deep/c.jsonl"]
    assert names("b.jsonl", "?.jsonl", "x[1].jsonl") == ["a.jsonl", "b.jsonl", "x[1].jsonl"]
    assert expand(SourceConfig(language="en", files=f"file://{tmp_path}/b.jsonl"))[0].size_bytes > 0


def test_relative_paths_are_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "a.jsonl", KEPT)
    monkeypatch.chdir(tmp_path)
    assert len(documents_of(SourceConfig(language="en", files="a.jsonl"))) == len(KEPT)


def test_a_table_is_divided_without_loss(tmp_path: Path) -> None:
    texts = [f"document {number}" for number in range(11)]
    write_table(tmp_path / "a.parquet", texts)
    source = SourceConfig(language="en", files=f"{tmp_path}/a.parquet", id_column="id")
    (whole,) = expand(source)
    pieces = divide(whole, whole.size_bytes // 8)
    assert len(pieces) > 2
    assert [d for piece in pieces for d in read_documents(piece, source)] == list(read_documents(whole, source))


def test_a_large_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    texts = [random.Random(number).randbytes(400).hex() for number in range(30_000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=len(texts))
    before_bytes, most_bytes = pa.total_allocated_bytes(), 0
    read = []
    for record in read_records(Location(tmp_path / "a.parquet"), ("text",)):
        read.append(record.columns["text"])
        most_bytes = max(most_bytes, pa.total_allocated_bytes() - before_bytes)
    assert read == texts
    assert most_bytes < (tmp_path / "a.parquet").stat().st_size / 2


def test_a_grammar_is_divided_without_loss() -> None:
    source = SourceConfig(language="xx", grammar=min(LANGUAGES), documents=25, seed=3)
    check_sources([source])
    (whole,) = expand(source)
    pieces = divide(whole, whole.size_bytes // 4)
    assert len(pieces) > 2
    documents = list(read_documents(whole, source))
    assert [d for piece in pieces for d in read_documents(piece, source)] == documents
    assert len({document.document_id for document in documents}) == 25


def test_data_sets(tmp_path: Path) -> None:
    saved = datasets.Dataset.from_dict({"text": TEXTS, "id": list("abcdefgh")})
    saved.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": saved, "dev": saved.select([7])}).save_to_disk(tmp_path / "splits")
    (tmp_path / "folder").mkdir()
    write_table(tmp_path / "folder" / "train.jsonl", TEXTS)
    for name in ("saved", "splits", "folder"):
        source = SourceConfig(language="en", dataset=str(tmp_path / name), id_column="id")
        check_sources([source])
        assert [document.text for document in documents_of(source)] == KEPT
    dev = SourceConfig(language="en", dataset=str(tmp_path / "splits"), split="dev")
    assert [document.text for document in documents_of(dev)] == ["last"]
    with pytest.raises(InputError, match="did you mean 'train'"):
        check_sources([dev.model_copy(update={"split": "trian"})])
    with pytest.raises(InputError, match=r"no column 'txet'(?s:.*)did you mean 'text'"):
        check_sources([SourceConfig(language="en", dataset=str(tmp_path / "saved"), text_column="txet")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"cannot be read as a Hugging Face data set(?s:.*)sources\[0\].dataset"):
        check_sources([SourceConfig(language="en", dataset=str(tmp_path / "empty"))])


def test_a_data_set_on_disk_is_divided_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.Dataset.from_dict({"text": [f"document {n}" for n in range(100)]}).save_to_disk(tmp_path / "a")
    source = SourceConfig(language="en", dataset=str(tmp_path / "a"))
    whole = documents_of(source)
    monkeypatch.setattr(data_sets, "SHARD_BYTES", 300)
    cuts: list[object] = []
    shard = datasets.Dataset.shard
    monkeypatch.setattr(
        datasets.Dataset, "shard", lambda *given, **options: cuts.append(given) or shard(*given, **options)
    )
    portions = expand(source)
    assert len(portions) > 3
    assert documents_of(source) == whole
    assert len(cuts) == len(portions), "to read one shard is to cut one shard"


@pytest.mark.parametrize("streaming", [True, False])
def test_a_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming: bool) -> None:
    """The hub is asked for exactly what the source says; here a folder on disk answers."""
    asked: list[object] = []
    load_dataset = datasets.load_dataset

    def answer(name: str, config: str | None, **options: object) -> object:
        asked.append((name, config, options))
        return load_dataset(
            str(tmp_path / "hub"), split="train", streaming=streaming, cache_dir=str(tmp_path / "cache")
        )

    (tmp_path / "hub").mkdir()
    write_table(tmp_path / "hub" / "train.parquet", TEXTS, lang=["en"] * 7 + ["sw"])
    monkeypatch.setattr(datasets, "load_dataset", answer)
    source = SourceConfig(
        language="en",
        dataset="owner/name",
        config="en.web",
        split="dev",
        revision="abc",
        streaming=streaming,
        language_column="lang",
    )
    check_sources([source])
    assert [document.text for document in documents_of(source)] == KEPT[:-1]
    expected = {"split": "dev", "revision": "abc", "streaming": streaming}
    assert all(one == ("owner/name", "en.web", expected) for one in asked)
    assert asked


def test_the_size_of_a_data_set_is_that_of_its_split(tmp_path: Path) -> None:
    """One that says nothing of its size has some: its shards must not be joined to one task."""
    texts = [f"document {n} of many" for n in range(1000)]
    saved = datasets.Dataset.from_dict({"text": texts})
    datasets.DatasetDict({"train": saved, "dev": saved.select(range(10))}).save_to_disk(tmp_path / "splits")
    (tmp_path / "folder").mkdir()
    for number in range(3):
        write_table(tmp_path / "folder" / f"train-{number}.jsonl", texts)
    (train,) = expand(SourceConfig(language="en", dataset=str(tmp_path / "splits")))
    (dev,) = expand(SourceConfig(language="en", dataset=str(tmp_path / "splits"), split="dev"))
    num_bytes = sum(map(len, texts))
    assert num_bytes < train.size_bytes < 2 * num_bytes
    assert 0 < dev.size_bytes < train.size_bytes / 50
    unknown = SourceConfig(language="en", dataset=str(tmp_path / "folder"))
    assert [portion.size_bytes for portion in expand(unknown)] == [data_sets.SHARD_BYTES] * 3
    whole = unknown.model_copy(update={"streaming": False})
    (downloaded,) = expand(whole)
    assert downloaded.size_bytes > 3 * num_bytes
    assert source_content(whole, "") != source_content(unknown, ""), "parts are cut, and packed, otherwise"


def test_a_revision_of_the_hub_is_pinned_to_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = {None: "a" * 40, "v2": "b" * 40}
    asked: list[object] = []

    def dataset_info(_: object, name: str, revision: str | None = None) -> object:
        asked.append((name, revision))
        return SimpleNamespace(sha=heads[revision])

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    source = SourceConfig(language="en", dataset="owner/name")
    tagged = source.model_copy(update={"revision": "v2"})
    assert data_sets.pinned(source, "").revision == "a" * 40
    assert data_sets.pinned(tagged, "") == source.model_copy(update={"revision": "b" * 40})
    assert asked == [("owner/name", None), ("owner/name", "v2")]
    assert source_content(source, "")["dataset"][3] == "a" * 40
    heads[None] = "c" * 40
    assert source_content(source, "")["dataset"][3] == "c" * 40, "the branch moved: another text"

    def no_network(*_: object, **__: object) -> object:
        raise HfHubHTTPError.__bases__[0]("Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", no_network)
    with pytest.raises(InputError, match=r"owner/name cannot be read(?s:.*)Name or service not known"):
        source_content(source, "corpora.sources[0]")
    commit = source.model_copy(update={"revision": "a" * 40})
    folder = SourceConfig(language="en", dataset=str(tmp_path))
    grammar = SourceConfig(language="xx", grammar="any")
    assert [data_sets.pinned(one, "") for one in (commit, folder, grammar)] == [commit, folder, grammar]


def test_files_on_the_hugging_face_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``hf://`` goes through huggingface_hub's filesystem; a folder on disk stands for the hub."""
    folder = tmp_path / "datasets" / "owner" / "name" / "data"
    folder.mkdir(parents=True)
    for number, suffix in enumerate([".jsonl.zst", ".jsonl", ".parquet"]):
        write_table(folder / f"{number}{suffix}", [f"document {suffix}"])

    class Hub(DirFileSystem):
        protocol = "hf"

        def __init__(self) -> None:
            super().__init__(str(tmp_path), LocalFileSystem())

        def info(self, path: str, **options: object) -> dict[str, object]:
            blob = sha256((tmp_path / path).read_bytes()).hexdigest() if path.endswith(".parquet") else None
            return {**super().info(path, **options), "blob_id": blob}

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix("hf://")

    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "hf", Hub)
    source = SourceConfig(language="en", files="hf://datasets/owner/name/**/*.*")
    check_sources([source])
    names = [portion.name for portion in expand(source)]
    suffixes = [".jsonl.zst", ".jsonl", ".parquet"]
    assert names == [f"hf://datasets/owner/name/data/{n}{suffix}" for n, suffix in enumerate(suffixes)]
    assert [document.text for document in documents_of(source)] == [f"document {suffix}" for suffix in suffixes]
    with pytest.raises(InputError, match=r"did you mean '2.parquet'"):
        check_sources([source.model_copy(update={"files": "hf://datasets/owner/name/data/2.arow"})])

    identities = source_content(source, "")["files"]
    assert identities[2][2] == sha256((folder / "2.parquet").read_bytes()).hexdigest()

    def no_network(*_: object, **__: object) -> object:
        raise HfHubHTTPError.__bases__[0]("Name or service not known")

    monkeypatch.setattr(Hub, "find", no_network)
    with pytest.raises(InputError, match=r"cannot be listed(?s:.*)Name or service not known"):
        check_sources([source])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of files, dataset and grammar, not none"),
        ({"files": "a", "grammar": "b"}, "not files and grammar"),
        ({"files": ()}, "not none"),
        ({"files": "a", "documents": 5}, "documents is an option of grammar; this source is a files source"),
        ({"files": "a", "revision": "main"}, "revision is an option of dataset"),
        ({"grammar": "a", "text_column": "t"}, "text_column is an option of files and dataset"),
        ({"files": "a", "language": "e/n"}, "language"),
        ({"files": "a", "columns": "t"}, "columns"),
    ],
)
def test_a_source_is_of_one_kind(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SourceConfig.model_validate({"language": "en", **fields})


def test_a_source_survives_being_written_out() -> None:
    source = SourceConfig(language="en", files=("a", "b"), id_column="id")
    assert SourceConfig.model_validate_json(source.model_dump_json()) == source


GOOD = b'{"text": "good"}\n'


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("a.jsonl", b"", ["a.jsonl is empty"]),
        ("a.jsonl", GOOD + b"{oops\n", ["not JSON", "line 2", "{oops"]),
        ("a.jsonl", GOOD + b"\n[1]\n", ["not a JSON object", "line 3", "list"]),
        ("a.jsonl", GOOD + b'{"text": 5}\n', ["no text but a value of type int", "line 2", "text_column"]),
        ("a.jsonl", GOOD + b'{"txet": "a"}\n', ["no column 'text'", "line 2", "did you mean 'txet'"]),
        ("a.jsonl", GOOD + b'{"text": "caf\xe9"}\n', ["not UTF-8", "line 2", "byte 30", "iconv"]),
        ("a.jsonl", b'{"text": ""}\n{"text": null}\n', ["no document with text", "corpora.sources[0].files"]),
        ("a.jsonl", gzip.compress(GOOD, mtime=0), ["another format", "is gzip", "plain text"]),
        ("a.jsonl.gz", GOOD, ["another format", "neither gzip nor zstd", "rename"]),
        ("a.jsonl.gz", gzip.compress(GOOD * 9, mtime=0)[:-9], ["cannot be read to its end", "truncated or damaged"]),
        ("a.jsonl.gz", gzip.compress(GOOD + b"\xff", mtime=0), ["not UTF-8", "line 2, byte 17"]),
        ("a.parquet", GOOD, ["another format", "a .parquet file is parquet"]),
        ("a.parquet", b"PAR1 and no more", ["cannot be read to its end"]),
        ("a.txt", b"one\ntw\xff\n", ["not UTF-8", "line 2", "byte 6"]),
        ("a.jsonl.bz2", b"x", ["unknown file format", ".jsonl.bz2", "did you mean '.jsonl"]),
        ("a", b"x", ["unknown file format"]),
    ],
)
def test_a_bad_file_is_named_before_anything_starts(
    tmp_path: Path, name: str, content: bytes, facts: list[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        check_sources([SourceConfig(language="en", files=str(tmp_path / name))])
    message = str(caught.value)
    assert not [fact for fact in [*facts, "where:"] if fact not in message], message


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write_table(tmp_path / "english.jsonl", KEPT)
    good = SourceConfig(language="en", files=f"{tmp_path}/english.jsonl")
    with pytest.raises(InputError, match=r"sources\[1\].files(?s:.*)did you mean 'english.jsonl'"):
        check_sources([good, SourceConfig(language="en", files=f"{tmp_path}/englsh.jsonl")])
    with pytest.raises(InputError, match="there is no folder"):
        check_sources([SourceConfig(language="en", files=f"{tmp_path}/none/englsh.jsonl")])
    with pytest.raises(InputError, match=r"is a folder(?s:.*)\*\.jsonl"):
        check_sources([SourceConfig(language="en", files=str(tmp_path))])
    with pytest.raises(InputError, match=r"no column 'iid'(?s:.*)did you mean 'id'"):
        check_sources([good.model_copy(update={"id_column": "iid"})])
    (tmp_path / "english.jsonl").rename(tmp_path / "english.ndjson")
    with pytest.raises(InputError, match=r"is a folder(?s:.*)\*\.ndjson"):
        check_sources([SourceConfig(language="en", files=str(tmp_path))])


def test_a_missing_id_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "id": null}\n')
    with pytest.raises(InputError, match=r"without a usable id in the column 'id'(?s:.*)line 1"):
        check_sources([SourceConfig(language="en", files=f"{tmp_path}/a.jsonl", id_column="id")])


def test_an_unknown_grammar_names_the_nearest() -> None:
    name = min(LANGUAGES)
    with pytest.raises(InputError, match=rf"sources\[0\].grammar(?s:.*)did you mean '{name}'"):
        check_sources([SourceConfig(language="xx", grammar=name + "x")])
