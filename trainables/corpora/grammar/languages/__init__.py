"""The embedded languages: invented, each with the morphology and syntax of a type found in the world."""

from __future__ import annotations

from trainables.corpora.grammar.description import Language
from trainables.corpora.grammar.languages.aleios import ALEIOS
from trainables.corpora.grammar.languages.kharto import KHARTO
from trainables.corpora.grammar.languages.mbatu import MBATU
from trainables.corpora.grammar.languages.sorikal import SORIKAL
from trainables.corpora.grammar.languages.sunmei import SUNMEI
from trainables.corpora.grammar.languages.veldan import VELDAN
from trainables.errors import InputError, nearest

_LANGUAGES = {language.name: language for language in (ALEIOS, KHARTO, MBATU, SORIKAL, SUNMEI, VELDAN)}

LANGUAGES: tuple[str, ...] = tuple(_LANGUAGES)
"""The names of the embedded languages."""


def described(name: str) -> Language:
    """The description of the language called ``name``.

    Raises:
        InputError: there is no such language.
    """
    if name not in _LANGUAGES:
        raise InputError(f"unknown language '{name}'", remedy=nearest(name, LANGUAGES))
    return _LANGUAGES[name]
