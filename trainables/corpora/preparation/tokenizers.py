"""Tokenizers: trained on a sample of the corpora, or loaded from a folder or the Hugging Face hub."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from trainables.config import Config
from trainables.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
"""Ids 0 to 4 of every trained tokenizer. [SEP] ends a document, for encoders and decoders alike."""

_SPACE_MARK = "▁"
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class TrainTokenizer(Config):
    """How to train a tokenizer."""

    type: Literal["unigram", "bpe", "byte_bpe", "wordpiece"] = "unigram"
    """The segmentation model. All but wordpiece restore the text, up to Unicode's NFKC, when decoded."""

    vocabulary_size: int = Field(default=8000, ge=100)
    """Pieces, special tokens included."""

    sample_bytes: int = Field(default=10_000_000, ge=1000)
    """How much text to train on, over all languages."""


class TokenizerConfig(Config):
    """A tokenizer: exactly one of ``train`` and ``pretrained``."""

    train: TrainTokenizer | None = None
    """Train one on the corpora's training split."""

    pretrained: str | None = None
    """A local folder, a ``tokenizer.json`` file or a name on the Hugging Face hub. Its code is never run."""

    @model_validator(mode="after")
    def _exactly_one(self) -> TokenizerConfig:
        if (self.train is None) == (not self.pretrained):
            raise ValueError("set exactly one of tokenizer.train and tokenizer.pretrained")
        return self


def train_tokenizer(config: TrainTokenizer, texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """Train a tokenizer; the same texts in the same order give the same one.

    Args:
        config: the model and its size.
        texts: the sample; held in memory.

    Raises:
        InputError: there is no text, or it supports no vocabulary so large, or has more characters than that.
    """
    from transformers import PreTrainedTokenizerFast  # seconds to import: not for reading a configuration

    normalizer = normalizers.NFKC()
    sample = [normalizer.normalize_str(text) for text in texts]
    if not any(text.strip() for text in sample):
        raise InputError("there is no text to train a tokenizer on", where="tokenizer.train")
    alphabet = _alphabet(config.type, sample)
    if config.vocabulary_size < len(alphabet) + len(SPECIAL_TOKENS):
        raise InputError(
            "a vocabulary smaller than the text's alphabet",
            where="tokenizer.train.vocabulary_size",
            why=f"{config.vocabulary_size} pieces were asked for, its characters need {len(alphabet)} "
            f"and {len(SPECIAL_TOKENS)} are special tokens",
            remedy=f"--set tokenizer.train.vocabulary_size={2 * len(alphabet)}"
            + ("" if config.type == "byte_bpe" else ", or --set tokenizer.train.type=byte_bpe"),
        )
    tokenizer, trainer = _untrained(config, alphabet)
    tokenizer.train_from_iterator(sample, trainer, length=len(sample))
    num_pieces = tokenizer.get_vocab_size()
    if num_pieces < config.vocabulary_size:
        raise InputError(
            "a vocabulary larger than the text supports",
            where="tokenizer.train.vocabulary_size",
            why=f"{config.vocabulary_size} pieces were asked for, the text supports {num_pieces}",
            remedy=f"--set tokenizer.train.vocabulary_size={num_pieces}, or more text",
        )
    if config.type == "unigram":
        tokenizer = _canonical(tokenizer)
    elif config.type == "wordpiece":
        tokenizer = _without_special_alphabet(tokenizer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        eos_token=SEP,
        clean_up_tokenization_spaces=False,
    )


def _alphabet(type: str, sample: list[str]) -> list[str]:
    """The pieces that every vocabulary of this type starts from, sorted."""
    if type == "byte_bpe":
        return sorted(pre_tokenizers.ByteLevel.alphabet())
    characters = sorted(set().union(*sample))
    if type == "wordpiece":
        characters = [character for character in characters if not character.isspace()]
        return characters + ["##" + character for character in characters if unicodedata.category(character)[0] != "P"]
    return characters


def _untrained(config: TrainTokenizer, alphabet: list[str]) -> tuple[Tokenizer, Any]:
    options: dict[str, Any] = {
        "vocab_size": config.vocabulary_size,
        "special_tokens": SPECIAL_TOKENS,
        "show_progress": False,
    }
    tokenizer: Tokenizer
    trainer: Any
    pre_tokenizer: Any = pre_tokenizers.Metaspace()
    decoder: Any = decoders.Metaspace()
    if config.type == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        # 19 s instead of 95 s for 16,000 pieces from 10 MB in 16 languages, on two cores.
        options |= {"seed_size": 10 * config.vocabulary_size, "shrinking_factor": 0.5, "n_sub_iterations": 1}
        trainer = trainers.UnigramTrainer(**options, unk_token=UNK)
    elif config.type == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNK))
        trainer = trainers.BpeTrainer(**options)
    elif config.type == "byte_bpe":
        tokenizer = Tokenizer(models.BPE())
        pre_tokenizer, decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(**options, initial_alphabet=alphabet)
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNK))
        pre_tokenizer, decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(cleanup=False)
        # The trainer numbers "##" characters as its hash map has them, and breaks ties by number: fix them.
        options["special_tokens"] = SPECIAL_TOKENS + [piece for piece in alphabet if len(piece) == 3]
        trainer = trainers.WordPieceTrainer(**options)
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = (normalizers.NFKC(), pre_tokenizer, decoder)
    return tokenizer, trainer


