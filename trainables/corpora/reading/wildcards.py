"""Wildcards: the files that a pattern names, on this machine or on an object store."""

import re
from collections import Counter
from pathlib import Path

import pyarrow.fs as pafs

from trainables.corpora.reading.files import readers, suffix_of
from trainables.errors import InputError, nearest, refusal, storage_errors
from trainables.storage import Location, local_path, uri_of

_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
"""As regular expressions: ``*`` and ``?`` stop at ``/``, ``**/`` does not. Nothing else is special."""


def matching_files(pattern: str, where: str, relative_to: str = "") -> list[tuple[str, int, str]]:
    """Path or URI, size in bytes, and path in the pattern's folder, of the files that match; an InputError where none
    does. ``relative_to``: the folder that it names where the pattern was put into one; else the current one."""
    scheme, separator, _ = pattern.partition("://")
    pattern = pattern if separator else str(local_path(pattern))
    before_wildcard = re.split(r"[*?]", pattern, maxsplit=1)[0].rpartition("/")[0]
    folder, relative = Location(before_wildcard or "/"), pattern[len(before_wildcard) + 1 :]
    selector = pafs.FileSelector(folder.path, recursive="/" in relative or "**" in relative, allow_not_found=True)
    try:
        entries = folder.filesystem.get_file_info(selector)
    except storage_errors() as error:
        raise refusal(error, f"{folder} cannot be listed", where) from error
    base = folder.path.rstrip("/") + "/"
    named = re.split(r"(\*\*/|\*\*|\*|\?)", relative)
    expression = re.compile("".join(_WILDCARDS.get(part) or re.escape(part) for part in named))
    matches = [entry for entry in entries if expression.fullmatch(entry.path.removeprefix(base))]
    if files := [entry for entry in matches if entry.type == pafs.FileType.File]:
        root = "" if scheme == "file" or not separator else scheme + separator
        return [(uri_of(root, entry.path), entry.size or 0, entry.path.removeprefix(base)) for entry in files]
    if matches:
        inside = Counter(map(suffix_of, Location(pattern).names()))  # most of its files have it
        suffix = next((suffix for suffix, _ in inside.most_common() if suffix), next(iter(readers())))
        remedy = f"name its files with a pattern such as {pattern}/*{suffix}"
        raise InputError(f"{pattern} is a folder", where=where, remedy=remedy)
    names = [entry.path.removeprefix(base) for entry in entries if entry.type == pafs.FileType.File]
    hint = nearest(relative, filter(suffix_of, names))
    raise InputError(
        f"no file matches {pattern}",
        where=where,
        why=f"in {folder}: {hint}" if entries else f"there is no folder {folder}, or it is empty",
        remedy=f"a path is relative to {relative_to or f'the current folder, {Path.cwd()}'}; wildcards are *, ? and **",
    )
