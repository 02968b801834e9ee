"""Tokenizers: reproducible, reversible, and clear about what a text supports."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pydantic import ValidationError

from trainables.corpora.config import TokenizerConfig, TrainTokenizer
from trainables.corpora.preparation.tokenizer_training import train_tokenizer
from trainables.corpora.tokenizers import (
    SPECIAL_TOKENS,
    load_tokenizer,
    require_mask_token,
    separator_token,
    tokenizer_digest,
)
from trainables.errors import InputError

TYPES = ["unigram", "bpe", "byte_bpe", "wordpiece"]


def sample(num_documents: int = 400) -> list[str]:
    """Texts of invented words in several scripts; some characters are rare."""
    generator = random.Random(0)
    syllables = ["ka", "lo", "mi", "sun", "тре", "ба", "日", "本", "語", "हि", "न्दी", "é"]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(900)]
    texts = [" ".join(generator.choices(words, k=30)) + ".\n  Two spaces" for _ in range(num_documents)]
    return texts + [chr(0x4E00 + number) for number in range(60)]


def train(type: str, size: int = 400, texts: list[str] | None = None):
    config = TrainTokenizer.model_validate({"type": type, "vocabulary_size": size})
    return train_tokenizer(config, iter(texts if texts is not None else sample()))


@pytest.mark.parametrize("type", TYPES)
def test_special_tokens_and_size(type: str) -> None:
    tokenizer = train(type)
    assert len(tokenizer) == 400
    assert tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id) == (0, 1, 2)
    assert (tokenizer.sep_token_id, tokenizer.eos_token_id, tokenizer.mask_token_id) == (3, 3, 4)
    assert separator_token(tokenizer) == 3
    assert tokenizer.unk_token_id not in tokenizer.encode(sample()[0], add_special_tokens=False)


@pytest.mark.parametrize("type", ["unigram", "bpe", "byte_bpe"])
def test_decoding_restores_the_text(type: str) -> None:
    tokenizer = train(type)
    for text in [*sample()[:5], "mi  lo . mi", "mi\nlo"]:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    wide = tokenizer.encode("ｋａ", add_special_tokens=False)
    assert wide == tokenizer.encode("ka", add_special_tokens=False), "NFKC folds full-width letters"


@pytest.mark.parametrize("type", TYPES)
def test_the_same_text_gives_the_same_tokenizer(type: str) -> None:
    assert len({tokenizer_digest(train(type)) for _ in range(3)}) == 1
    assert tokenizer_digest(train(type)) != tokenizer_digest(train(type, size=401))


@pytest.mark.parametrize("type", TYPES)
def test_saving_and_loading_keeps_everything(type: str, tmp_path: Path) -> None:
    tokenizer = train(type)
    digest = tokenizer_digest(tokenizer)
    tokenizer("a text", padding="max_length", truncation=True, max_length=4)
    assert tokenizer_digest(tokenizer) == digest, "padding is a setting of a call"
    tokenizer.save_pretrained(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        loaded = load_tokenizer(str(path))
        assert tokenizer_digest(loaded) == digest
        assert loaded.encode(sample()[0]) == tokenizer.encode(sample()[0])
        assert (loaded.eos_token_id, loaded.mask_token_id) == (3, 4)


@pytest.mark.parametrize("type", TYPES)
def test_a_vocabulary_too_large_says_what_the_text_supports(type: str) -> None:
    texts = sample(20)
    with pytest.raises(InputError, match="larger than the text supports") as caught:
        train(type, 50_000, texts)
    supported = int(caught.value.remedy.split("=")[1].split(",")[0])
    assert "--set tokenizer.train.vocabulary_size=" in caught.value.remedy
    assert len(train(type, supported, texts)) == supported, "the remedy works"


@pytest.mark.parametrize("type", TYPES)
def test_a_vocabulary_smaller_than_the_alphabet(type: str) -> None:
    texts = [chr(0x4E00 + number) * 2 for number in range(500)]
    with pytest.raises(InputError, match="smaller than the text's alphabet") as caught:
        train(type, 120, texts)
    assert "--set tokenizer.train.vocabulary_size=" in caught.value.remedy


@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_no_text(texts: list[str]) -> None:
    with pytest.raises(InputError, match="no text to train a tokenizer on"):
        train("unigram", 100, texts)


def test_exactly_one_of_train_and_pretrained() -> None:
    for fields in ({}, {"train": {}, "pretrained": "x"}):
        with pytest.raises(ValidationError, match="exactly one"):
            TokenizerConfig.model_validate(fields)


def test_a_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no tokenizer"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new"), [('"id": 0', '"id": -135'), ('"id": 0', '"id": "x"'), ("{", "["), ('"type"', '"tipe"'), ("}", "")]
)
def test_a_damaged_tokenizer(tmp_path: Path, old: str, new: str) -> None:
    """Whatever the library in Rust raises."""
    train("unigram").save_pretrained(tmp_path)
    content = (tmp_path / "tokenizer.json").read_text()
    assert old in content
    (tmp_path / "tokenizer.json").write_text(content.replace(old, new))
    with pytest.raises(InputError, match="there is no tokenizer"):
        load_tokenizer(str(tmp_path))


def without(folder: Path, dropped: list[str]) -> str:
    train("unigram").save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    settings = {key: value for key, value in json.loads(file.read_text()).items() if key not in dropped}
    file.write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    return str(folder)


def test_a_tokenizer_without_the_tokens_we_need(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no separator"):
        load_tokenizer(without(tmp_path / "separator", ["sep_token", "eos_token"]))
    assert load_tokenizer(without(tmp_path / "padding", ["pad_token"])).pad_token == "[SEP]"
    tokenizer = load_tokenizer(without(tmp_path / "mask", ["mask_token"]))
    with pytest.raises(InputError, match="no mask token") as error:
        require_mask_token(tokenizer, "headless_mlm")
    assert "headless_mlm" in error.value.why