def _canonical(tokenizer: Tokenizer) -> Tokenizer:
    """A unigram tokenizer without the accidents of its training.

    The trainer walks hash maps: equal runs differ in the scores' last digits, in the order of equal
    scores, and in how they number the characters too rare for a score of their own (lowest score + 0.0001 n).
    """
    content = json.loads(tokenizer.to_str())
    pieces = content["model"]["vocab"][len(SPECIAL_TOKENS) :]
    lowest = min(score for _, score in pieces)
    rare = lowest + 1e-4 * (1 + sum(len(piece) == 1 for piece, _ in pieces))
    scores = {piece: lowest if len(piece) == 1 and score < rare else score for piece, score in pieces}
    rounded = [[piece, round(score * 1024) / 1024] for piece, score in scores.items()]
    content["model"]["vocab"][len(SPECIAL_TOKENS) :] = sorted(rounded, key=lambda item: (-item[1], item[0]))
    return Tokenizer.from_str(json.dumps(content))


def _without_special_alphabet(tokenizer: Tokenizer) -> Tokenizer:
    """A wordpiece tokenizer whose only special tokens are the real ones."""
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][: len(SPECIAL_TOKENS)]
    return Tokenizer.from_str(json.dumps(content))


def load_tokenizer(path_or_name: str) -> PreTrainedTokenizerFast:
    """A tokenizer from a folder, a ``tokenizer.json`` file or the Hugging Face hub.

    Where it has no padding token the separator pads.

    Raises:
        InputError: there is none, or it lacks a separator token.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    path = Path(path_or_name).expanduser()
    name = str(path.parent if path.name == "tokenizer.json" else path) if path.exists() else path_or_name
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"there is no tokenizer {path_or_name}",
            where="tokenizer.pretrained",
            why=str(error).strip().split("\n")[0],
            remedy="a folder with tokenizer.json and tokenizer_config.json, or a name on the hub "
            "(which needs the network)",
        ) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(
            f"the tokenizer {path_or_name} has no fast version",
            where="tokenizer.pretrained",
            remedy="choose one with a tokenizer.json",
        )
    separator = tokenizer.sep_token or tokenizer.eos_token
    if separator is None:
        raise InputError(
            f"the tokenizer {path_or_name} has no separator (sep or eos token)",
            where="tokenizer.pretrained",
            why="it ends a document where documents are packed",
            remedy="name one in its tokenizer_config.json, or train a tokenizer: tokenizer.train",
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = separator
    return tokenizer


def require_mask_token(tokenizer: PreTrainedTokenizerFast, objective: str) -> None:
    """Refuse a tokenizer without one for a masked objective.

    Raises:
        InputError: it has none.
    """
    if tokenizer.mask_token is None:
        raise InputError(
            "the tokenizer has no mask token",
            where="tokenizer.pretrained",
            why=f"the objective {objective} masks tokens",
            remedy="name one in its tokenizer_config.json, or train a tokenizer: tokenizer.train",
        )


def separator_token(tokenizer: PreTrainedTokenizerFast) -> int:
    """Id of the token that ends a document: the separator, or where there is none the end of the text."""
    token = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    assert isinstance(token, int)
    return token


def token_bytes(tokenizer: PreTrainedTokenizerFast) -> NDArray[np.int64]:
    """How many UTF-8 bytes of text each token stands for, (V,), by id; special tokens stand for none.

    The mark of a word's beginning is one space. So the tokens of a text stand for the text, normalised, and for the
    space that most tokenizers put before it. Wordpiece forgets white space: each piece that begins a word, or is a
    punctuation mark, counts one space.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    model = content["model"]
    rules = json.dumps([content["pre_tokenizer"], content["decoder"]])
    byte_level = '"ByteLevel"' in rules
    continuation = model.get("continuing_subword_prefix") if model["type"] == "WordPiece" else None

    def size(piece: str) -> int:
        if byte_level:  # one character a byte
            return len(piece)
        if model.get("byte_fallback") and _BYTE.fullmatch(piece):
            return 1
        if continuation is not None:
            word = piece.removeprefix(continuation)
            return len(word.encode()) + (word == piece)
        return len(piece.replace(_SPACE_MARK, " ").encode())

    vocabulary = tokenizer.get_vocab()
    size_V = np.zeros(max(vocabulary.values()) + 1, dtype=np.int64)
    for piece, token in vocabulary.items():
        size_V[token] = size(piece)
    for added in content["added_tokens"]:  # found in the text as they are written
        size_V[added["id"]] = 0 if added["special"] else len(added["content"].encode())
    size_V[tokenizer.all_special_ids] = 0
    return size_V


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """blake2b of what decides a text's tokens; padding and truncation, set by earlier calls, do not count."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content.pop("padding"), content.pop("truncation")
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
