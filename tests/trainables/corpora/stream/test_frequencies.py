"""How often tokens are trained on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.corpus import VOCABULARY, write_corpus
from trainables.corpora.stream.token_stream import TokenStream, log_frequencies


def test_frequencies_are_the_stream_s(tmp_path):
    stream = TokenStream(write_corpus(tmp_path, {"en": 300, "fr": 60}), 3, 0.3, 4.0)
    counts = np.bincount(stream.take(np.arange(20_000)).token_NL.ravel(), minlength=VOCABULARY)
    estimated = np.exp(log_frequencies(stream))
    assert estimated.sum() == pytest.approx(1.0)
    assert np.abs(estimated - counts / counts.sum()).max() < 0.001
