"""Files of documents in every format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def compressed(content: bytes, suffix: str) -> bytes:
    """The content, compressed as a file's suffix says."""
    if suffix.endswith(".zst"):
        return bytes(pa.compress(content, codec="zstd", asbytes=True))
    return gzip.compress(content) if suffix.endswith(".gz") else content


def write_lines(path: Path, content: bytes) -> None:
    """Write a file's content, compressed as its suffix says."""
    path.write_bytes(compressed(content, path.suffix))


def write_table(path: Path, texts: list[str], ids: list[str] | None = None, **more: list[str]) -> None:
    """Write the documents in the format of the path's suffix."""
    ids = ids or [f"id-{number}" for number in range(len(texts))]
    columns = {"id": ids, "text": texts, **more}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=2)
    elif ".txt" in path.name:
        write_lines(path, "".join(texts).encode())
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        write_lines(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
