"""The lexicon: stems coined from a language's phonotactics, and the forms they inflect to."""

from collections.abc import Iterator, Mapping
from itertools import accumulate, chain, product
from random import Random
from typing import NamedTuple

from trainables.corpora.grammar.description import Language
from trainables.corpora.grammar.orthography import transliterate

_ATTEMPTS_PER_STEM = 200


class Table(NamedTuple):
    """A paradigm table: the exponent (``-suffix``, ``prefix-`` or a whole word) of each tuple of values."""

    features: tuple[str, ...]
    exponents: Mapping[tuple[str, ...], str]


class Word(NamedTuple):
    """An inflected word: ``values`` are those of its category's features, in order."""

    category: str
    stem: str
    values: tuple[str, ...]
    form: str


class Stems(NamedTuple):
    """The stems of one category and inherent value, most frequent first, with cumulative probabilities."""

    stems: tuple[str, ...]
    cumulative: tuple[float, ...]


class Category:
    """A part of speech: its inherent features, a noun's referent (its place in a document's cast), then inflections."""

    def __init__(self, language: Language, name: str) -> None:
        self.name = name
        self.stems: dict[tuple[str, ...], Stems] = {}
        self._language = language
        self._tables = [_table(text, language) for text in language.paradigms.get(name, ())]
        rows = [key.split()[1:] for key in language.lexicon if key.split()[0] == name]
        self.inherent = [language.feature_of(value) for value in rows[0]] if rows else []
        self.refers = name == "noun"
        inflectional = [feature for table in self._tables for feature in table.features]
        referent = ["referent"] if self.refers else []
        self.features = tuple(dict.fromkeys([*self.inherent, *referent, *inflectional]))
        self._words: dict[tuple[str, tuple[str, ...]], Word] = {}

    def word(self, stem: str, values: tuple[str, ...]) -> Word:
        """``stem`` inflected for ``values``."""
        key = stem, values
        word = self._words.get(key)
        if word is None:
            romanised = self.inflect(stem, dict(zip(self.features, values, strict=True)))
            word = Word(self.name, stem, values, transliterate(romanised, self._language.script))
            self._words[key] = word
        return word

    def inflect(self, stem: str, values: Mapping[str, str]) -> str:
        """``stem`` inflected for ``values``, romanised."""
        form = stem
        for table in self._tables:
            exponent = table.exponents[tuple(values[feature] for feature in table.features)]
            if exponent.startswith("-"):
                form += exponent[1:]
            elif exponent.endswith("-"):
                form = exponent[:-1] + form
            else:
                form = exponent
        return form

    def paradigm(self, stem: str, inherent: tuple[str, ...]) -> Iterator[tuple[dict[str, str], str]]:
        """Every combination of values that ``stem`` inflects for, with the romanised form."""
        fixed = dict(zip(self.inherent, inherent, strict=True))
        features = [feature for table in self._tables for feature in table.features]
        for rows in product(*(table.exponents for table in self._tables)):
            values, cells = dict(fixed), zip(features, chain(*rows), strict=True)
            if all(values.setdefault(feature, value) == value for feature, value in cells):
                yield values, self.inflect(stem, values)

    def coin(
        self, number: int, skeletons: list[str], inherent: tuple[str, ...], random: Random, taken: set[str]
    ) -> list[str]:
        """So many stems, the shorter ones first, with no form that is ``taken``; their forms then are."""
        sounds = {letter: segments.split() for letter, segments in self._language.segments.items()}
        stems: list[str] = []
        for _ in range(number * _ATTEMPTS_PER_STEM):
            stem = "".join(random.choice(sounds.get(letter, [letter])) for letter in random.choice(skeletons))
            forms = {form for _, form in self.paradigm(stem, inherent)}
            if taken.isdisjoint(forms):
                taken |= forms
                stems.append(stem)
                if len(stems) == number:
                    return sorted(stems, key=len)  # Zipf's law of abbreviation: the more frequent, the shorter
        raise ValueError(f"{self._language.name}: too few skeletons for {number} stems of {self.name}")


def categories(language: Language, particles: set[str]) -> dict[str, Category]:
    """The categories of ``language`` by name, with their stems.

    No two lexemes share a form, so that a word's analysis never depends on its context: a minimal pair's
    bad sentence would otherwise have a second, grammatical reading.
    """
    names = dict.fromkeys([*(key.split()[0] for key in language.lexicon), *language.paradigms])
    found = {name: Category(language, name) for name in names}
    random = Random(f"{language.name}/lexicon")
    taken = set(particles)
    rows = {tuple(key.split()): entry for key, entry in language.lexicon.items()}
    rows |= {(name,): "=" for name in names if name not in {key[0] for key in rows}}
    # Given stems first: a coined stem must keep clear of the function words.
    for (name, *inherent), entry in sorted(rows.items(), key=lambda row: not row[1].startswith("=")):
        category, values = found[name], tuple(inherent)
        if entry.startswith("="):
            stems = entry[1:].split() or [""]
            taken.update(form for stem in stems for _, form in category.paradigm(stem, values))
        else:
            number, *skeletons = entry.split()
            stems = category.coin(int(number), skeletons, values, random, taken)
        category.stems[values] = Stems(tuple(stems), _zipf(len(stems)))
    return found


def _zipf(number: int) -> tuple[float, ...]:
    weights = [1 / rank for rank in range(1, number + 1)]
    total = sum(weights)
    return tuple(share / total for share in accumulate(weights))


def _table(text: str, language: Language) -> Table:
    """The table that ``text`` draws: one feature's values across, others' down, exponents between.

    ``Ø`` is the zero exponent, ``.`` the empty corner.
    """
    header, *lines = [line.split() for line in text.strip().splitlines()]
    header = header[header[0] == "." :]
    labels = lines[0][: -len(header)]
    features = tuple(language.feature_of(value) for value in [*labels, header[0]])
    exponents = {
        (*line[: -len(header)], value): cell.replace("Ø", "-")
        for line in lines
        for value, cell in zip(header, line[-len(header) :], strict=True)
    }
    return Table(features, exponents)
