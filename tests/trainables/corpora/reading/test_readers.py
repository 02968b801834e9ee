"""The readers of this package, and one that another package brings."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.readers import ReaderConformance, Row
from trainables.corpora.reading import lines
from trainables.corpora.reading.tables import ParquetReader
from trainables.corpora.reading.text import JsonLinesReader, TextReader

REPOSITORY = Path(__file__).parents[4]


class TestJsonLines(ReaderConformance):
    reader = JsonLinesReader

    def content(self, rows: list[Row]) -> bytes:
        return "".join(json.dumps(row, ensure_ascii=len(row["text"]) % 2 == 0) + "\n" for row in rows).encode()

    def spoilt(self, rows: list[Row], number: int) -> bytes:
        written = self.content(rows).splitlines(keepends=True)
        return b"".join([*written[:number], b'{"text": "b\xed\xa0\x80d"}\n', *written[number + 1 :]])

    def place(self, rows: list[Row], number: int) -> str:
        return f"line {number + 1}"

    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "BLOCK_BYTES", 500)


class TestText(ReaderConformance):
    reader = TextReader

    def content(self, rows: list[Row]) -> bytes:
        return "\n\n".join(row["text"] for row in rows).encode()

    def spoilt(self, rows: list[Row], number: int) -> bytes:
        texts = [row["text"].encode() for row in rows]
        return b"\n\n".join([*texts[:number], b"b\xed\xa0\x80d", *texts[number + 1 :]])

    def place(self, rows: list[Row], number: int) -> str:
        before = accumulate((row["text"].count("\n") + 2 for row in rows), initial=1)
        return f"line {list(before)[number]}"

    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "BLOCK_BYTES", 500)


class TestParquet(ReaderConformance):
    reader = ParquetReader

    def content(self, rows: list[Row]) -> bytes:
        return self.written([row["text"].encode() for row in rows], rows)

    def spoilt(self, rows: list[Row], number: int) -> bytes:
        """Strings that are not UTF-8, which no writer refuses."""
        texts = [row["text"].encode() for row in rows]
        return self.written([*texts[:number], b"b\xed\xa0\x80d", *texts[number + 1 :]], rows)

    def written(self, texts: list[bytes], rows: list[Row]) -> bytes:
        table = pa.table(
            {
                "text": pa.array(texts, pa.binary()).view(pa.string()),
                "id": [row["id"] for row in rows],
                "lang": [row["lang"] for row in rows],
            }
        )
        file = io.BytesIO()
        pq.write_table(table, file, row_group_size=70 if len(rows) <= 1000 else len(rows))
        return file.getvalue()

    def place(self, rows: list[Row], number: int) -> str:
        return f"row {number + 1}"


PACKAGE = '''
    import json
    from trainables.corpora.reading.lines import block_bytes, lines, range_bytes, text_suffixes
    from trainables.corpora.reading.reader import Malformed, Reader, Record, lacks

    NAMES = ("text", "id", "lang")

    class ArrayReader(Reader):
        """One JSON array a line: the text, the id, the language."""

        name = "arrays"
        suffixes = text_suffixes(".arrays")

        def part_bytes(self, file):
            return block_bytes(file)

        def read(self, file, columns, parts=None):
            for column in columns:
                if column not in NAMES:
                    raise lacks(file.name, str(file), column, NAMES).error()
            start, stop = range_bytes(parts)
            for line in lines(file, start, stop):
                if line.begin_bytes >= stop:
                    return
                if line.problem is not None:
                    yield line.problem
                    continue
                try:
                    yield Record(line.place, dict(zip(NAMES, json.loads(line.text), strict=True)))
                except (ValueError, TypeError, RecursionError) as error:
                    yield Malformed("no array", f"{file}, {line.place}", str(error), "mend the line")
'''

ITS_TESTS = """
    import json
    from array_lines import ArrayReader
    from tests.helpers.readers import ReaderConformance
    from trainables.corpora.reading import lines

    class TestArrays(ReaderConformance):
        reader = ArrayReader

        def content(self, rows):
            return "".join(json.dumps([row["text"], row["id"], row["lang"]]) + "\\n" for row in rows).encode()

        def spoilt(self, rows, number):
            written = self.content(rows).splitlines(keepends=True)
            return b"".join([*written[:number], b"{oops\\n", *written[number + 1 :]])

        def place(self, rows, number):
            return f"line {number + 1}"

        def small_parts(self, monkeypatch):
            monkeypatch.setattr(lines, "BLOCK_BYTES", 500)
"""


def install(folder: Path, package: str, content: str, entry_points: str) -> None:
    """A package with its metadata, as pip leaves it."""
    (folder / f"{package}.py").write_text(dedent(content))
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[headtohead.readers]\n{entry_points}\n")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, where the packages in the folder are installed."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{REPOSITORY}"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_package_brings_a_reader_that_passes_the_same_tests(tmp_path: Path) -> None:
    install(tmp_path, "array_lines", PACKAGE, "arrays = array_lines:ArrayReader")
    (tmp_path / "test_arrays.py").write_text(dedent(ITS_TESTS))
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_arrays.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


ASK = """
from trainables.corpora.reading.files import readers
from trainables.errors import InputError
try:
    print(sorted(readers()))
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("content", "entry_points", "facts"),
    [
        ("import none_such", "arrays = array_lines:ArrayReader", ["none_such", "array-lines", "pip uninstall"]),
        (PACKAGE, "arrays = array_lines:NoReader", ["NoReader", "array-lines"]),
        ("1 / 0", "arrays = array_lines:ArrayReader", ["ZeroDivisionError", "array-lines"]),
        (PACKAGE, "arrays = array_lines:json", ["array-lines", "no class derived from Reader"]),
        (PACKAGE, "jsonl = array_lines:ArrayReader", ["two readers called 'jsonl'", "array-lines"]),
        (
            PACKAGE.replace('".arrays"', '".txt"'),
            "arrays = array_lines:ArrayReader",
            ["two readers have the suffix '.txt'", "'text' and 'arrays'"],
        ),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    tmp_path: Path, content: str, entry_points: str, facts: list[str]
) -> None:
    install(tmp_path, "array_lines", content, entry_points)
    done = run(tmp_path, "-c", ASK)
    assert done.returncode == 0, done.stderr
    assert not [fact for fact in facts if fact not in done.stdout], done.stdout
