"""Files of documents in every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trainables.corpora.reading.formats import suffix_of


def write_lines(path: Path, content: bytes) -> None:
    """Write a file's content, compressed as its suffix says."""
    compress = {".gz": gzip.compress, ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True)}
    path.write_bytes(compress.get(path.suffix, bytes)(content))


def write_table(path: Path, texts: list[str], ids: list[str] | None = None, **more: list[str]) -> None:
    """Write the documents in the format of the path's suffix."""
    ids = ids or [f"id-{number}" for number in range(len(texts))]
    suffix = suffix_of(path.name)
    assert suffix is not None
    columns = {"id": ids, "text": texts, **more}
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=2)
        return
    if suffix == ".arrow":
        table = pa.table(columns)
        kind = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
        with kind(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        return
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    file = io.StringIO(newline="")
    if ".jsonl" in suffix:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    elif ".txt" in suffix:
        file.write("".join(texts))
    else:
        csv_file = csv.writer(file, delimiter="\t" if ".tsv" in suffix else ",")
        csv_file.writerows([list(columns), *(list(row.values()) for row in rows)])
    write_lines(path, file.getvalue().encode())
