"""A packed corpus of token ids drawn by Zipf's law, to try things out without text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.corpora.stream.checksums import checksum
from trainables.corpora.stream.manifest import (
    FORMAT_VERSION,
    SPLITS,
    LanguageCounts,
    Manifest,
    Shard,
    Split,
    token_dtype,
)
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import SPECIAL_TOKENS
from trainables.storage import Location

EXPONENT = 1.06
"""At V 32,768 about as many of 4,064 targets are different as in English text under a byte-level BPE of that size, 37%
(exponent 1 gives 45%)."""
LAW = f"Zipf's law, exponent {EXPONENT}"
NUM_SPECIAL = len(SPECIAL_TOKENS)


def zipf_corpus(folder: Path, vocabulary_size: int, sequence_length: int, sequences: int) -> PackedCorpus:
    """One language; the r-th id after the special tokens has probability proportional to r^-EXPONENT.

    Args:
        sequences: of the training split; there are eight in each of the others.
    """
    rng = np.random.default_rng(0)
    dtype = token_dtype(vocabulary_size)
    probability = np.arange(1.0, vocabulary_size - NUM_SPECIAL + 1) ** -EXPONENT
    splits: dict[Split, dict[str, LanguageCounts]] = {}
    for split in SPLITS:
        count = sequences if split == "train" else 8
        draw = rng.choice(len(probability), (count, sequence_length), p=probability / probability.sum())
        name = f"shards/{split}/zipf-00000.npy"
        (folder / name).parent.mkdir(parents=True)
        np.save(folder / name, (draw + NUM_SPECIAL).astype(dtype))
        shard = Shard(file=name, sequences=count, checksum=checksum((folder / name).read_bytes()))
        counts = LanguageCounts(documents=count, tokens=draw.size, sequences=count, shards=(shard,))
        splits[split] = {"zipf": counts}
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint="zipf",
        vocabulary_size=vocabulary_size,
        sequence_length=sequence_length,
        dtype=dtype,
        pad_token=0,
        mask_token=4,
        separator_token=3,
        special_tokens=tuple(range(NUM_SPECIAL)),
        languages=("zipf",),
        splits=splits,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return PackedCorpus(Location(folder))
