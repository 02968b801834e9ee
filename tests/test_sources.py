"""Every format gives the same documents, and every mistake its own message."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from trainables.corpora.readers import READERS, suffix_of
from trainables.corpora.sources import Document, SourceConfig, check_sources, divide, expand, read_documents
from trainables.errors import InputError

TEXTS = ['Hello, "world"', "two\nlines\tand a tab", "ünïcödé 日本語 हिन्दी", "", "  ", "last"]
KEPT = [text for text in TEXTS if text.strip()]


def write_table(path: Path, texts: list[str], ids: list[str] | None = None) -> None:
    """Write the documents in the format of the path's suffix."""
    ids = ids or [f"id-{number}" for number in range(len(texts))]
    suffix = suffix_of(path.name)
    assert suffix is not None
    if suffix == ".parquet":
        pq.write_table(pa.table({"id": ids, "text": texts}), path, row_group_size=2)
        return
    opener: Callable[..., object] = gzip.open if suffix.endswith(".gz") else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        if ".jsonl" in suffix:
            file.writelines(json.dumps({"id": i, "text": t}) + "\n" for i, t in zip(ids, texts, strict=True))
        elif ".txt" in suffix:
            file.write("".join(texts))
        else:
            writer = csv.writer(file, delimiter="\t" if ".tsv" in suffix else ",")
            writer.writerows([("id", "text"), *zip(ids, texts, strict=True)])


def documents_of(source: SourceConfig) -> list[Document]:
    return [document for portion in expand(source) for document in read_documents(portion, source)]


@pytest.mark.parametrize("suffix", READERS)
def test_every_format_gives_the_same_documents(tmp_path: Path, suffix: str) -> None:
    if ".txt" in suffix:  # one document a file
        for number, text in enumerate(TEXTS):
            if text:
                write_table(tmp_path / f"{number}{suffix}", [text])
    else:
        write_table(tmp_path / f"all{suffix}", TEXTS)
    source = SourceConfig(language="en", files=f"{tmp_path}/*{suffix}")
    check_sources([source])
    found = documents_of(source)
    assert [document.text for document in found] == KEPT
    assert {document.language for document in found} == {"en"}
    if ".txt" not in suffix:
        with_ids = documents_of(source.model_copy(update={"id_column": "id"}))
        assert [document.document_id for document in with_ids] == ["id-0", "id-1", "id-2", "id-5"]


def test_blank_lines_separate_the_documents_of_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n\none\ntwo\n \n\nthree\r\n\r\nfour")
    found = documents_of(SourceConfig(language="en", files=f"{tmp_path}/a.txt"))
    assert [document.text for document in found] == ["one\ntwo", "three", "four"]


def test_ids_depend_on_text_and_language_only(tmp_path: Path) -> None:
    write_table(tmp_path / "a.jsonl", ["same", "other"])
    write_table(tmp_path / "b.csv", ["first", "same"])
    english = documents_of(SourceConfig(language="en", files=(f"{tmp_path}/a.jsonl", f"{tmp_path}/b.csv")))
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
        return [
            Path(p.name).relative_to(tmp_path).as_posix()
            for p in expand(SourceConfig(language="en", files=files))
        ]

    assert names("*.jsonl") == ["a.jsonl", "b.jsonl", "x[1].jsonl"]
    assert names("**/*.jsonl") == ["a.jsonl", "b.jsonl", "deep/c.jsonl", "deep/er/d.jsonl", "x[1].jsonl"]
    assert names("*/?.jsonl") == ["deep/c.jsonl"]
    assert names("b.jsonl", "?.jsonl", "x[1].jsonl") == ["a.jsonl", "b.jsonl", "x[1].jsonl"]
    assert expand(SourceConfig(language="en", files=f"file://{tmp_path}/b.jsonl"))[0].size_bytes > 0


def test_relative_paths_are_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path / "a.jsonl", KEPT)
    monkeypatch.chdir(tmp_path)
    assert len(documents_of(SourceConfig(language="en", files="a.jsonl"))) == len(KEPT)


def test_a_parquet_file_is_divided_without_loss(tmp_path: Path) -> None:
    texts = [f"document {number}" for number in range(11)]
    write_table(tmp_path / "a.parquet", texts)
    source = SourceConfig(language="en", files=f"{tmp_path}/a.parquet", id_column="id")
    (whole,) = expand(source)
    pieces = divide(whole, whole.size_bytes // 8)
    assert len(pieces) > 2
    assert [d for piece in pieces for d in read_documents(piece, source)] == list(
        read_documents(whole, source)
    )


def test_a_grammar_is_divided_without_loss() -> None:
    pytest.importorskip("trainables.corpora.grammar")
    from trainables.corpora.grammar import LANGUAGES

    source = SourceConfig(language="xx", grammar=min(LANGUAGES), documents=25, seed=3)
    check_sources([source])
    (whole,) = expand(source)
    pieces = divide(whole, whole.size_bytes // 4)
    assert len(pieces) > 2
    documents = list(read_documents(whole, source))
    assert [d for piece in pieces for d in read_documents(piece, source)] == documents
    assert len({document.document_id for document in documents}) == 25


def test_data_sets(tmp_path: Path) -> None:
    saved = datasets.Dataset.from_dict({"text": TEXTS, "id": list("abcdef")})
    saved.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": saved, "dev": saved.select([5])}).save_to_disk(tmp_path / "splits")
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
    with pytest.raises(
        InputError, match=r"cannot be read as a Hugging Face data set(?s:.*)sources\[0\].dataset"
    ):
        check_sources([SourceConfig(language="en", dataset=str(tmp_path / "empty"))])


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
        ("a.jsonl", gzip.compress(GOOD), ["another format", "is gzip", "plain text"]),
        ("a.jsonl.gz", GOOD, ["another format", "neither gzip nor parquet", "rename"]),
        ("a.jsonl.gz", gzip.compress(GOOD * 9)[:-9], ["cannot be read to its end", "truncated or damaged"]),
        ("a.jsonl.gz", gzip.compress(GOOD + b"\xff"), ["not UTF-8", "line 2, byte 17"]),
        ("a.parquet", GOOD, ["another format", "a .parquet file is parquet"]),
        ("a.parquet", b"PAR1 and no more", ["cannot be read to its end"]),
        ("a.csv", b"id,txt\n1,a\n", ["no column 'text'", "line 1", "did you mean 'txt'"]),
        ("a.csv", b"id,text\n1,a\n2,b,c\n", ["3 fields, the header 2", "line 3"]),
        ("a.csv", b'id,text\n1,"a"b\n', ["a row is malformed", "line 2"]),
        ("a.txt", b"one\ntw\xff\n", ["not UTF-8", "line 2", "byte 6"]),
        ("a.jsonl.zst", b"x", ["unknown file format", ".jsonl.zst", "did you mean '.jsonl"]),
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


def test_a_missing_id_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "id": null}\n')
    with pytest.raises(InputError, match=r"without an id in the column 'id'(?s:.*)line 1"):
        check_sources([SourceConfig(language="en", files=f"{tmp_path}/a.jsonl", id_column="id")])


def test_an_unknown_grammar_names_the_nearest() -> None:
    pytest.importorskip("trainables.corpora.grammar")
    from trainables.corpora.grammar import LANGUAGES

    name = min(LANGUAGES)
    with pytest.raises(InputError, match=rf"sources\[0\].grammar(?s:.*)did you mean '{name}'"):
        check_sources([SourceConfig(language="xx", grammar=name + "x")])
