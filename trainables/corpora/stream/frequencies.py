"""How often each token is trained on: an estimate from the stream itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.stream.token_stream import TokenStream

SAMPLE_SEQUENCES = 1 << 14
"""Sequences that are counted: the first of the stream, of each language as many as the mixture has."""


def log_frequencies(stream: TokenStream) -> NDArray[np.float64]:
    """Log-probability of each token in the training stream, (V,); one is added to every count."""
    size = stream.corpus.manifest.vocabulary_size
    count_V = np.ones(size, dtype=np.int64)
    for first in range(0, SAMPLE_SEQUENCES, 1024):
        count_V += np.bincount(stream.take(first + np.arange(1024)).token_NL.ravel(), minlength=size)
    log_frequency_V: NDArray[np.float64] = np.log(count_V / count_V.sum())
    return log_frequency_V
