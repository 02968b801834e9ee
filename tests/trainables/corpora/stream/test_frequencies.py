"""How often tokens are trained on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.corpus import VOCABULARY, write_corpus
from trainables.corpora.stream.packed import PackedCorpus
from trainables.corpora.stream.token_counts import TOKEN_COUNTS_NAME, token_counts
from trainables.corpora.stream.token_stream import TokenStream
from trainables.errors import InputError


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path, {"en": 300, "fr": 60})


def test_frequencies_are_the_stream_s(corpus):
    stream = TokenStream(corpus, 3, 0.3, 4.0)
    counts = np.bincount(stream.take(np.arange(40_000)).token_NL.ravel(), minlength=VOCABULARY)
    exact = np.exp(stream.log_unigram())
    assert exact.sum() == pytest.approx(1.0)
    assert np.abs(exact - counts / counts.sum()).max() < 0.0005
    assert counts[0] == 0
    assert exact[0] == pytest.approx(1 / (360 * 16 + VOCABULARY)), "a token that never came"
    np.testing.assert_array_equal(stream.log_unigram(), TokenStream(corpus, 4, 0.3, 4.0).log_unigram())


def test_tokens_that_are_never_asked_for(corpus):
    stream = TokenStream(corpus, 3, 0.3, 4.0)
    exact = np.exp(stream.log_unigram(never=(7, 9)))
    assert exact[[7, 9]] == pytest.approx([exact[0]] * 2)
    others = np.setdiff1d(np.arange(5, VOCABULARY), [7, 9])
    ratio = exact[others] / np.exp(stream.log_unigram())[others]
    assert ratio == pytest.approx(np.full(len(others), ratio[0]))


def brute_force(corpus, language):
    token_NL = corpus.take("train", language, np.arange(corpus.sequences("train", language)))
    return np.array([(token_NL == token).sum() for token in range(VOCABULARY)])


def test_counts_are_kept_where_a_job_made_them(corpus, monkeypatch):
    """A corpus that was prepared before has none: they are counted from its shards."""
    file = corpus.folder / TOKEN_COUNTS_NAME
    for language in corpus.languages:
        np.testing.assert_array_equal(corpus.token_counts.of(language), brute_force(corpus, language))
    assert not file.exists(), "only a preparation writes into a corpus"
    made = token_counts(corpus.manifest, corpus.folder, map)
    assert file.exists()
    monkeypatch.setattr("trainables.corpora.stream.token_counts._count", None)
    assert token_counts(corpus.manifest, corpus.folder) == made == corpus.token_counts
    assert PackedCorpus(corpus.folder).token_counts == made


@pytest.mark.parametrize("how", ["cut", "flipped", "of other text"])
def test_damaged_counts_are_counted_again(corpus, how):
    file = corpus.folder / TOKEN_COUNTS_NAME
    made = token_counts(corpus.manifest, corpus.folder, map)
    content = file.read_bytes()
    if how == "cut":
        file.write_bytes(content[:-9])
    elif how == "flipped":
        place = content.index(b"AAAA") + 1
        file.write_bytes(content[:place] + b"B" + content[place + 1 :])
    else:
        other = made.model_copy(update={"text": "other", "languages": {"en": b""}}).sealed()
        file.write_bytes(other.model_dump_json().encode())
    assert token_counts(corpus.manifest, corpus.folder, map) == made
    assert file.read_bytes() == content


def test_a_damaged_shard_is_not_counted(corpus):
    shard = corpus.folder / corpus.manifest.splits["train"]["fr"].shards[0].file
    shard.write_bytes(shard.read_bytes()[:-2] + b"\x09\x00")
    with pytest.raises(InputError, match=r"fr-00000\.npy of the prepared corpus is damaged"):
        _ = corpus.token_counts
