"""A packed corpus of token ids drawn by Zipf's law, to try things out without text."""

from pathlib import Path

import numpy as np

from trainables.corpora.stream.manifest import FORMAT_VERSION, SPLITS, LanguageCounts, Manifest, Shard, token_dtype
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.tokenizers import SPECIAL_TOKENS
from trainables.hashing import checksum
from trainables.storage import Location

_EXPONENT = 1.06
"""At V 32,768 about as many of 4,064 targets are different as in English text under a byte-level BPE of that size, 37%
(exponent 1 gives 45%)."""
LAW = f"Zipf's law, exponent {_EXPONENT}"


def zipf_corpus(folder: Path, vocabulary_size: int, sequence_length: int, sequences: int) -> PackedCorpus:
    """One language; the r-th id after the special tokens has probability proportional to r^-exponent.

    The training split has ``sequences``, each of the others eight.
    """
    rng = np.random.default_rng(0)
    dtype = token_dtype(vocabulary_size)
    num_special = len(SPECIAL_TOKENS)
    probability = np.arange(1.0, vocabulary_size - num_special + 1) ** -_EXPONENT
    splits = {}
    for split in SPLITS:
        count = sequences if split == "train" else 8
        draw = rng.choice(len(probability), (count, sequence_length), p=probability / probability.sum())
        file = folder / f"shards/{split}/zipf-00000.npy"
        file.parent.mkdir(parents=True)
        np.save(file, (draw + num_special).astype(dtype))
        name, content = file.relative_to(folder).as_posix(), checksum(file.read_bytes())
        shards = (Shard(file=name, sequences=count, checksum=content),)
        counts = LanguageCounts(documents=count, tokens=draw.size, sequences=count, shards=shards)
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
        special_tokens=tuple(range(num_special)),
        languages=("zipf",),
        splits=splits,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return PackedCorpus(Location(folder))
