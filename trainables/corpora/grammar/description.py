"""How a language is described: its sounds, lexicon, paradigms, phrase-structure rules and contrasts."""

from pathlib import Path

from trainables.config import Config
from trainables.errors import InputError, nearest

FOLDER = Path(__file__).parent / "languages"
LANGUAGES: tuple[str, ...] = tuple(sorted(file.stem for file in FOLDER.glob("*.yaml")))
"""The names of the embedded languages."""


class Contrast(Config):
    """A way to break a sentence in one point."""

    phenomenon: str  # what the contrast tests, in linguistics' terms
    frame: str  # the nonterminal whose expansions are the sentences to break
    target: str
    """The category of the word to break. ``constituent category`` looks for it inside that constituent of the frame,
    ``* category`` anywhere in the sentence."""
    feature: str = ""
    """Its value is exchanged in the target; without a feature the target is exchanged with the word after it."""
    values: str = ""  # those exchanged, where they are not all those of the feature
    attractor: str = ""  # a word, named as ``target`` is, which must carry the wrong value in the good sentence


class Language(Config):
    """A language, as tables."""

    name: str  # short and in ASCII
    script: str  # a key of ``orthography.SCRIPTS``
    segments: dict[str, str]  # the sounds that each capital letter of a word's skeleton stands for
    features: dict[str, str]
    """The values of each feature. One written twice is drawn twice as often; those after ``|`` are never drawn, only
    named by rules."""
    lexicon: dict[str, str]
    """For ``category inherent-value ...``: how many stems there are and their skeletons, or ``=`` and the stems."""
    paradigms: dict[str, tuple[str, ...]]
    """For each inflected category: tables of exponents in the order in which they attach."""
    rules: dict[str, str]
    """For each nonterminal its alternatives, each on a line that begins with its weight. ``np(number dative)`` passes
    on the rule's own ``number`` and a constant; ``number2`` is a second, independent ``number``; whatever is not passed
    on is drawn; ``adverb?`` is optional; ``'ne'`` is a particle."""
    contrasts: tuple[Contrast, ...]  # what minimal pairs test

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


def require_language(name: str, where: str = "") -> None:
    """Refuse a name that no embedded language has, by an InputError."""
    if name not in LANGUAGES:
        why, remedy = nearest(name, LANGUAGES), "choose one of them, or give files or a dataset"
        raise InputError(f"there is no embedded language '{name}'", where=where, why=why, remedy=remedy)
