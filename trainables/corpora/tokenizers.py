"""Tokenizers, loaded from a folder or the Hugging Face hub, and what their tokens stand for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import is_here, local_path

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
"""Ids 0 to 4 of every trained tokenizer. [SEP] ends a document, for encoders and decoders alike."""
SPECIAL_ROLES = ["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"]  # theirs, in transformers' words
UNK, SEP = SPECIAL_TOKENS[1], SPECIAL_TOKENS[3]

_WHERE = "tokenizer.pretrained"
_NAME_ONE = "name one in its tokenizer_config.json, or train a tokenizer: tokenizer.train"
_SPACE_MARK = "▁"
_BYTE = re.compile("<0x[0-9A-F]{2}>")


def load_tokenizer(path_or_name: str) -> PreTrainedTokenizerFast:
    """A tokenizer from a folder, a ``tokenizer.json`` file or the Hugging Face hub.

    Where it has no padding token the separator pads. Raises InputError: there is none, or it lacks a separator token.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        name = path_or_name
        if is_here(name):
            path = local_path(name)
            name = str(path.parent if path.name == "tokenizer.json" else path)
        tokenizer = AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
    except Exception as error:  # the library in Rust has no narrower class for files that are damaged
        why = str(error).strip().split("\n")[0]
        remedy = "a folder with tokenizer.json and tokenizer_config.json, or a name on the hub, which needs the network"
        raise InputError(f"there is no tokenizer {path_or_name}", where=_WHERE, why=why, remedy=remedy) from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        what = f"the tokenizer {path_or_name} has no fast version"
        raise InputError(what, where=_WHERE, remedy="choose one with a tokenizer.json")
    separator = tokenizer.sep_token or tokenizer.eos_token
    if separator is None:
        what = f"the tokenizer {path_or_name} has no separator (sep or eos token)"
        why = "it ends a document where documents are packed"
        raise InputError(what, where=_WHERE, why=why, remedy=_NAME_ONE)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = separator
    return tokenizer


def require_mask_token(tokenizer: PreTrainedTokenizerFast, objective: str) -> None:
    """Refuse a tokenizer without one for a masked objective, by an InputError."""
    if tokenizer.mask_token is None:
        why = f"the objective {objective} masks tokens"
        raise InputError("the tokenizer has no mask token", where=_WHERE, why=why, remedy=_NAME_ONE)


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
    return checksum(json.dumps(content, sort_keys=True).encode())


def unknown_tokens(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Whether each token, (V,), stands for a character that no piece has: an unknown token, or a fallback byte."""
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = tokenizer.get_vocab()
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    is_unknown_V = np.zeros(max(vocabulary.values()) + 1, dtype=bool)
    for piece, token in vocabulary.items():
        is_unknown_V[token] = piece == unknown or (
            bool(model.get("byte_fallback")) and _BYTE.fullmatch(piece) is not None
        )
    return is_unknown_V
