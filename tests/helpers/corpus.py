"""A packed corpus made by hand, for tests that need no text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.corpora.stream.checksums import checksum
from trainables.corpora.stream.manifest import FORMAT_VERSION, LanguageCounts, Manifest, Shard
from trainables.corpora.stream.packed import PackedCorpus
from trainables.storage import Location

VOCABULARY = 200
LENGTH = 16
SEPARATOR = 3


def write_corpus(folder: Path, sizes: dict[str, int], seed: int = 0, *, separated: bool = False) -> PackedCorpus:
    """Languages with so many training sequences, each a document if ``separated``; token t is followed by t + 1 more
    often than not."""
    rng = np.random.default_rng(seed)
    splits: dict[str, dict[str, LanguageCounts]] = {"train": {}, "validation": {}, "test": {}}
    for split, share in (("train", 1.0), ("validation", 0.25), ("test", 0.25)):
        for language, size in sizes.items():
            count = max(8, int(size * share))
            tokens = np.empty((count, LENGTH), dtype=np.uint16)
            tokens[:, 0] = rng.integers(5, VOCABULARY, count)
            for column in range(1, LENGTH):
                follows = 5 + (tokens[:, column - 1] - 5 + 1) % (VOCABULARY - 5)
                tokens[:, column] = np.where(rng.random(count) < 0.8, follows, rng.integers(5, VOCABULARY, count))
            if separated:
                tokens[:, -1] = SEPARATOR
            name = f"shards/{split}/{language}-00000.npy"
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, tokens)
            shard = Shard(file=name, sequences=count, checksum=checksum(path.read_bytes()))
            splits[split][language] = LanguageCounts(
                documents=count, tokens=count * LENGTH, sequences=count, shards=(shard,)
            )
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint="small",
        vocabulary_size=VOCABULARY,
        sequence_length=LENGTH,
        dtype="uint16",
        pad_token=0,
        mask_token=4,
        separator_token=SEPARATOR,
        special_tokens=(0, 1, 2, 3, 4),
        languages=tuple(sorted(sizes)),
        splits=splits,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return PackedCorpus(Location(folder))
