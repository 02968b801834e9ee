"""Phrase-structure rules with features, compiled so that deriving from them is indexing."""

import re
from functools import cache
from typing import NamedTuple

import yaml

from trainables.corpora.grammar.description import FOLDER, Language, require_language
from trainables.corpora.grammar.lexicon import Word, categories
from trainables.corpora.grammar.orthography import MARKS, transliterate

_SYMBOL = re.compile(r"(?P<name>[a-z_]+|'[^']+'|[.,?])(?:\((?P<arguments>[^)]*)\))?(?P<optional>\?)?")
_ALTERNATIVE = re.compile(r"^\s*(\d+) (.*(?:\n\s*[^\d\s].*)*)", re.MULTILINE)
_FRESH = 100  # numbers anonymous variables apart from those written in a rule


class Symbol(NamedTuple):
    """A symbol on the right of a rule; ``arguments`` are positions among the rule's values."""

    name: str
    arguments: tuple[int, ...]
    optional: bool


class Rule(NamedTuple):
    """One alternative; its values are those passed to it, then ``drawn`` ones, then ``constants``."""

    symbols: tuple[Symbol, ...]
    drawn: tuple[tuple[str, ...], ...]
    constants: tuple[str, ...]


class _Parsed(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    optional: bool


class Grammar:
    """A language compiled: rules by nonterminal, categories by name, and particles by symbol.

    ``features`` are those of every symbol, in the order in which their values are passed.
    """

    def __init__(self, language: Language) -> None:
        self.language = language
        parsed = {name: _alternatives(text) for name, text in language.rules.items()}
        symbols = {symbol.name for rules in parsed.values() for _, rule in rules for symbol in rule}
        particles = {symbol.strip("'") for symbol in symbols if symbol.startswith("'")}
        self.particles = {
            f"'{form}'": Word("particle", form, (), transliterate(form, language.script)) for form in particles
        }
        self.particles |= {mark: Word("mark", mark, (), mark) for mark in MARKS}
        self.categories = categories(language, particles)
        self.features: dict[str, tuple[str, ...]] = dict.fromkeys(self.particles, ())
        self.features |= {name: category.features for name, category in self.categories.items()}
        self.features |= {name: self._signature(rules) for name, rules in parsed.items()}
        self.rules = {
            # A weight is a number of copies, so that drawing a rule is one index.
            name: tuple(copy for weight, rule in rules for copy in [self._compile(name, rule)] * weight)
            for name, rules in parsed.items()
        }

    def domain(self, feature: str) -> tuple[str, ...]:
        """The values ``feature`` is drawn from, each as often as it is written."""
        return tuple(self.language.features[feature].partition("|")[0].split())

    def _signature(self, rules: list[tuple[int, list[_Parsed]]]) -> tuple[str, ...]:
        arguments = [argument for _, rule in rules for symbol in rule for argument in symbol.arguments]
        return tuple(dict.fromkeys(argument for argument in arguments if argument in self.language.features))

    def _compile(self, name: str, rule: list[_Parsed]) -> Rule:
        language = self.language
        arguments = []
        for index, symbol in enumerate(rule):
            given = {language.feature_of(argument): argument for argument in symbol.arguments}
            if unknown := given.keys() - set(self.features[symbol.name]):
                raise ValueError(f"{language.name}: {symbol.name} in {name} has no {', '.join(unknown)}")
            features = self.features[symbol.name]
            arguments.append([given.get(feature, f"{feature}{_FRESH + index}") for feature in features])
        passed = dict.fromkeys(self.features[name])
        local = [one for each in arguments for one in each if one not in passed]
        drawn = dict.fromkeys(argument for argument in local if language.is_variable(argument))
        constants = dict.fromkeys(argument for argument in local if argument not in drawn)
        position = {argument: index for index, argument in enumerate([*passed, *drawn, *constants])}
        symbols = (
            Symbol(symbol.name, tuple(map(position.__getitem__, each)), symbol.optional)
            for symbol, each in zip(rule, arguments, strict=True)
        )
        domains = (self.domain(language.feature_of(argument)) for argument in drawn)
        return Rule(tuple(symbols), tuple(domains), tuple(constants))


def _alternatives(text: str) -> list[tuple[int, list[_Parsed]]]:
    return [(int(weight), list(map(_parsed, _SYMBOL.finditer(body)))) for weight, body in _ALTERNATIVE.findall(text)]


def _parsed(symbol: re.Match[str]) -> _Parsed:
    return _Parsed(symbol["name"], tuple((symbol["arguments"] or "").split()), bool(symbol["optional"]))


@cache
def grammar(name: str) -> Grammar:
    """The grammar of the language called ``name``; an InputError where there is none."""
    require_language(name)
    description = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return Grammar(Language.model_validate(description))
