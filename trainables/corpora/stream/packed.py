"""A packed corpus on disk or on an object store, read by sequence number. Letters: N sequences, L tokens each."""

from __future__ import annotations

import math
import mmap
import resource
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

from trainables.corpora.grammar import MinimalPair
from trainables.corpora.stream.checksums import cache_folder, is_intact
from trainables.corpora.stream.groups import GROUPS_NAME, read_groups
from trainables.corpora.stream.manifest import FORMAT_VERSION, Manifest, Shard, Split, damaged
from trainables.corpora.stream.token_counts import TOKEN_COUNTS_NAME, TokenCounts, token_counts
from trainables.corpora.tokenizers import load_tokenizer
from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import Location

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer"
MINIMAL_PAIRS_NAME = "minimal_pairs.jsonl"
_PAIR = TypeAdapter(MinimalPair)
MOST_MAPS = 1 << 14
"""Shards that a corpus keeps mapped at once; Linux grants a process 65,530 maps (``vm.max_map_count``)."""


class PackedCorpus:
    """Token sequences by split, language and number. Shards are mapped into memory when first needed.

    It lies in the folder ``<store>/<fingerprint>``; InputErrors are those of :func:`read_manifest`. A pickled
    corpus is its folder: all copies in another process are one, so that its later tasks find mapped what an earlier one
    has read. Shards of an object store are copied, once, to this machine's :func:`cache_folder`.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        # A map holds a file open: the files that the process may open are shared with whatever else it does.
        most_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._map = lru_cache(min(MOST_MAPS, most_open // 2))(self._open)
        self._intact: dict[str, Path] = {}
        self._units: dict[Split, dict[str, NDArray[np.int64]]] = {}
        self._ends = {
            (split, language): np.cumsum([shard.sequences for shard in counts.shards])
            for split, languages in self.manifest.splits.items()
            for language, counts in languages.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _corpus_of_this_process, (self.folder.uri,)

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages, sorted."""
        return self.manifest.languages

    def sequences(self, split: Split, language: str) -> int:
        """How many sequences the language has in the split."""
        return self.manifest.splits[split][language].sequences

    def take(self, split: Split, language: str, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Sequences by number, (N, L) in the shards' dtype, in the order of ``indices``, (N,). Raises IndexError."""
        ends = self._ends[split, language]
        if indices.size and (indices.min() < 0 or indices.max() >= ends[-1]):
            asked = f"asked for {indices.min()} to {indices.max()}"
            raise IndexError(f"{split}/{language} has {ends[-1]} sequences, {asked}")
        shards = self.manifest.splits[split][language].shards
        order_N = np.argsort(indices)
        token_NL = np.empty((len(indices), self.manifest.sequence_length), dtype=self.manifest.dtype)
        shard_N = np.searchsorted(ends, indices[order_N], side="right")
        numbers, begins, counts = np.unique(shard_N, return_index=True, return_counts=True)
        for number, begin, count in zip(numbers, begins, counts, strict=True):
            rows = order_N[begin : begin + count]
            first = ends[number] - shards[number].sequences
            token_NL[rows] = self._map(shards[number]).take(indices[rows] - first, 0)
        return token_NL

    def documents_before(self, split: Split, language: str) -> NDArray[np.int64]:
        """How many documents end before each sequence, (sequences,); every shard begins a document, too."""
        separator, counts = self.manifest.separator_token, list[NDArray[np.int64]]()
        for shard in self.manifest.splits[split][language].shards:
            ends_N = (self._map(shard) == separator).sum(axis=1)
            counts.append(np.concatenate([ends_N[:-1], [ends_N[-1] + 1]]))
        ends_N = np.concatenate(counts)
        before_N: NDArray[np.int64] = ends_N.cumsum() - ends_N
        return before_N

    def units(self, split: Split, language: str, document_D: NDArray[np.int64]) -> NDArray[np.int64]:
        """The unit of text that each document is of, (D,), by its number: documents of one group are one, and no two
        groups have the same number, of whatever language. Raises InputError: the record of groups is damaged."""
        if not self.manifest.groups:
            return document_D * len(self.languages) + self.languages.index(language)
        return self._unit_of(split, language)[document_D]

    def num_units(self, split: Split, language: str) -> int:
        """How many units of text the language has in the split. Raises InputError as :meth:`units` does."""
        if not self.manifest.groups:
            return self.manifest.splits[split][language].documents
        return len(np.unique(self._unit_of(split, language)))

    def _unit_of(self, split: Split, language: str) -> NDArray[np.int64]:
        if split not in self._units:
            groups = read_groups(self.folder, self.manifest)
            if groups is None:
                raise damaged(self.folder / GROUPS_NAME)
            self._units[split] = groups.of(split)
        return self._units[split][language]

    def _open(self, shard: Shard) -> NDArray[Any]:
        file = self._intact.get(shard.file)
        if file is None or not file.exists():
            file = self._intact[shard.file] = self._verified(shard)
        shape = shard.sequences, self.manifest.sequence_length
        num_tokens = math.prod(shape)
        if file.stat().st_size < num_tokens * np.dtype(self.manifest.dtype).itemsize:
            raise damaged(self.folder / MANIFEST_NAME)
        with file.open("rb", buffering=0) as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        # In an eighth of numpy.load's time, for corpora of more shards than stay mapped. The header is of whole tokens.
        return np.frombuffer(content, self.manifest.dtype)[-num_tokens:].reshape(shape)

    def _verified(self, shard: Shard) -> Path:
        copy, file = self._local_copy(shard.file), self.folder / shard.file
        if is_intact(copy, shard.checksum):
            return copy
        if file.local is None:
            copy.unlink(missing_ok=True)  # the copy may be damaged, the shard not
            if is_intact(self._local_copy(shard.file), shard.checksum):
                return copy
        raise damaged(file)

    def _local_copy(self, name: str) -> Path:
        file = self.folder / name
        if file.local is not None:
            return file.local
        copy = Location(cache_folder() / self.manifest.fingerprint / name)
        if not copy.exists() and file.exists():
            copy.write_bytes(file.read_bytes())
        assert copy.local is not None
        return copy.local

    @cached_property
    def token_counts(self) -> TokenCounts:
        """How often each token comes in the training split."""
        return token_counts(self.manifest, self.folder)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer that made the tokens. Raises InputError: its files are gone, or cannot be read."""
        files = [self._local_copy(f"{TOKENIZER_NAME}/{name}") for name in (self.folder / TOKENIZER_NAME).names()]
        if not files:
            raise damaged(self.folder / TOKENIZER_NAME)
        return load_tokenizer(str(files[0].parent))

    def digests(self) -> dict[str, str]:
        """Of the files beside the shards, of which the manifest has the shards', by their names in the folder."""
        names = [MANIFEST_NAME, MINIMAL_PAIRS_NAME, TOKEN_COUNTS_NAME]
        names += [f"{TOKENIZER_NAME}/{name}" for name in (self.folder / TOKENIZER_NAME).names()]
        return {name: checksum(file.read_bytes()) for name in names if (file := self.folder / name).exists()}

    def minimal_pairs(self) -> list[MinimalPair]:
        """Pairs of a good and a bad sentence, of the languages that have a grammar; empty where none has."""
        file = self.folder / MINIMAL_PAIRS_NAME
        if not file.exists():
            return []
        try:
            return [_PAIR.validate_json(line) for line in file.read_bytes().splitlines()]
        except ValidationError as error:
            raise damaged(file) from error


@lru_cache(maxsize=1)
def _corpus_of_this_process(uri: str) -> PackedCorpus:
    return PackedCorpus(Location(uri))


class _Versioned(BaseModel):  # as every version of the manifest is
    format_version: int


def read_manifest(folder: Location) -> Manifest:
    """The manifest of the packed corpus in a folder. InputError: there is none, it is damaged or of another version."""
    file = folder / MANIFEST_NAME
    if not file.exists():
        why = "the manifest is written when the corpus is whole"
        remedy = "h2h prepare STUDY prepares it, and so does running the study"
        raise InputError(f"there is no prepared corpus in {folder}", where=str(file), why=why, remedy=remedy)
    content = file.read_bytes()
    try:
        version = _Versioned.model_validate_json(content).format_version
        if version != FORMAT_VERSION:
            raise ValueError(f"its format version is {version}, this program's {FORMAT_VERSION}")
        return Manifest.model_validate_json(content)
    except ValueError as error:
        raise InputError(
            f"the manifest of the prepared corpus in {folder} is damaged, or of another version",
            where=str(file),
            why=str(error),
            remedy="remove the folder and run the study again, which prepares the corpus anew",
        ) from error
