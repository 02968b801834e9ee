"""Derivations: sentences drawn from a grammar."""

from __future__ import annotations

from bisect import bisect
from random import Random

from trainables.corpora.grammar.lexicon import Stems, Word
from trainables.corpora.grammar.syntax import Grammar, Rule, Symbol

_OPTIONAL_PROBABILITY = 0.3


class Derivation:
    """Sentences drawn with ``random`` from a grammar, all about one cast: a few nouns of each kind."""

    def __init__(self, grammar: Grammar, random: Random) -> None:
        self._grammar = grammar
        self._random = random.random
        referents = grammar.language.values("referent")
        self._cast: dict[tuple[str, ...], str] = {}
        for inherent, stems in grammar.categories["noun"].stems.items():
            for referent, stem in zip(referents, self._distinct(stems, len(referents)), strict=True):
                self._cast[(*inherent, referent)] = stem

    def constituents(self, name: str) -> list[tuple[str, list[Word]]]:
        """An expansion of ``name`` with features at random: each symbol of its rule, and its words."""
        domains = [self._grammar.domain(feature) for feature in self._grammar.features[name]]
        rule, values = self._alternative(name, tuple([self._draw(domain) for domain in domains]))
        expansion: list[tuple[str, list[Word]]] = []
        for symbol in rule.symbols:
            words: list[Word] = []
            self._expand(symbol, values, words)
            expansion.append((symbol.name, words))
        return expansion

    def _draw(self, domain: tuple[str, ...]) -> str:
        return domain[int(self._random() * len(domain))]

    def _stem(self, stems: Stems) -> str:
        last = len(stems.stems) - 1  # rounding may leave the last cumulative probability below 1
        return stems.stems[bisect(stems.cumulative, self._random(), 0, last)]

    def _distinct(self, stems: Stems, number: int) -> list[str]:
        chosen: dict[str, None] = {}
        while len(chosen) < number:
            chosen[self._stem(stems)] = None
        return list(chosen)

    def _alternative(self, name: str, values: tuple[str, ...]) -> tuple[Rule, list[str]]:
        random = self._random
        rules = self._grammar.rules[name]
        rule = rules[int(random() * len(rules))]
        drawn = [domain[int(random() * len(domain))] for domain in rule.drawn]
        return rule, [*values, *drawn, *rule.constants]

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
