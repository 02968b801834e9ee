"""What cannot be read is refused with a way to do it, and the way works."""

from __future__ import annotations

import gzip
import json
import os
import random
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import datasets
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.planning.preflight import check_splits
from tests.helpers.files import compressed
from tests.helpers.readers import documents_of
from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.reading.check import check_sources
from trainables.corpora.reading.tally import Tally
from trainables.errors import InputError

TEXTS = [f'document {number}, with a comma; "quotes"\nand two lines' for number in range(30)]


def files(pattern: str, **fields: str) -> SourceConfig:
    return SourceConfig(language="en", files=pattern, **fields)


def refusal(source: SourceConfig, malformed_share: float = 0.0) -> InputError:
    with pytest.raises(InputError) as caught:
        check_sources([source], malformed_share)
    return caught.value


# --- formats ------------------------------------------------------------------------------------------------


def write_frame(file: Path, **options: str) -> None:
    frame = pandas.DataFrame({"id": [f"id {n}" for n in range(len(TEXTS))], "text": TEXTS})
    if ".csv" in file.name or ".tsv" in file.name:
        frame.to_csv(file, index=False, sep=options.get("sep", "\t" if ".tsv" in file.name else ","))
    elif ".arrow" in file.name:
        table = pa.Table.from_pandas(frame)
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    else:
        frame.to_json(file, orient="records", lines=False)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.tsv.gz", "a.arrow", "a.json", "a.json.gz"])
@pytest.mark.parametrize("streaming", [True, False])
def test_what_datasets_reads_is_refused_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, streaming: bool
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "my text"
    folder.mkdir()
    write_frame(folder / name)
    error = refusal(files(f"{folder}/*"))
    assert name in error.what
    assert f"dataset: {folder}}}" in error.remedy
    source = SourceConfig(language="en", dataset=str(folder), id_column="id", streaming=streaming)
    check_sources([source])
    found = documents_of(source)
    assert [one.text for one in found] == TEXTS
    assert found[3].document_id == "id 3"


def test_json_lines_of_another_name_are_to_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    assert "rename the file to .jsonl" in refusal(files(f"{tmp_path}/a.json")).remedy
    (tmp_path / "a.json").rename(tmp_path / "a.jsonl")
    assert [one.text for one in documents_of(files(f"{tmp_path}/a.jsonl"))] == TEXTS


@pytest.mark.parametrize("as_data_set", [False, True])
def test_semicolons_between_fields(tmp_path: Path, as_data_set: bool) -> None:
    """The command of the remedy is run as it is printed."""
    folder = tmp_path / "my text"
    folder.mkdir()
    frame = pandas.DataFrame({"id": range(len(TEXTS)), "text": [text.replace(",", "") for text in TEXTS]})
    frame.to_csv(folder / "a.csv", index=False, sep=";")
    source = SourceConfig(language="en", dataset=str(folder)) if as_data_set else files(f"{folder}/*.csv")
    remedy = refusal(source).remedy
    command = shlex.split(remedy[remedy.index("python -c") : remedy.index(" and files: ")])
    subprocess.run([sys.executable, *command[1:]], check=True)
    pattern = remedy.partition(" and files: ")[2]
    assert [one.text for one in documents_of(files(pattern))] == list(frame["text"])


