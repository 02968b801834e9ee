"""Writing systems: from romanised words to the script, and from words to a sentence."""

import re
import unicodedata
from collections.abc import Iterable

MARKS = (".", ",", "?")  # set against the word before


_ONSETS = dict(zip("gndlmbsjcktph", "ᄀᄂᄃᄅᄆᄇᄉᄌᄎᄏᄐᄑᄒ", strict=True))
_VOWELS = dict(zip("aeiouəɨ", "ᅡᅦᅵᅩᅮᅥᅳ", strict=True))
_CODAS = dict(zip("knlmŋ", "ᆨᆫᆯᆷᆼ", strict=True))
_SYLLABLE = re.compile(rf"([{''.join(_ONSETS)}])([{''.join(_VOWELS)}])([{''.join(_CODAS)}](?![{''.join(_VOWELS)}]))?")

SCRIPTS = {
    "latin": dict[str, str](),
    "cyrillic": dict(zip("abvgdežzijklmnoprstufhcčšıöü", "абвгдежзийклмнопрстуфхцчшыөү", strict=True)),
    "georgian": dict(zip("abgdevzqiklmnoprstufxčcjšhġ", "აბგდევზთიკლმნოპრსტუფხჩცჯშჰღ", strict=True)),
    "hangul": dict[str, str](),
}
"""The letter that each romanised sound is written with; Hangul writes syllables."""

_WITH_CAPITALS = {"latin", "cyrillic"}


def transliterate(word: str, script: str) -> str:
    """The romanised ``word`` in ``script``."""
    if script == "hangul":
        return _SYLLABLE.sub(_hangul_syllable, word)
    return "".join(SCRIPTS[script].get(sound, sound) for sound in word)


def _hangul_syllable(syllable: re.Match[str]) -> str:
    onset, vowel, coda = syllable.groups()
    return unicodedata.normalize("NFC", _ONSETS[onset] + _VOWELS[vowel] + (_CODAS[coda] if coda else ""))


def sentence(words: Iterable[str], script: str) -> str:
    """The words spaced, with marks set against the word before, and a capital where the script has them."""
    text = " ".join(words)
    for mark in MARKS:
        text = text.replace(f" {mark}", mark)
    return text[0].upper() + text[1:] if script in _WITH_CAPITALS else text
