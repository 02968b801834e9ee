"""Packing: a part of the sources -> rows of tokens in shards, by split. One task of the preparation."""

from __future__ import annotations

import hashlib
import io
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from trainables.config import Config
from trainables.corpora.manifest import SPLITS, Shard, Split
from trainables.corpora.sources import Portion, SourceConfig, read_documents
from trainables.storage import Location

if TYPE_CHECKING:
    from trainables.corpora.config import CorporaConfig

SHARD_TOKENS = 1 << 24
"""A shard is written when a split has so many tokens, which bounds a task's memory."""

DOCUMENTS_PER_BATCH = 1024
"""How many documents are tokenised in one call."""


class Part(Config):
    """What one task prepares: portions of one source."""

    number: int
    """Among the language's parts."""

    source: SourceConfig
    """Where the portions are from."""

    portions: tuple[Portion, ...]
    """Read one after another."""


class PartCounts(Config):
    """What one task wrote of one split."""

    split: Split
    language: str
    documents: int
    tokens: int
    shards: tuple[Shard, ...]


def split_of(document_id: str, validation_share: float, test_share: float) -> Split:
    """The split a document belongs to: by its id alone, so that new text never moves old documents."""
    digest = hashlib.blake2b(document_id.encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    if place < validation_share:
        return "validation"
    return "test" if place < validation_share + test_share else "train"


def pack_part(
    part: Part,
    tokenizer: Tokenizer,
    separator: int,
    corpora: CorporaConfig,
    dtype: np.dtype[Any],
    folder: Location,
) -> list[PartCounts]:
    """Tokenise and pack a part's documents and write its shards.

    Args:
        part: what to read.
        tokenizer: makes the tokens.
        separator: id of the token after every document.
        corpora: the sequence length and the splits' shares.
        dtype: of the shards.
        folder: the corpus's.

    Returns:
        The counts of each split.

    Raises:
        InputError: a portion cannot be read.
    """
    language = part.source.language
    packers = {
        split: _Packer(folder, f"shards/{split}/{language}-{part.number:05d}", corpora.sequence_length, dtype)
        for split in SPLITS
    }
    num_documents = dict.fromkeys(SPLITS, 0)
    documents = (document for portion in part.portions for document in read_documents(portion, part.source))
    while batch := list(itertools.islice(documents, DOCUMENTS_PER_BATCH)):
        encodings = tokenizer.encode_batch_fast(
            [document.text for document in batch], add_special_tokens=False
        )
        for document, encoding in zip(batch, encodings, strict=True):
            split = split_of(document.document_id, corpora.validation_share, corpora.test_share)
            num_documents[split] += 1
            packers[split].add(np.array([*encoding.ids, separator], dtype=dtype))
    for packer in packers.values():
        packer.flush()
    return [
        PartCounts(
            split=split,
            language=language,
            documents=num_documents[split],
            tokens=packer.tokens,
            shards=tuple(packer.shards),
        )
        for split, packer in packers.items()
    ]


class _Packer:
    """Joins documents' tokens and writes them as rows of ``length``, carrying the remainder."""

    def __init__(self, folder: Location, stem: str, length: int, dtype: np.dtype[Any]) -> None:
        self.folder, self.stem, self.length = folder, stem, length
        self.tokens = 0
        self.shards: list[Shard] = []
        self._pending = [np.empty(0, dtype)]
        self._num_pending = 0

    def add(self, tokens: NDArray[Any]) -> None:
        self._pending.append(tokens)
        self._num_pending += len(tokens)
        self.tokens += len(tokens)
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
        buffer = io.BytesIO()
        np.save(buffer, tokens[: sequences * self.length].reshape(sequences, self.length))
        name = f"{self.stem}-{len(self.shards):03d}.npy"
        (self.folder / name).write_bytes(buffer.getvalue())
        checksum = hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()
        self.shards.append(Shard(file=name, sequences=sequences, checksum=checksum))
