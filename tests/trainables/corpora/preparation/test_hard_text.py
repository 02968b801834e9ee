"""Text as it comes, through the whole preparation: nothing of it is lost, and nothing added."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Encoding, Tokenizer
from transformers import PreTrainedTokenizerFast

from trainables.corpora.config import CorporaConfig, TokenizerConfig
from trainables.corpora.preparation import long_documents
from trainables.corpora.preparation import prepare as preparation
from trainables.corpora.preparation.long_documents import encode_long
from trainables.corpora.preparation.prepare import prepare
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.stream.manifest import SPLITS, Manifest
from trainables.corpora.stream.packed import PackedCorpus
from trainables.storage import Location

LENGTH = 8
LARGE_BYTES = int(os.environ.get("H2H_TEST_DOCUMENT_BYTES", 50_000_000))

HARD = [
    "NUL \0 inside \0\0",
    "of Windows\r\nof Unix\nof old Macintosh\rmixed\n\n\n",
    "\r\nline ends before and after\r\n",
    "\ufeffa byte order mark, and the separators \u2028 \u2029 \x85 \x1c of Unicode",
    "ünïcödé 日本語 हिन्दी \U0001f600 e\u0301 \u202eright to left",
    "\ufffd\uffff\U0010ffff a replacement character and no characters",
    "[MASK][SEP]<unk> spelt out",
    "x",
]
EMPTY = ["", " ", "\n\t\r\n", "\u3000"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 8))) for _ in range(2000)]
    texts = [" ".join(generator.choices(words, k=50)) for _ in range(200)]
    size = {"type": "byte_bpe", "vocabulary_size": 1000}
    train = TokenizerConfig.model_validate({"train": size}).train
    assert train is not None
    return train_tokenizer(train, iter(texts))


@pytest.fixture(autouse=True)
def in_this_process(ray_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "run_job", lambda task, items: map(task, items))


def prepared(folder: Path, tokenizer: PreTrainedTokenizerFast, pattern: str) -> tuple[Manifest, str]:
    """The manifest, and all tokens of all splits decoded, each split's from its beginning."""
    source = {"language": "en", "files": f"{folder}/{pattern}"}
    shares = {"validation_share": 0.2, "test_share": 0.2, "sequence_length": LENGTH, "maximum_overlap": 1}
    corpora = CorporaConfig.model_validate({"sources": [source], **shares})
    manifest = prepare(corpora, tokenizer, Location(folder / "store"))
    corpus = PackedCorpus(Location(folder / "store") / manifest.fingerprint)
    return manifest, "".join(
        tokenizer.decode(corpus.take(split, "en", np.arange(corpus.sequences(split, "en"))).ravel()) for split in SPLITS
    )


def bare_tokens(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> int:
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    return sum(len(backend.encode(text, add_special_tokens=False)) for text in texts)


def tokens_of(manifest: Manifest) -> int:
    """All tokens but the separators."""
    return sum(counts["en"].tokens - counts["en"].documents for counts in manifest.splits.values())


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_hard_characters_in_lines_of_json(tmp_path, tokenizer, line_end) -> None:
    """Escaped or as they are, between records of both line ends and blank lines, the last without an end."""
    texts = [f"{number}: {text}" for number, text in enumerate(HARD * 40)]
    lines = []
    for number, text in enumerate(texts):
        lines.append(json.dumps({"text": text}, ensure_ascii=number % 2 == 0).encode())
        lines += [b"", b" \t"] if number % 7 == 0 else []
    lines += [json.dumps({"text": text}).encode() for text in [*EMPTY, texts[-1] + " end"]]
    (tmp_path / "a.jsonl").write_bytes(line_end.join(lines))
    manifest, decoded = prepared(tmp_path, tokenizer, "a.jsonl")
    texts.append(texts[-1] + " end")
    assert manifest.sources[0].documents == len(texts)
    assert manifest.sources[0].empty == len(EMPTY)
    assert manifest.sources[0].malformed == 0
    assert tokens_of(manifest) == bare_tokens(tokenizer, texts)
    normalize = tokenizer.backend_tokenizer.normalizer.normalize_str  # the tokenizer's own: e and accent are one
    missing = [text for text in texts if normalize(text) + "[SEP]" not in decoded]
    assert len(missing) <= len(SPLITS), "what fills no sequence at the end of each split"


def test_one_document_in_each_file_one_line_each(tmp_path, tokenizer) -> None:
    texts = [f"document {number} of one line" for number in range(60)]
    for number, text in enumerate(texts):
        end = "\n" if number % 2 else ""
        (tmp_path / f"{number:02d}.txt").write_text(text + end)
    manifest, decoded = prepared(tmp_path, tokenizer, "*.txt")
    assert manifest.sources[0].documents == len(texts)
    assert tokens_of(manifest) == bare_tokens(tokenizer, texts)
    assert sum(text + "[SEP]" in decoded for text in texts) >= len(texts) - len(SPLITS)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_large_document(tmp_path, tokenizer) -> None:
    """Longer than a part and than a shard: whole, between small ones, with the bare tokenizer's tokens."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 8))) for _ in range(5000)]
    paragraph = " ".join(generator.choices(words, k=20_000))
    copies = LARGE_BYTES // len(paragraph)
    texts = [f"small {number}" for number in range(200)]
    # Words are tokenised apart, so another copy adds what the second one added: the bare tokenizer needs gigabytes.
    one, two = (bare_tokens(tokenizer, [" ".join([paragraph] * count)]) for count in (1, 2))
    expected = bare_tokens(tokenizer, texts) + one + (copies - 1) * (two - one)
    large = " ".join([paragraph] * copies)
    texts.insert(100, large)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    manifest, _ = prepared(tmp_path, tokenizer, "a.jsonl")
    assert (manifest.sources[0].documents, manifest.sources[0].malformed) == (201, 0)
    characters = sum(counts["en"].characters for counts in manifest.splits.values())
    assert characters == sum(map(len, texts))
    assert tokens_of(manifest) == expected


@pytest.mark.parametrize("kind", ["byte_bpe", "bpe", "unigram", "wordpiece"])
def test_windows_of_a_long_document_give_the_tokens_of_the_whole(kind: str, monkeypatch) -> None:
    """Of text in several scripts, without spaces, and of one endless word, for which the text is tokenised whole."""
    monkeypatch.setattr(long_documents, "WINDOW_CHARACTERS", 2000)
    monkeypatch.setattr(long_documents, "OVERLAP_CHARACTERS", 100)
    generator = random.Random(0)
    alphabet = "abcdefg ABC éü\u0301日本語हि\n\r\t\0  \U0001f600.,'-123"
    drawn = ["".join(generator.choices(alphabet, k=7000)) for _ in range(20)]
    drawn += ["".join(generator.choices("ab日本", k=7000)), "a" * 7001, " " * 7001, "ab " * 2500, "[MASK]" * 1200]
    size = {"type": kind, "vocabulary_size": 400}
    train = TokenizerConfig.model_validate({"train": size}).train
    assert train is not None
    backend = train_tokenizer(train, iter(drawn)).backend_tokenizer
    backend.encode_special_tokens = True
    encode, lengths = Tokenizer.encode, list[int]()

    class Counted:
        def encode(self, text: str, **options: bool) -> Encoding:
            lengths.append(len(text))
            return encode(backend, text, **options)

    for text in drawn:
        expected = backend.encode(text, add_special_tokens=False).ids
        assert encode_long(Counted(), text).tolist() == expected
    assert sum(length > 4000 for length in lengths) < len(drawn) / 2, "most are never tokenised whole"
