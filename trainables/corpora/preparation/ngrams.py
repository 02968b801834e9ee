"""The n-grams of texts as hashes: of eight words or, where a script has no spaces, of as many characters as eight
words have there on average. Case, punctuation and the forms of a character do not count (NFC, case folded).

Letters: C characters, U units (words or characters), G n-grams.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.hashing import hash_uint64

WORDS = 8
IDEOGRAPHS, SYLLABLES = 16, 32
"""Characters of an n-gram: of Chinese and Japanese, and of Thai, Lao, Tibetan, Burmese and Khmer."""
BATCH_CHARACTERS = 1 << 17  # what is made of so many fits into a processor's cache
_OVERLAP_CHARACTERS = 1 << 8  # of the windows of a long text: few n-grams are longer

_BETWEEN, _LETTER, _IDEOGRAPH, _SYLLABLE, _UNSEEN = range(5)
_IDEOGRAPHS = ((0x3005, 0x3007), (0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
_SYLLABLES = ((0x0E00, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF))
_BASE = 0x9FB21C651E98DF25  # odd: a factor of the words' and n-grams' polynomials, modulo 2 ** 64


class Ngrams(NamedTuple):
    """Of some texts."""

    hash_G: NDArray[np.uint64]
    text_G: NDArray[np.int64]  # number of the text, ascending


def batches(texts: Iterable[str]) -> Iterator[Ngrams]:
    """The n-grams of all texts, a batch of whole texts at a time; of a long one window by window, which overlap. A text
    shorter than an n-gram counts as one."""
    batch, characters, first, last = list[str](), 0, 0, -1
    for last, text in enumerate(texts):
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield _whole(batch, first)
            batch, characters, first = [], 0, last + 1
    if batch:
        yield _whole(batch, first)


def _whole(texts: Sequence[str], first: int) -> Ngrams:
    """Of a batch whose texts are numbered from ``first``; its last one may be long."""
    *_, long = texts
    if len(long) <= BATCH_CHARACTERS:
        found = ngrams(texts)
    else:
        begins = range(0, len(long), BATCH_CHARACTERS)
        windows = (long[begin : begin + BATCH_CHARACTERS + _OVERLAP_CHARACTERS] for begin in begins)
        parts = [ngrams([*texts[:-1], next(windows)])] + [ngrams([window]) for window in windows]
        text_G = [parts[0].text_G, *(np.full(len(part.hash_G), len(texts) - 1) for part in parts[1:])]
        found = Ngrams(np.concatenate([part.hash_G for part in parts]), np.concatenate(text_G))
    return Ngrams(found.hash_G, found.text_G + first)


def ngrams(texts: Sequence[str]) -> Ngrams:
    """Of texts that are held in memory a few dozen times over."""
    folded = [unicodedata.normalize("NFC", text).casefold() for text in texts]
    code_C = np.frombuffer("\n".join([*folded, ""]).encode("utf-32-le"), dtype="<u4")
    text_C = np.repeat(np.arange(len(texts)), [len(text) + 1 for text in folded])
    kind_C = _kinds()[code_C]
    seen_C = kind_C != _UNSEEN
    code_C, text_C, kind_C = code_C[seen_C], text_C[seen_C], kind_C[seen_C]
    size_T = _sizes(kind_C, text_C, len(texts))
    is_letter_C = kind_C != _BETWEEN
    begins_C = is_letter_C & ((size_T != WORDS)[text_C] | ~np.roll(is_letter_C, 1))
    begin_U = np.flatnonzero(begins_C[is_letter_C])
    if not len(begin_U):
        return Ngrams(np.empty(0, np.uint64), np.empty(0, np.int64))
    unit_U, text_U = _joined(hash_uint64(code_C[is_letter_C].astype(np.uint64)), begin_U), text_C[begins_C]
    found = [_of_size(unit_U[own_U], text_U[own_U], size) for size, own_U in _by_size(size_T, text_U)]
    hash_G, text_G = (np.concatenate(part) for part in zip(*found, strict=True))
    order_G = np.argsort(text_G, kind="stable")
    return Ngrams(hash_uint64(hash_G[order_G]), text_G[order_G])


def _sizes(kind_C: NDArray[np.uint8], text_C: NDArray[np.int64], num_texts: int) -> NDArray[np.int64]:
    """How many units an n-gram of each text has, (texts,): by the script that most of its letters are of."""
    count_TK = np.bincount(text_C * _UNSEEN + kind_C, minlength=num_texts * _UNSEEN).reshape(num_texts, _UNSEEN)
    most_T = count_TK[:, _LETTER:].argmax(axis=1)
    size_T: NDArray[np.int64] = np.array([WORDS, IDEOGRAPHS, SYLLABLES])[most_T]
    return size_T


def _by_size(size_T: NDArray[np.int64], text_U: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    size_U = size_T[text_U]
    return ((int(size), size_U == size) for size in np.unique(size_U))


def _joined(value_V: NDArray[np.uint64], begin_S: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of each run of values, by where the runs begin."""
    length_S = np.diff(begin_S, append=len(value_V))
    place_V = np.arange(len(value_V)) - np.repeat(begin_S, length_S)
    powers = np.cumprod(np.full(64, _BASE, dtype=np.uint64))
    return hash_uint64(np.add.reduceat(value_V * powers[place_V % 64], begin_S))


def _of_size(unit_U: NDArray[np.uint64], text_U: NDArray[np.int64], size: int) -> Ngrams:
    """All runs of so many units, a power of two, within a text; of a shorter text all its units."""
    begin_T = np.flatnonzero(np.diff(text_U, prepend=-1))
    short_T = np.diff(begin_T, append=len(text_U)) < size
    hash_G, joined, factor = unit_U, 1, _BASE
    while joined < size:
        hash_G = hash_G[:-joined] * np.uint64(factor) + hash_G[joined:]
        joined, factor = 2 * joined, factor * factor % (1 << 64)
    first_G, last_G = text_U[: len(hash_G)], text_U[size - 1 :]
    within_G = first_G == last_G
    hashes, texts = (hash_G[within_G], _joined(unit_U, begin_T)[short_T]), (first_G[within_G], text_U[begin_T[short_T]])
    return Ngrams(np.concatenate(hashes), np.concatenate(texts))


@cache
def _kinds() -> NDArray[np.uint8]:
    """What each code point is."""
    kinds = np.array([_kind(chr(code)) for code in range(sys.maxunicode + 1)], dtype=np.uint8)
    for ranges, kind in ((_IDEOGRAPHS, _IDEOGRAPH), (_SYLLABLES, _SYLLABLE), (((0x20000, 0x3FFFF),), _IDEOGRAPH)):
        for first, last in ranges:
            own = kinds[first : last + 1]
            own[own == _LETTER] = kind
    return kinds


def _kind(character: str) -> int:
    category = unicodedata.category(character)
    return _UNSEEN if category == "Cf" else _LETTER if category[0] in "LMN" else _BETWEEN
