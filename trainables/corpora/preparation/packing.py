"""Packing: a part of the sources -> rows of tokens in shards, by split. One task of the preparation."""

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from trainables.corpora.config import CorporaConfig
from trainables.corpora.preparation.long_documents import LONG_CHARACTERS, encode_long
from trainables.corpora.preparation.parts import Part, PartRecord
from trainables.corpora.preparation.splits import group_number, split_of
from trainables.corpora.reading.documents import read_documents
from trainables.corpora.reading.tally import Document, Tally
from trainables.corpora.stream.checksums import is_shard_intact, remember
from trainables.corpora.stream.manifest import HELD_OUT, SPLITS, LanguageCounts, Shard
from trainables.corpora.tokenizers import unknown_tokens
from trainables.hashing import checksum
from trainables.storage import Location

SHARD_TOKENS = 1 << 24  # a shard is written when a split has so many tokens, which bounds a task's memory
_BATCH_DOCUMENTS = 1024  # how many documents are tokenised in one call
_BATCH_CHARACTERS = 1 << 22
"""A batch ends with the document that makes it so long: an encoding takes a hundred bytes a token."""


def part_digest(part: Part, left_out: frozenset[int] = frozenset()) -> str:
    """Of what a part reads; what else decides its tokens is in the corpus's fingerprint."""
    content = f"{part.model_dump_json()} {SHARD_TOKENS} {sorted(left_out)}"
    return checksum(content.encode())


def packed_part(part: Part, folder: Location, left_out: frozenset[int]) -> PartRecord | None:
    """The record of a part that an earlier preparation packed, if it and its shards are there and whole."""
    made = PartRecord.read(folder / part.record_file)
    shards = [shard for counts in made.splits.values() for shard in counts.shards] if made else []
    if made and made.digest == part_digest(part, left_out) and all(is_shard_intact(folder, one) for one in shards):
        return made
    return None


def pack_part(
    part: Part,
    tokenizer: Tokenizer,
    separator: int,
    corpora: CorporaConfig,
    dtype: np.dtype[Any],
    folder: Location,
    duplicates: frozenset[int] = frozenset(),
    near_duplicates: frozenset[int] = frozenset(),
) -> PartRecord:
    """Tokenise and pack a part's documents, and write its shards and then its record.

    The separator is put after every document; what is left out is given by its places among the part's documents.
    """
    left_out = duplicates | near_duplicates
    stems = {split: f"shards/{split}/{part.name}" for split in SPLITS}
    packers = {split: Packer(folder, stem, corpora.sequence_length, dtype, separator) for split, stem in stems.items()}
    tally = Tally(duplicates=len(duplicates), near_duplicates=len(near_duplicates))
    is_unknown_V = unknown_tokens(tokenizer)
    documents = (
        document for portion in part.portions for document in read_documents(portion, part.source, part.where, tally)
    )
    kept = (document for position, document in enumerate(documents) if position not in left_out)
    for batch in _batches(kept):
        encoded = _encode(tokenizer, [document.text for document in batch], separator, dtype)
        for document, tokens in zip(batch, encoded, strict=True):
            split = split_of(document.group, corpora.validation_share, corpora.test_share)
            packers[split].count(document.text, tokens, int(is_unknown_V[tokens[:-1]].sum()))
            packers[split].add(tokens, [] if split == "train" else [group_number(document.group)])
    record = PartRecord(
        digest=part_digest(part, left_out),
        splits={split: packers[split].finish() for split in SPLITS},
        groups={split: packers[split].groups.tobytes() for split in HELD_OUT},
        tails={split: packers[split].tail.tobytes() for split in SPLITS},
        tail_groups={split: packers[split].tail_groups.tobytes() for split in HELD_OUT},
        tally=tally,
    ).sealed()
    (folder / part.record_file).write_json(record.model_dump(mode="json"))
    return record


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch, characters = list[Document](), 0
    for document in documents:
        batch.append(document)
        characters += len(document.text)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _encode(tokenizer: Tokenizer, texts: list[str], separator: int, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Each text's tokens and the separator."""
    short = [text for text in texts if len(text) <= LONG_CHARACTERS]
    encodings = iter(tokenizer.encode_batch_fast(short, add_special_tokens=False))
    for text in texts:
        if len(text) > LONG_CHARACTERS:
            yield np.append(encode_long(tokenizer, text), separator).astype(dtype)
        else:
            yield np.array([*next(encodings).ids, separator], dtype=dtype)


class Packer:
    """Joins tokens and writes them as rows of ``length``, carrying the remainder, in shards named ``stem``.

    Where groups are added they are told apart by the separators, as ``PackedCorpus.documents_before`` counts documents.
    """

    def __init__(self, folder: Location, stem: str, length: int, dtype: np.dtype[Any], separator: int) -> None:
        self.folder, self.stem, self.length, self.separator = folder, stem, length, separator
        self._counts: Counter[str] = Counter(documents=0, tokens=0)
        self.shards: list[Shard] = []
        self._pending = [np.empty(0, dtype)]
        self._num_pending = 0
        self._groups = list[int]()
        self._pending_groups = list[int]()

    @property
    def tail(self) -> NDArray[Any]:
        """What is left when all is written: fewer tokens than a row has."""
        return np.concatenate(self._pending)

    @property
    def groups(self) -> NDArray[np.uint64]:
        """Of the documents of the shards, in their order; one that two shards share comes in each."""
        return np.array(self._groups, dtype="<u8")

    @property
    def tail_groups(self) -> NDArray[np.uint64]:
        """Of the documents of the tail."""
        return np.array(self._pending_groups, dtype="<u8")

    def count(self, text: str, tokens: NDArray[Any], unknown_tokens: int) -> None:
        """Count a document, which is added apart."""
        self._counts.update(documents=1, tokens=len(tokens), words=len(text.split()), characters=len(text))
        self._counts["unknown_tokens"] += unknown_tokens

    def finish(self) -> LanguageCounts:
        """Write the last whole sequences, and sum up."""
        self.flush()
        sequences = sum(shard.sequences for shard in self.shards)
        return LanguageCounts(**self._counts, sequences=sequences, shards=tuple(self.shards))

    def add(self, tokens: NDArray[Any], groups: Iterable[int] = ()) -> None:
        """Pack tokens after those before: of whole documents of these groups."""
        self._pending.append(tokens)
        self._pending_groups.extend(groups)
        self._num_pending += len(tokens)
        if self._num_pending >= max(SHARD_TOKENS, self.length):
            self.flush()

    def flush(self) -> None:
        """Write the whole sequences; what is left over waits for more."""
        tokens = np.concatenate(self._pending)
        sequences = len(tokens) // self.length
        self._pending = [tokens[sequences * self.length :].copy()]
        self._num_pending = len(self._pending[0])
        if not sequences:
            return
        if self._pending_groups:
            num_ends = int((tokens[: sequences * self.length] == self.separator).sum())
            # A shard that ends with a document has one more, without tokens.
            self._groups += [*self._pending_groups, self._pending_groups[-1]][: num_ends + 1]
            self._pending_groups = self._pending_groups[num_ends:]
        buffer = io.BytesIO()
        np.save(buffer, tokens[: sequences * self.length].reshape(sequences, self.length))
        name = f"{self.stem}-{len(self.shards):03d}.npy"
        shard = Shard(file=name, sequences=sequences, checksum=checksum(buffer.getvalue()))
        file = self.folder / name
        file.write_bytes(buffer.getvalue())
        if file.local is not None:
            remember(file.local, shard.checksum)
        self.shards.append(shard)
