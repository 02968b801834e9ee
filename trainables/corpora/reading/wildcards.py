"""Wildcards: the files that a pattern names, on this machine or on an object store."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.fs as pafs

from trainables.corpora.reading.registry import readers, suffix_of
from trainables.errors import InputError, nearest
from trainables.storage import Location, local_path, storage_errors, uri_of


def matching_files(pattern: str, where: str) -> list[tuple[str, int]]:
    """Path or URI and size in bytes of the files that match.

    Raises:
        InputError: none does.
    """
    scheme, separator, _ = pattern.partition("://")
    prefix = scheme + separator if separator else ""
    pattern = pattern if separator else str(local_path(pattern))
    before_wildcard = re.split(r"[*?]", pattern, maxsplit=1)[0]
    folder = Location(before_wildcard.rpartition("/")[0] or "/")
    relative = pattern[len(before_wildcard.rpartition("/")[0]) + 1 :]
    selector = pafs.FileSelector(folder.path, recursive="/" in relative or "**" in relative, allow_not_found=True)
    try:
        entries = folder.filesystem.get_file_info(selector)
    except storage_errors() as error:
        raise InputError(
            f"{folder} cannot be listed",
            where=where,
            why=str(error).strip().splitlines()[0],
            remedy="see that the network is there, the name is right, and that you may read it",
        ) from error
    base = folder.path.rstrip("/") + "/"
    names = {entry.path.removeprefix(base): entry for entry in entries}
    expression = re.compile(_expression(relative))
    matches = [entry for name, entry in names.items() if expression.fullmatch(name)]
    files = [entry for entry in matches if entry.type == pafs.FileType.File]
    if files:
        root = prefix if prefix and prefix != "file://" else ""
        return [(uri_of(root, entry.path), entry.size or 0) for entry in files]
    if matches:
        raise InputError(
            f"{pattern} is a folder",
            where=where,
            remedy=f"name its files with a pattern such as {pattern}/*{next(iter(readers()))}",
        )
    present = [name for name, entry in names.items() if entry.type == pafs.FileType.File and suffix_of(name)]
    raise InputError(
        f"no file matches {pattern}",
        where=where,
        why=f"in {folder}: {nearest(relative, present)}" if entries else f"there is no folder {folder}, or it is empty",
        remedy=f"a path is relative to the current folder, {Path.cwd()}; wildcards are *, ? and **",
    )


def _expression(pattern: str) -> str:
    """The wildcard pattern as a regular expression: ``*`` and ``?`` stop at ``/``, ``**/`` does not."""
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return "".join(wildcards.get(part) or re.escape(part) for part in parts)
