"""Documents: episodes about a few referents, each introduced and then referred back to."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from trainables.corpora.grammar.derivation import Derivation
from trainables.corpora.grammar.orthography import sentence
from trainables.corpora.grammar.syntax import grammar

_START = "episode"
_FEWEST, _MOST = 6, 11  # the last episode may add up to three sentences more


def documents(language: str, number: int, seed: int = 0, first: int = 0) -> Iterator[tuple[str, str]]:
    """Of the first ``number`` documents of a language's corpus those from ``first`` on, as (document id, text).

    A document depends on the language, the seed and its place in the corpus, and on nothing else.

    Raises:
        InputError: there is no language of this name.
    """
    grammar(language)  # a wrong name is an error now, not at the first document
    return (
        (f"{language}-{seed}-{index}", _document(language, f"{language}/{seed}/{index}"))
        for index in range(first, number)
    )


def _document(language: str, key: str) -> str:
    compiled = grammar(language)
    random = Random(key)
    derivation = Derivation(compiled, random)
    wanted = random.randint(_FEWEST, _MOST)
    sentences: list[str] = []
    while len(sentences) < wanted:
        for _, words in derivation.constituents(_START):
            sentences.append(sentence([word.form for word in words], compiled.language.script))
    return " ".join(sentences)
