"""What holds for every reader of a file format: a class of tests inherits it, and says how such files are written."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

import fsspec
import pyarrow as pa
import pytest

from tests.helpers.files import compressed
from tests.helpers.mutations import mutated
from trainables.corpora.config import SourceConfig
from trainables.corpora.reading.check import check_sources
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.files import READERS, part_bytes, read_records, readers
from trainables.corpora.reading.portions import divide, expand
from trainables.corpora.reading.reader import MOST_RECORD_BYTES, Malformed, Reader, Record
from trainables.corpora.reading.tally import Document, Tally
from trainables.errors import InputError
from trainables.storage import Location

TEXTS = [
    'Hello, "world"',
    "two\nlines\tand a tab",
    "ünïcödé 日本語 हिन्दी \U0001f600 e\u0301",
    "",
    "  ",
    "NUL \0 inside",
    "of Windows\r\nof Unix\nof old Macintosh\rmixed",
    "last",
]
KEPT = [text for text in TEXTS if text.strip()]
LANGUAGES = ["en", "sw", "", "en", "sw", "en", "sw", "en"]
LARGE_BYTES = 3_000_000
MEMORY_BYTES = 8_000_000
"""What a reader may hold of a file of twice its size: a few batches."""

Row = dict[str, str]


def rows_of(texts: list[str], languages: list[str] | None = None) -> list[Row]:
    """Records of these texts."""
    found = languages or ["en"] * len(texts)
    return [
        {"id": f"id-{number}", "text": text, "lang": language}
        for number, (text, language) in enumerate(zip(texts, found, strict=True))
    ]


def documents_of(source: SourceConfig, tally: Tally | None = None) -> list[Document]:
    """All documents of a source."""
    return [one for portion in expand(source) for one in read_documents(portion, source, tally=tally)]


class ReaderConformance:
    """Derive a class of tests from it."""

    reader: ClassVar[type[Reader]]

    def content(self, rows: list[Row]) -> bytes:
        """A file of these records, not compressed; a reader without columns has their texts."""
        raise NotImplementedError

    def spoilt(self, rows: list[Row], number: int) -> bytes:
        """The same file, in which the record of this number is none."""
        raise NotImplementedError

    def place(self, rows: list[Row], number: int) -> str:
        """Where the record of this number lies in the file."""
        raise NotImplementedError

    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make :meth:`Reader.part_bytes` cut a file of 10 KB in several parts, if it cuts files at all."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Each test with a suffix runs for all of the reader's."""
        if "suffix" in metafunc.fixturenames:
            metafunc.parametrize("suffix", self.reader.suffixes)

    def write(self, folder: Path, suffix: str, rows: list[Row], **fields: str) -> SourceConfig:
        """A source of one file of these records."""
        (folder / f"a{suffix}").write_bytes(compressed(self.content(rows), suffix))
        return SourceConfig(language="en", files=f"{folder}/a{suffix}", **fields)

    def test_it_is_registered(self) -> None:
        name, magic = self.reader.name, self.reader.magic
        assert READERS.find(name) is self.reader
        assert not magic or len(magic) >= 4, "a shorter one is found in other files"
        for suffix in self.reader.suffixes:
            assert suffix == suffix.lower()
            assert suffix.startswith(".")
            assert isinstance(readers()[suffix], self.reader)

    def test_the_same_documents(self, tmp_path: Path, suffix: str) -> None:
        source = self.write(tmp_path, suffix, rows_of(TEXTS))
        check_sources([source])
        found = documents_of(source)
        assert [document.text for document in found] == KEPT
        assert {document.language for document in found} == {"en"}
        ids = [blake2b(b"en\0" + text.encode(), digest_size=16).hexdigest() for text in KEPT]
        assert [document.document_id for document in found] == ids

    def test_capital_letters_in_the_suffix(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"A{suffix.upper()}").write_bytes(compressed(self.content(rows_of(TEXTS)), suffix))
        source = SourceConfig(language="en", files=f"{tmp_path}/A{suffix.upper()}")
        check_sources([source])
        assert [document.text for document in documents_of(source)] == KEPT

    def test_ids(self, tmp_path: Path, suffix: str) -> None:
        source = self.write(tmp_path, suffix, rows_of(TEXTS), id_column="id")
        if not self.reader.has_columns:
            with pytest.raises(InputError, match="leave out id_column"):
                documents_of(source)
            return
        kept = [f"id-{number}" for number, text in enumerate(TEXTS) if text.strip()]
        assert [document.document_id for document in documents_of(source)] == kept
        with pytest.raises(InputError, match=r"no column 'iid'(?s:.*)did you mean 'id'"):
            check_sources([source.model_copy(update={"id_column": "iid"})])

    def test_every_record_is_counted(self, tmp_path: Path, suffix: str) -> None:
        tally = Tally()
        documents_of(self.write(tmp_path, suffix, rows_of(TEXTS)), tally)
        num_empty = len(TEXTS) - len(KEPT) if self.reader.has_columns else 0
        assert tally == Tally(documents=len(KEPT), empty=num_empty)

    def test_several_languages(self, tmp_path: Path, suffix: str) -> None:
        if not self.reader.has_columns:
            return
        source = self.write(tmp_path, suffix, rows_of(TEXTS, LANGUAGES), language_column="lang")
        for language in ("en", "sw"):
            tally = Tally()
            found = documents_of(source.model_copy(update={"language": language}), tally)
            own = [t for t, la in zip(TEXTS, LANGUAGES, strict=True) if la == language and t.strip()]
            assert [(d.text, d.language) for d in found] == [(text, language) for text in own]
            assert tally.malformed == 1, "the record without a language"
            assert tally.other_languages == LANGUAGES.count("sw" if language == "en" else "en")

    def test_one_document(self, tmp_path: Path, suffix: str) -> None:
        source = self.write(tmp_path, suffix, rows_of(["one line"]))
        assert [document.text for document in documents_of(source)] == ["one line"]

    def test_an_empty_file_is_counted(self, tmp_path: Path, suffix: str) -> None:
        self.write(tmp_path, suffix, rows_of(KEPT))
        (tmp_path / f"b{suffix}").touch()
        source, tally = SourceConfig(language="en", files=f"{tmp_path}/*{suffix}"), Tally()
        check_sources([source])
        assert len(documents_of(source, tally)) == len(KEPT)
        assert (tally.documents, tally.empty_files) == (len(KEPT), 1)
        with pytest.raises(InputError, match=rf"b{suffix} is empty"):
            check_sources([SourceConfig(language="en", files=f"{tmp_path}/b{suffix}")])

    def test_a_large_document(self, tmp_path: Path, suffix: str) -> None:
        text = "".join(f"word{number} " for number in range(LARGE_BYTES // 10)) + "end"
        source = self.write(tmp_path, suffix, rows_of(["small", text, "last"]))
        assert [document.text for document in documents_of(source)] == ["small", text, "last"]

    def test_a_document_that_is_too_large_is_malformed(self, tmp_path: Path) -> None:
        suffix = self.reader.suffixes[0]
        rows = rows_of(["small", "many words " * (MOST_RECORD_BYTES // 11 + 1), "last"])
        source, tally = self.write(tmp_path, suffix, rows), Tally()
        assert documents_of(source, tally)[0].text == "small"
        (example,) = tally.examples
        assert "longer than 64 MiB" in example.what
        assert example.remedy

    def test_a_malformed_record_is_counted_and_named(self, tmp_path: Path, suffix: str) -> None:
        """It spoils itself and no other, and nothing is raised."""
        rows = rows_of(["good", "b@@@d", "last"])
        file = tmp_path / f"a{suffix}"
        file.write_bytes(compressed(self.spoilt(rows, 1), suffix))
        source, tally = SourceConfig(language="en", files=str(file)), Tally()
        assert [document.text for document in documents_of(source, tally)] == ["good", "last"]
        assert (tally.malformed, tally.documents) == (1, 2)
        (example,) = tally.examples
        assert example.where.startswith(f"{file}, {self.place(rows, 1)}")
        assert example.what
        assert example.why
        assert example.remedy

    def test_places_are_true(self, tmp_path: Path, suffix: str) -> None:
        rows = rows_of([text for text in TEXTS if text.strip()] * 3)
        source = self.write(tmp_path, suffix, rows)
        places = [item.place for item in read_records(Location(str(source.files)), ("text",)) if valid(item)]
        assert places == [self.place(rows, number) for number in range(len(rows))]

    def test_in_whatever_parts_the_records_are_the_same(
        self, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Parts one by one and in ranges, with a malformed record among them; their sizes add up to something."""
        self.small_parts(monkeypatch)
        generator = random.Random(0)
        rows = rows_of([f"text {number} " + "word " * generator.randrange(40) for number in range(200)])
        file = tmp_path / f"a{suffix}"
        file.write_bytes(compressed(self.spoilt(rows, 120), suffix))
        source = SourceConfig(language="en", files=str(file))
        whole = Tally()
        expected = documents_of(source, whole)
        assert (len(expected), whole.malformed) == (199, 1)
        sizes = part_bytes(Location(file))
        assert all(size > 0 for size in sizes)
        (portion,) = expand(source)
        for size_bytes in (1, portion.size_bytes // 3):
            pieces, tally = divide(portion, size_bytes), Tally()
            assert len(pieces) > 1 or len(sizes) < 2
            found = [one for piece in pieces for one in read_documents(piece, source, tally=tally)]
            assert found == expected
            assert (tally.malformed, tally.documents) == (1, 199)

    def test_an_object_store_is_read_alike(self, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whole and in ranges; its files have no path on this machine."""
        self.small_parts(monkeypatch)
        rows = rows_of([f"text {number} 日本" for number in range(200)])
        local = self.write(tmp_path, suffix, rows)
        store = fsspec.filesystem("memory")
        store.pipe(f"/bucket{tmp_path}/a{suffix}", (tmp_path / f"a{suffix}").read_bytes())
        remote = SourceConfig(language="en", files=f"fsspec+memory://bucket{tmp_path}/a{suffix}")
        check_sources([remote])
        expected = documents_of(local)
        assert [document.text for document in expected] == [row["text"] for row in rows]
        assert documents_of(remote) == expected
        pieces = [piece for portion in expand(remote) for piece in divide(portion, 1000)]
        assert [one for piece in pieces for one in read_documents(piece, remote)] == expected

    def test_memory_is_bounded(self, tmp_path: Path, suffix: str) -> None:
        generator = random.Random(0)
        texts = [generator.randbytes(500).hex() for _ in range(2 * MEMORY_BYTES // 1000)]
        source = self.write(tmp_path, suffix, rows_of(texts))
        before_bytes, num_records, most_bytes = pa.total_allocated_bytes(), 0, 0
        tracemalloc.start()
        try:
            for item in read_records(Location(str(source.files)), ("text",)):
                num_records += valid(item)
                most_bytes = max(most_bytes, pa.total_allocated_bytes() - before_bytes)
            most_bytes += tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert num_records == len(texts)
        assert most_bytes < MEMORY_BYTES

    def test_a_damaged_file_is_an_input_error_or_read(self, tmp_path: Path, suffix: str) -> None:
        generator = random.Random(suffix)
        content = compressed(self.content(rows_of([f"text {number}" for number in range(50)])), suffix)
        file = tmp_path / f"a{suffix}"
        for _ in range(40):
            file.write_bytes(mutated(content, generator))
            with suppress(InputError):
                for item in read_records(Location(file), ("text",)):
                    assert isinstance(item, Record | Malformed)

    def test_a_file_cut_short_is_not_taken_for_whole(self, tmp_path: Path, suffix: str) -> None:
        """Compressed text is read up to the cut, which no share of malformed records below 1 tolerates."""
        is_compressed = suffix.endswith((".gz", ".zst"))
        if not is_compressed and not self.reader.magic:
            return
        texts = [f"text {n} {random.Random(n).random()}" for n in range(20_000)]
        source, file = self.write(tmp_path, suffix, rows_of(texts)), tmp_path / f"a{suffix}"
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
        tally = Tally()
        if not is_compressed:
            with pytest.raises(InputError, match="cannot be read to its end"):
                documents_of(source)
            return
        found = documents_of(source, tally)
        assert 10_000 < len(found) < 20_000
        assert [one.text.split()[1] for one in found] == [str(number) for number in range(len(found))]
        assert (tally.malformed, tally.cut_short) == (1, 1)
        assert "cannot be read to its end" in tally.examples[0].what
        line = int(tally.examples[0].where.rpartition("line ")[2])
        assert line > len(found)
        with pytest.raises(InputError, match=rf"a{suffix} cannot be read to its end(?s:.*)line {line}"):
            tally.require_sound(0.999, "source")
        tally.require_sound(1.0, "source")
        assert "the rest of 1 files" in tally.warnings("source")[0]


def valid(item: Record | Malformed) -> bool:
    """Whether it is a record."""
    return isinstance(item, Record)
