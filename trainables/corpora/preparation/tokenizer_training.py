"""Training a tokenizer: the same text in the same order gives the same one."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from trainables.corpora.config import TrainTokenizer
from trainables.corpora.tokenizers import SEP, SPECIAL_ROLES, SPECIAL_TOKENS, UNK
from trainables.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def train_tokenizer(config: TrainTokenizer, texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on texts, which are held in memory.

    Raises InputError: there is no text, or it supports no vocabulary so large, or has more characters than that.
    """
    from transformers import PreTrainedTokenizerFast  # seconds to import: not for reading a configuration

    normalizer = normalizers.NFKC()
    sample = [normalizer.normalize_str(text) for text in texts]
    if not any(text.strip() for text in sample):
        raise InputError("there is no text to train a tokenizer on", where="tokenizer.train")
    alphabet, where = _alphabet(config.type, sample), "tokenizer.train.vocabulary_size"
    if config.vocabulary_size < len(alphabet) + len(SPECIAL_TOKENS):
        why = f"{config.vocabulary_size} pieces were asked for, its characters need {len(alphabet)} "
        why += f"and {len(SPECIAL_TOKENS)} are special tokens"
        remedy = f"--set {where}={2 * len(alphabet)}"
        remedy += "" if config.type == "byte_bpe" else ", or --set tokenizer.train.type=byte_bpe"
        raise InputError("a vocabulary smaller than the text's alphabet", where=where, why=why, remedy=remedy)
    tokenizer, trainer = _untrained(config, alphabet)
    tokenizer.train_from_iterator(sample, trainer, length=len(sample))
    num_pieces = tokenizer.get_vocab_size()
    if num_pieces < config.vocabulary_size:
        what, remedy = "a vocabulary larger than the text supports", f"--set {where}={num_pieces}, or more text"
        why = f"{config.vocabulary_size} pieces were asked for, the text supports {num_pieces}"
        raise InputError(what, where=where, why=why, remedy=remedy)
    if config.type == "unigram":
        tokenizer = _canonical(tokenizer)
    elif config.type == "wordpiece":
        tokenizer = _without_special_alphabet(tokenizer)
    roles = dict(zip(SPECIAL_ROLES, SPECIAL_TOKENS, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **roles, eos_token=SEP, clean_up_tokenization_spaces=False
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
    size = config.vocabulary_size
    options: dict[str, Any] = {"vocab_size": size, "special_tokens": SPECIAL_TOKENS, "show_progress": False}
    trainer: Any
    pre_tokenizer: Any = pre_tokenizers.Metaspace()
    decoder: Any = decoders.Metaspace()
    if config.type == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        # 19 s instead of 95 s for 16,000 pieces from 10 MB in 16 languages, on two cores.
        options |= {"seed_size": 10 * size, "shrinking_factor": 0.5, "n_sub_iterations": 1}
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
