"""Writing systems: from romanised words to the script, and from words to a sentence."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Script(NamedTuple):
    """A writing system.

    Args:
        letters: the letter each romanised sound is written with.
        marks: how the full stop, comma and question mark of the rules are written.
        capitals: whether a sentence begins with a capital.
    """

    letters: Mapping[str, str]
    marks: Mapping[str, str]
    capitals: bool


def _letters(romanised: str, written: str) -> dict[str, str]:
    return dict(zip(romanised, written, strict=True))


_MARKS = {".": ".", ",": ",", "?": "?"}
_ONSETS = _letters("gndlmbsjcktph", "ᄀᄂᄃᄅᄆᄇᄉᄌᄎᄏᄐᄑᄒ")
_VOWELS = _letters("aeiouəɨ", "ᅡᅦᅵᅩᅮᅥᅳ")
_CODAS = _letters("knlmŋ", "ᆨᆫᆯᆷᆼ")
_SYLLABLE = re.compile(rf"([{''.join(_ONSETS)}])([{''.join(_VOWELS)}])([{''.join(_CODAS)}](?![{''.join(_VOWELS)}]))?")

SCRIPTS = {
    "latin": Script({}, _MARKS, capitals=True),
    "cyrillic": Script(_letters("abvgdežzijklmnoprstufhcčšıöü", "абвгдежзийклмнопрстуфхцчшыөү"), _MARKS, capitals=True),
    "greek": Script(
        _letters("abgdezhqiklmnxoprstufcyw", "αβγδεζηθικλμνξοπρστυφχψω"), {**_MARKS, "?": ";"}, capitals=True
    ),
    "georgian": Script(_letters("abgdevzqiklmnoprstufxčcjšhġ", "აბგდევზთიკლმნოპრსტუფხჩცჯშჰღ"), _MARKS, capitals=False),
    "hangul": Script({}, _MARKS, capitals=False),
}


def transliterate(word: str, script: str) -> str:
    """The romanised ``word`` in ``script``."""
    if script == "hangul":
        return _SYLLABLE.sub(_hangul_syllable, word)
    letters = SCRIPTS[script].letters
    written = "".join(letters.get(sound, sound) for sound in word)
    return written[:-1] + "ς" if written.endswith("σ") else written


def _hangul_syllable(syllable: re.Match[str]) -> str:
    onset, vowel, coda = syllable.groups()
    return unicodedata.normalize("NFC", _ONSETS[onset] + _VOWELS[vowel] + (_CODAS[coda] if coda else ""))


def sentence(words: Iterable[str], script: Script) -> str:
    """The words spaced, with marks set against the word before, and a capital where the script has them."""
    text = " ".join(words)
    for mark in script.marks.values():
        text = text.replace(f" {mark}", mark)
    return text[0].upper() + text[1:] if script.capitals else text