def test_files_of_other_formats_on_an_object_store(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe(f"/bucket{tmp_path}/a.csv", b"id,text\n1,a\n")
    error = refusal(files(f"fsspec+memory://bucket{tmp_path}/*.csv"))
    assert "copy its folder to this machine" in error.remedy


def test_one_document_a_line_in_a_text_file(tmp_path: Path) -> None:
    """One file gives one document, which cannot be held out; of several it is said. sed G mends both."""
    lines = [f"document {number} is a line" for number in range(200)]
    (tmp_path / "old.txt").write_text("\n".join(lines) + "\n")
    config = CorporaConfig(sources=(files(f"{tmp_path}/*.txt"),), validation_share=0.1, test_share=0.1)
    with pytest.raises(InputError, match=r"no document of 'en' is in the \w+ split(?s:.*)sed G OLD > NEW"):
        check_splits(config)
    (tmp_path / "a book.txt").write_text("one\n\ntwo\n")
    (tmp_path / "a note.txt").write_text("three\nlines\nonly\n")
    tally = Tally()
    documents_of(files(f"{tmp_path}/*.txt"), tally)
    assert tally.one_document_files == 1
    assert "sed G OLD > NEW" in tally.warnings("source")[0]
    (tmp_path / "new").mkdir()
    subprocess.run(f"sed G '{tmp_path}/old.txt' > '{tmp_path}/new/new.txt'", shell=True, check=True)
    tally = Tally()
    assert [one.text for one in documents_of(files(f"{tmp_path}/new/*.txt"), tally)] == lines
    assert tally.warnings("source") == []


def test_empty_files_are_passed_over_unless_all_are(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"empty-{number}.jsonl").touch()
    error = refusal(files(f"{tmp_path}/*.jsonl"))
    assert error.what == "all files are empty"
    (tmp_path / "good.jsonl").write_text('{"text": "good"}\n')
    check_sources([files(f"{tmp_path}/*.jsonl")])
    tally = Tally()
    assert len(documents_of(files(f"{tmp_path}/*.jsonl"), tally)) == 1
    assert tally.warnings("source") == ["source: empty files, passed over: 3"]


# --- encodings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ".jsonl.gz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_recognised(tmp_path: Path, suffix: str, encoding: str) -> None:
    """With a byte order mark or without. The remedy's command is run, and then the text is read."""
    content = "".join(json.dumps({"text": f"text {n} é"}, ensure_ascii=False) + "\n\n" for n in range(30))
    file = tmp_path / f"a{suffix}"
    file.write_bytes(compressed(content.encode(encoding), suffix))
    error = refusal(files(str(file)), malformed_share=1.0)
    assert f"a{suffix} is UTF-{encoding[4:6]}" in error.what
    assert "latin1" not in str(error)
    if not suffix.endswith(".gz"):
        command = error.remedy.removeprefix("convert it: ").replace("OLD", str(file))
        subprocess.run(command.replace("NEW", f"{tmp_path}/new{suffix}"), shell=True, check=True)
        assert len(documents_of(files(f"{tmp_path}/new{suffix}"))) == 30


def test_another_encoding_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"text": "Ночь, улица, фонарь"}\n'.encode("cp1251") * 5)
    error = refusal(files(f"{tmp_path}/a.jsonl"))
    assert "not UTF-8" in error.what
    assert "latin1" not in error.remedy
    command = f"iconv -f CP1251 -t UTF-8 '{tmp_path}/a.jsonl' > '{tmp_path}/b.jsonl'"
    assert command.replace("CP1251", "ENCODING").split(" '")[0] in error.remedy
    subprocess.run(command, shell=True, check=True)
    assert documents_of(files(f"{tmp_path}/b.jsonl"))[0].text == "Ночь, улица, фонарь"


def test_text_with_zero_bytes_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0\0\0\0 NUL \0 inside \0\0 and more text of one byte a letter")
    assert len(documents_of(files(f"{tmp_path}/a.txt"))) == 1


# --- malformed records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_malformed", "is_advised"), [(1, True), (49, True), (51, False), (100, False)])
def test_a_share_is_advised_only_where_most_records_are_good(
    tmp_path: Path, num_malformed: int, is_advised: bool
) -> None:
    lines = ["oops"] * num_malformed + ['{"text": "good"}'] * (100 - num_malformed)
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    error = refusal(files(f"{tmp_path}/a.jsonl"))
    assert f"{num_malformed} of 100 records" in error.why
    assert ("malformed_share=" in error.remedy) == is_advised
    if is_advised:
        check_sources([files(f"{tmp_path}/a.jsonl")], float(error.remedy.rpartition("=")[2]))


@pytest.mark.parametrize(
    "line",
    [
        b'{"\x1b]0;title\\u001b[2J": "x"}',
        b'{"text": ["\\u001b[2J\\u202e"]}',
        b'\x1b[2J{oops \x9b"',
        b'{"text": 1, "\\ud800": 2}',
        "{\u202e\u2028\x85".encode(),
    ],
)
def test_control_characters_do_not_reach_a_terminal(tmp_path: Path, line: bytes) -> None:
    folder = tmp_path / "a\x1b[31mfolder"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"text": "good"}\n' * 9 + line + b"\n")
    source, tally = files(f"{folder}/*.jsonl"), Tally()
    documents_of(source, tally)
    for message in (str(refusal(source)), *tally.warnings("source")):
        assert "a.jsonl, line 10" in message
        assert all(character.isprintable() or character == "\n" for character in message), repr(message)
        message.encode()


def test_a_language_that_the_column_has_not(tmp_path: Path) -> None:
    """The values that are there are listed, the most frequent first."""
    names = ["eng"] * 60 + ["deu"] * 30 + ["swa"] * 10
    random.Random(0).shuffle(names)
    lines = [json.dumps({"text": f"text {n}", "lang": name}) for n, name in enumerate(names)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    source = files(f"{tmp_path}/a.jsonl", language_column="lang")
    with pytest.raises(InputError, match=r"no document of 'en'(?s:.*)'lang' holds 'eng', 'deu', 'swa'"):
        check_splits(CorporaConfig(sources=(source,)))


# --- tables -------------------------------------------------------------------------------------------------


def strings(*values: bytes | None) -> pa.Array:
    """Strings of whatever bytes, as no writer refuses them."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_values_of_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    """A date beyond Python's and bytes that are not UTF-8 spoil their own rows, and no other."""
    texts = strings(b"good", b"b\xed\xa0\x80d", None, b"fourth", b"last")
    ids = pa.array([0, 1, 2, 2**60, 4], pa.timestamp("ms"))
    languages = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 0, 1]), ["en", "sw"])
    pq.write_table(pa.table({"text": texts, "id": ids, "lang": languages}), tmp_path / "train.parquet")
    source = files(f"{tmp_path}/train.parquet", id_column="id", language_column="lang")
    tally = Tally()
    assert [one.text for one in documents_of(source, tally)] == ["good"]
    assert (tally.malformed, tally.empty, tally.other_languages) == (2, 1, 1)
    assert [one.where.rpartition(", ")[2] for one in tally.examples] == ["row 2", "row 4"]
    epoch = str(datetime.fromtimestamp(0, UTC).replace(tzinfo=None))
    assert documents_of(source)[0].document_id == epoch


