"""Invented languages: from one grammar each, any amount of text and the minimal pairs to judge a model by."""

from trainables.corpora.grammar.derivation import documents
from trainables.corpora.grammar.description import LANGUAGES, require_language
from trainables.corpora.grammar.minimal_pairs import MinimalPair, minimal_pairs

__all__ = ["LANGUAGES", "MinimalPair", "documents", "minimal_pairs", "require_language"]
