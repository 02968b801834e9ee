"""Sentences drawn from a grammar, and documents: episodes about a few referents, introduced, then referred back to."""

from bisect import bisect
from collections.abc import Iterable, Iterator
from random import Random

from trainables.corpora.grammar.lexicon import Stems, Word
from trainables.corpora.grammar.orthography import sentence
from trainables.corpora.grammar.syntax import Grammar, Rule, Symbol, grammar

_OPTIONAL_PROBABILITY = 0.3
_FEWEST, _MOST = 6, 11  # sentences of a document: the last episode may add up to three more


def documents(language: str, number: int, seed: int = 0, first: int = 0) -> Iterator[tuple[str, str]]:
    """Of the first ``number`` documents of a language's corpus those from ``first`` on, as (document id, text).

    A document depends on the language, the seed and its place in the corpus, and on nothing else. A name that no
    language has is an InputError.
    """
    compiled = grammar(language)  # a wrong name is an error now, not at the first document
    return (
        (f"{language}-{seed}-{index}", _document(compiled, Random(f"{language}/{seed}/{index}")))
        for index in range(first, number)
    )


def _document(grammar: Grammar, random: Random) -> str:
    derivation = Derivation(grammar, random)
    wanted = random.randint(_FEWEST, _MOST)
    sentences: list[str] = []
    while len(sentences) < wanted:
        for _, words in derivation.constituents("episode"):
            sentences.append(sentence([word.form for word in words], grammar.language.script))
    return " ".join(sentences)


class Derivation:
    """Sentences drawn with ``random`` from a grammar, all about one cast: a few nouns of each kind."""

    def __init__(self, grammar: Grammar, random: Random) -> None:
        self._grammar = grammar
        self._random = random.random
        referents = grammar.language.values("referent")
        self._cast: dict[tuple[str, ...], str] = {}
        for inherent, stems in grammar.categories["noun"].stems.items():
            chosen: dict[str, None] = {}
            while len(chosen) < len(referents):
                chosen[self._stem(stems)] = None
            self._cast |= {(*inherent, referent): stem for referent, stem in zip(referents, chosen, strict=True)}

    def constituents(self, name: str) -> list[tuple[str, list[Word]]]:
        """An expansion of ``name`` with features at random: each symbol of its rule, and its words."""
        domains = [self._grammar.domain(feature) for feature in self._grammar.features[name]]
        rule, values = self._alternative(name, self._drawn(domains))
        expansion: list[tuple[str, list[Word]]] = []
        for symbol in rule.symbols:
            words: list[Word] = []
            self._expand(symbol, values, words)
            expansion.append((symbol.name, words))
        return expansion

    def _drawn(self, domains: Iterable[tuple[str, ...]]) -> list[str]:
        return [domain[int(self._random() * len(domain))] for domain in domains]

    def _stem(self, stems: Stems) -> str:
        last = len(stems.stems) - 1  # rounding may leave the last cumulative probability below 1
        return stems.stems[bisect(stems.cumulative, self._random(), 0, last)]

    def _alternative(self, name: str, values: Iterable[str]) -> tuple[Rule, list[str]]:
        rules = self._grammar.rules[name]
        rule = rules[int(self._random() * len(rules))]
        return rule, [*values, *self._drawn(rule.drawn), *rule.constants]

    def _expand(self, symbol: Symbol, environment: list[str], words: list[Word]) -> None:
        if symbol.optional and self._random() >= _OPTIONAL_PROBABILITY:
            return
        grammar = self._grammar
        name = symbol.name
        values = tuple([environment[position] for position in symbol.arguments])
        if name in grammar.rules:
            rule, inner = self._alternative(name, values)
            for child in rule.symbols:
                self._expand(child, inner, words)
        elif name in grammar.particles:
            words.append(grammar.particles[name])
        else:
            category = grammar.categories[name]
            inherent = len(category.inherent)
            if category.refers:
                stem = self._cast[values[: inherent + 1]]
            else:
                stem = self._stem(category.stems[values[:inherent]])
            words.append(category.word(stem, values))
