"""The name of a prepared corpus: equal where the packed tokens are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from trainables.corpora.config import CorporaConfig, SourceConfig
from trainables.corpora.preparation.splits import grouped
from trainables.corpora.reading.hugging_face import local_folder, pinned
from trainables.corpora.reading.portions import Portion, expand
from trainables.corpora.stream.manifest import FORMAT_VERSION
from trainables.corpora.stream.token_counts import Job
from trainables.corpora.tokenizers import separator_token, tokenizer_digest
from trainables.storage import Location

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_GRAMMAR_VERSION = 1  # changes with the text that an embedded grammar generates for a seed


def fingerprint(corpora: CorporaConfig, tokenizer: PreTrainedTokenizerFast, job: Job = map) -> str:
    """Names the prepared corpus: equal where the packed tokens are. How languages are mixed does not count.

    Local text counts by its content, an object store's by name, size and time of modification (on the Hugging Face
    hub: hash), a data set of the hub by name, configuration, split and commit; any data set by whether it is streamed.
    Local files are read by the ``job``.
    """
    corpora = grouped(corpora)
    sources = [source_content(source, f"corpora.sources[{n}]", job) for n, source in enumerate(corpora.sources)]
    special_tokens = [separator_token(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id]
    content = {
        "format_version": FORMAT_VERSION,
        "sequence_length": corpora.sequence_length,
        "deduplicate": corpora.deduplicate,
        "shares": [corpora.validation_share, corpora.test_share],
        "maximum_overlap": corpora.maximum_overlap,
        "minimal_pairs": corpora.minimal_pairs_per_language if corpora.has_minimal_pairs else 0,
        "tokenizer": tokenizer_digest(tokenizer),
        "special_tokens": [*special_tokens, sorted(tokenizer.all_special_ids)],
        "sources": sources,
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


def source_content(source: SourceConfig, where: str, job: Job = map) -> dict[str, Any]:
    """What identifies a source's text, as a JSON value; local files are read by the ``job``."""
    columns = [source.text_column, source.id_column, source.language_column, source.group_column]
    content: dict[str, Any] = {"language": source.language, "columns": columns, "group_bytes": source.group_bytes}
    if source.grammar is not None:
        return content | {"grammar": [source.grammar, source.documents, source.seed, _GRAMMAR_VERSION]}
    if source.dataset is not None:
        name: object = source.dataset
        if folder := local_folder(source):
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            digests = _digests(files, job)
            name = [[file.relative_to(folder).as_posix(), digests[str(file)]] for file in files]
        commit = pinned(source, where).revision
        # Streamed it has other shards, and so other parts, each of which is packed apart.
        return content | {"dataset": [name, source.config, source.split, commit, source.streaming]}
    portions = expand(source, where)
    digests = _digests([file for portion in portions if (file := Location(portion.name).local)], job)
    return content | {"files": [_identity(portion, digests) for portion in portions]}


def _identity(portion: Portion, digests: dict[str, str]) -> list[object]:
    """What changes with the content of a file: of an object store's the time, on the Hugging Face hub a hash of it."""
    file = Location(portion.name)
    if file.local is not None:
        return [portion.file, digests[str(file.local)]]
    if isinstance(file.filesystem, pafs.PyFileSystem):
        blob = file.filesystem.handler.fs.info(file.path).get("blob_id")
        if blob is not None:
            return [portion.name, portion.size_bytes, str(blob)]
    return [portion.name, portion.size_bytes, file.filesystem.get_file_info(file.path).mtime_ns]


def _digests(files: Iterable[Path], job: Job) -> dict[str, str]:
    """Of local files by their names, read each by a task."""
    return dict(json.loads(result) for result in job(_digest, [str(file) for file in files]))


def _digest(file: str) -> str:
    with Path(file).open("rb") as stream:
        return json.dumps([file, hashlib.file_digest(stream, hashlib.blake2b).hexdigest()])