def test_a_damaged_data_set_ends_no_process(tmp_path: Path) -> None:
    """Offsets that point outside the table: once a signal, before pyarrow was asked to validate them."""
    datasets.Dataset.from_dict({"text": [f"text {n}" for n in range(100)]}).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    content = bytearray(file.read_bytes())
    offsets = content.index(b"".join(n.to_bytes(4, "little") for n in (0, 6, 12, 18)))
    content[offsets + 200 : offsets + 204] = (2**30).to_bytes(4, "little")
    file.write_bytes(content)
    done = in_a_child(f"SourceConfig(language='en', dataset={str(tmp_path / 'saved')!r})")
    assert done.returncode == 0, done.stderr
    assert "cannot be read as a Hugging Face data set" in done.stdout


# --- memory -------------------------------------------------------------------------------------------------

CHILD = """
import resource
from trainables.corpora.config import SourceConfig
from trainables.corpora.reading.check import check_sources
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.portions import expand
from trainables.errors import InputError
source = {source}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    check_sources([source])
except InputError as error:
    print(error)
try:
    print([len(one.text) for portion in expand(source) for one in read_documents(portion, source)])
except InputError as error:
    print(error)
print("MB:", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def in_a_child(source: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-c", CHILD.format(source=source)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def repeated(begin: bytes, piece: bytes, size_bytes: int, end: bytes) -> bytes:
    """Compressed, in pieces: this process is not to hold it."""
    block = gzip.compress(piece * (1 << 16), 1)
    return gzip.compress(begin, mtime=0) + block * (size_bytes // (len(piece) << 16)) + gzip.compress(end)


@pytest.mark.parametrize(
    ("name", "begin", "piece", "end", "facts"),
    [
        ("a.jsonl.gz", b'{"text": "', b"word ", b'"}\n{"text": "last"}\n', ["longer than 64 MiB", "line 1", "[4]"]),
        ("a.txt.gz", b"", b"words " * 20 + b"\n", b"\n\nlast", ["longer than 64 MiB", "sed G", "[]"]),
    ],
)
def test_a_record_of_400_mb_in_a_small_file(
    tmp_path: Path, name: str, begin: bytes, piece: bytes, end: bytes, facts: list[str]
) -> None:
    (tmp_path / name).write_bytes(repeated(begin, piece, 400_000_000, end))
    assert (tmp_path / name).stat().st_size < 3_000_000
    done = in_a_child(f"SourceConfig(language='en', files='{tmp_path}/{name}')")
    assert done.returncode == 0, done.stderr
    assert not [fact for fact in facts if fact not in done.stdout], done.stdout
    assert int(done.stdout.rpartition("MB: ")[2]) < 500


def test_a_line_of_nothing_but_lists(tmp_path: Path) -> None:
    """Parsed it would take thirty times its size."""
    (tmp_path / "a.jsonl.gz").write_bytes(repeated(b'{"text": [', b"[],[],", 50_000_000, b"1]}\n"))
    done = in_a_child(f"SourceConfig(language='en', files='{tmp_path}/a.jsonl.gz')")
    assert "more data than text" in done.stdout, done.stderr
    assert int(done.stdout.rpartition("MB: ")[2]) < 500


def test_a_table_that_grows_out_of_proportion(tmp_path: Path) -> None:
    texts = pa.array(["x" * 100_000_000, "y" * 100_000_000, "z"], pa.large_string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    done = in_a_child(f"SourceConfig(language='en', files='{tmp_path}/a.parquet')")
    assert done.returncode == 0, done.stderr
    assert "too large when it is decompressed" in done.stdout
    assert int(done.stdout.rpartition("MB: ")[2]) < 200


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("A.TXT", b"one\n\ntwo\n"),
        ("a.ndjson", b'{"text": "one"}\n{"text": "two"}\n'),
        ("a.NDJSON.GZ", gzip.compress(b'{"text": "one"}\n{"text": "two"}\n', mtime=0)),
        ("a.JsonL", b'{"text": "one"}\n{"text": "two"}\n'),
    ],
)
def test_other_spellings_of_a_suffix_are_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    check_sources([files(f"{tmp_path}/*")])
    assert [one.text.strip() for one in documents_of(files(f"{tmp_path}/*"))] == ["one", "two"]
