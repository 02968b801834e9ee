"""How a language is described: its sounds, lexicon, paradigms, phrase-structure rules and contrasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Contrast:
    """A way to break a sentence in one point.

    Args:
        phenomenon: what the contrast tests, in linguistics' terms.
        frame: the nonterminal whose expansions are the sentences to break.
        target: the category of the word to break; ``constituent category`` looks for it inside that
            constituent of the frame, and ``* category`` anywhere in the sentence.
        feature: the feature whose value is exchanged in the target; without one the target is exchanged
            with the word after it.
        values: the values exchanged, where they are not all those of the feature.
        attractor: a word, named as ``target`` is, which must carry the wrong value in the good sentence.
    """

    phenomenon: str
    frame: str
    target: str
    feature: str = ""
    values: str = ""
    attractor: str = ""


@dataclass(frozen=True, eq=False)
class Language:
    """A language, as tables.

    Args:
        name: short and in ASCII.
        script: a key of ``orthography.SCRIPTS``.
        segments: the sounds each capital letter of a word's skeleton stands for.
        features: the values of each feature; one written twice is drawn twice as often, and those after
            ``|`` are never drawn, only named by rules.
        lexicon: for ``category inherent-value ...``, how many stems there are and their skeletons, or
            ``=`` and the stems themselves.
        paradigms: for each inflected category, tables of exponents in the order in which they attach.
        rules: for each nonterminal, its alternatives, each on a line that begins with its weight.
            ``np(number dative)`` passes on the rule's own ``number`` and a constant;
            ``number2`` is a second, independent ``number``; whatever is not passed on is drawn; ``adverb?``
            is optional; ``'ne'`` is a particle.
        contrasts: what minimal pairs test.
    """

    name: str
    script: str
    segments: Mapping[str, str]
    features: Mapping[str, str]
    lexicon: Mapping[str, str]
    paradigms: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, str]
    contrasts: tuple[Contrast, ...]

    def values(self, feature: str) -> tuple[str, ...]:
        """Every value of ``feature``, once."""
        return tuple(dict.fromkeys(self.features[feature].replace("|", " ").split()))

    def feature_of(self, argument: str) -> str:
        """The feature a variable (``number2``) or a constant (``dative``) belongs to."""
        feature = argument.rstrip("0123456789")
        if feature in self.features:
            return feature
        return next(feature for feature in self.features if argument in self.values(feature))

    def is_variable(self, argument: str) -> bool:
        """Whether ``argument`` is a variable, not a constant."""
        return argument.rstrip("0123456789") in self.features
