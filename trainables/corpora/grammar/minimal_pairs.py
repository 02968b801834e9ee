"""Minimal pairs: a sentence of the grammar, and the same sentence broken in one point."""

from random import Random
from typing import NamedTuple

from trainables.corpora.grammar.derivation import Derivation
from trainables.corpora.grammar.description import Contrast
from trainables.corpora.grammar.lexicon import Word
from trainables.corpora.grammar.orthography import sentence
from trainables.corpora.grammar.syntax import Grammar, grammar

_ATTEMPTS = 10_000


class MinimalPair(NamedTuple):
    """Two sentences that differ in one word or the order of two neighbours; only ``good`` is grammatical."""

    language: str
    phenomenon: str
    good: str
    bad: str


def minimal_pairs(language: str, number: int, seed: int = 0) -> list[MinimalPair]:
    """``number`` minimal pairs of a language, its phenomena in turn.

    Within a phenomenon every value takes its turn as the right one and every other as the wrong one, so that preferring
    the more frequent form is no better than chance. A name that no language has is an InputError.
    """
    compiled = grammar(language)
    contrasts = compiled.language.contrasts
    pairs = []
    for index in range(number):
        turn, which = divmod(index, len(contrasts))
        random = Random(f"{language}/minimal pairs/{seed}/{index}")
        good, bad = _pair(compiled, contrasts[which], turn, random)
        pairs.append(MinimalPair(language, contrasts[which].phenomenon, good, bad))
    return pairs


def _pair(grammar: Grammar, contrast: Contrast, turn: int, random: Random) -> tuple[str, str]:
    """Sentences of the contrast's frame, until one has the values whose turn it is where they are needed."""
    right = wrong = ""
    if contrast.feature:
        values = contrast.values.split() or grammar.language.values(contrast.feature)
        # Every value is right once and wrong once before any is so again: any number of pairs is balanced.
        distance, place = divmod(turn, len(values))
        right, wrong = values[place], values[(place + 1 + distance % (len(values) - 1)) % len(values)]
    for _ in range(_ATTEMPTS):
        expansion = Derivation(grammar, random).constituents(contrast.frame)
        words = [word for _, constituent in expansion for word in constituent]
        target = _find(grammar, expansion, contrast.target, contrast.feature, right)
        if target is None:
            continue
        if contrast.attractor and _find(grammar, expansion, contrast.attractor, contrast.feature, wrong) is None:
            continue
        broken = list(words)
        if contrast.feature:
            category, inflected = grammar.categories[words[target].category], list(words[target].values)
            inflected[category.features.index(contrast.feature)] = wrong
            broken[target] = category.word(words[target].stem, tuple(inflected))
        else:
            broken[target], broken[target + 1] = words[target + 1], words[target]
        good, bad = (sentence([word.form for word in each], grammar.language.script) for each in (words, broken))
        if good != bad:
            return good, bad
    raise ValueError(f"{grammar.language.name}: '{contrast.frame}' has no sentence for {contrast.phenomenon}")


def _find(
    grammar: Grammar, expansion: list[tuple[str, list[Word]]], place: str, feature: str, value: str
) -> int | None:
    """The position of the first word at ``place`` with that value of the feature."""
    constituent, category = place.split() if " " in place else (place, place)
    position = 0
    for name, words in expansion:
        for word in words:
            if constituent in (name, "*") and word.category == category:
                features = grammar.features[category]
                if not feature or word.values[features.index(feature)] == value:
                    return position
            position += 1
    return None
